//! How much compressed data may expand to.

use clap::Args;

use crate::session::bytes::Size;

/// Data of any ratio may expand to this.
const ALWAYS: u64 = 256 << 20;

/// Larger data may expand to this multiple of its compressed size. Captures reach 10 to 30, and gzip's limit is 1,032.
const RATIO: u64 = 64;

/// The option of commands that read captures.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct DecompressionLimit {
    /// Maximum size of a compressed file after decompression [default: 64 times its size, at least 256M]
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    max_decompressed: Option<Size>,
}

impl DecompressionLimit {
    /// The limit after this many compressed bytes.
    pub(super) fn after(self, compressed: u64) -> u64 {
        match self.max_decompressed {
            Some(size) => size.0,
            None => ALWAYS.max(compressed.saturating_mul(RATIO)),
        }
    }
}

#[cfg(test)]
impl DecompressionLimit {
    pub(super) const fn of(bytes: u64) -> Self {
        Self { max_decompressed: Some(Size(bytes)) }
    }
}

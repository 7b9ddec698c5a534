//! The arguments of `ferroce capture`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::option::PolicyChoice;
use crate::duration::Interval;
use crate::filter::FilterArgs;
use crate::session::bytes::Size;

/// Arguments of `ferroce capture`.
#[derive(Args, Debug)]
pub(crate) struct CaptureCommandArgs {
    /// The pcapng file to write; - is standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) write: PathBuf,

    /// Also capture RoCE frames on this interface, whoever sends them; needs root or CAP_NET_RAW
    ///
    /// UDP port 4791 and EtherType 0x8915. Packets that a captured process sends are recorded once, as the process sent them.
    #[arg(long, short, value_name = "IFACE")]
    pub(crate) interface: Vec<String>,

    /// Do not collect from processes, only from interfaces
    #[arg(long, requires = "interface")]
    pub(crate) no_processes: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Capture at most this many bytes of each packet
    #[arg(long, short, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=262_144), default_value = "262144", hide_default_value = true)]
    pub(crate) snaplen: u32,

    /// Stop after this many packets
    #[arg(long, short, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Stop after this time, such as 10s
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Interval>,

    /// Start a new file when the current one has this many bytes, such as 100M
    #[arg(long, value_name = "BYTES")]
    pub(crate) rotate_size: Option<Size>,

    /// Start a new file after this time, such as 10min
    #[arg(long, value_name = "TIME")]
    pub(crate) rotate_time: Option<Interval>,

    /// Keep only the newest files of a rotation
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) files: Option<u32>,

    /// What happens when packets come faster than they can be written
    #[arg(long, alias = "policy", value_name = "POLICY", default_value = "block")]
    pub(crate) capture_policy: PolicyChoice,

    /// Memory for packets of each process that are not written yet: 64K to 64M
    #[arg(long, value_name = "BYTES", default_value = "16M")]
    pub(crate) buffer: Size,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Print only errors and losses
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The limits of `--buffer`.
const BUFFER: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

impl CaptureCommandArgs {
    /// Refuses combinations that make no sense.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rotates = self.rotate_size.is_some() || self.rotate_time.is_some();
        let to_stdout = self.is_stdout();
        if rotates && to_stdout {
            return Err("standard output cannot be rotated: give a file with --write".into());
        }
        if self.files.is_some() && !rotates {
            return Err("--files limits a rotation: add --rotate-size or --rotate-time".into());
        }
        if self.json && to_stdout {
            return Err(
                "--json and the capture cannot both go to standard output: write a file".into()
            );
        }
        if !BUFFER.contains(&self.buffer.0) {
            return Err(format!("--buffer {} is out of range: choose 64K to 64M", self.buffer));
        }
        Ok(())
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.write.as_os_str() == "-"
    }
}

//! What one call sends.

use std::io::IoSlice;
use std::net::SocketAddr;

use crate::error::Error;

/// The most packets of one batch: what kernels before Linux 6.9 segment.
pub const MAX_SEGMENTS: usize = 64;

/// The most bytes of one batch over IPv4: what a UDP datagram holds.
pub const MAX_BYTES_V4: usize = 65_507;

/// The most bytes of one batch over IPv6: with its headers no more than over IPv4, so that no device's limit for
/// segmentation is met.
pub const MAX_BYTES_V6: usize = 65_487;

/// The most pieces of one batch: the kernel's limit for gathering (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 1024;

/// Packets of one size to one destination, gathered from pieces of memory.
///
/// The pieces follow each other; a packet ends after each `segment` bytes, wherever that is in a piece, and the last
/// one may be shorter. The packet with index i is the one whose ICRC is computed with identification i, as long as
/// [`crate::Socket::gso`] is on.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Where the packets go.
    pub destination: SocketAddr,
    /// The IPv4 type of service or IPv6 traffic class: six bits of DSCP, two of ECN.
    pub tos: u8,
    /// The time to live or hop limit; `None` leaves it to the system.
    pub hop_limit: Option<u8>,
    /// UDP payload bytes of each packet.
    pub segment: usize,
    /// The bytes.
    pub pieces: &'a [IoSlice<'a>],
}

impl Batch<'_> {
    /// All bytes of the batch.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// How many packets it makes. An empty batch is one packet without payload.
    #[inline]
    pub fn packets(&self) -> usize {
        self.bytes().div_ceil(self.segment.max(1)).max(1)
    }

    /// The batch's bytes, after seeing that a socket of this family can send it at all.
    #[inline]
    pub(crate) fn fits(&self, ipv6: bool) -> Result<usize, Error> {
        if self.destination.is_ipv6() != ipv6 {
            return Err(Error::Unfit(
                "the destination is of another address family than the socket",
            ));
        }
        let bytes = self.bytes();
        if bytes > if ipv6 { MAX_BYTES_V6 } else { MAX_BYTES_V4 } {
            return Err(Error::Unfit("a batch holds more bytes than a UDP datagram can"));
        }
        if self.segment == 0 || bytes > self.segment.saturating_mul(MAX_SEGMENTS) {
            return Err(Error::Unfit("a batch has between 1 and 64 packets"));
        }
        if self.pieces.len() > MAX_PIECES {
            return Err(Error::Unfit("a batch is gathered from at most 1024 pieces"));
        }
        Ok(bytes)
    }
}

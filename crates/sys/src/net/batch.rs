//! The argument of [`Socket::send`](crate::Socket::send): packets to one destination.

use std::io::IoSlice;
use std::net::SocketAddr;

use crate::error::Error;

/// Maximum packets of one batch: the segmentation limit of kernels before Linux 6.9.
pub const MAX_SEGMENTS: usize = 64;

/// Maximum bytes of one batch over IPv4: the payload of a UDP datagram.
pub const MAX_BYTES_V4: usize = 65_507;

/// Maximum bytes of one batch over IPv6: with its headers no more than over IPv4, so that no device's segmentation limit
/// is exceeded.
pub const MAX_BYTES_V6: usize = 65_487;

/// Maximum pieces of one batch: the kernel's limit for gathering (`UIO_MAXIOV`).
pub const MAX_PIECES: usize = 1024;

/// Packets of one size to one destination, gathered from pieces of memory.
///
/// The pieces are concatenated; a packet ends after each `segment` bytes, wherever that is in a piece, and the last one
/// may be shorter. The ICRC of the packet with index i is computed with identification i as long as
/// [`crate::Socket::gso`] is on.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The destination.
    pub destination: SocketAddr,
    /// The IPv4 type of service or IPv6 traffic class: six bits of DSCP, two of ECN.
    pub tos: u8,
    /// The time to live or hop limit; `None` for the system's default.
    pub hop_limit: Option<u8>,
    /// UDP payload bytes of each packet.
    pub segment: usize,
    /// The bytes.
    pub pieces: &'a [IoSlice<'a>],
}

impl Batch<'_> {
    /// Bytes of all packets.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// The number of packets. An empty batch is one packet without payload.
    #[inline]
    pub fn packets(&self) -> usize {
        self.bytes().div_ceil(self.segment.max(1)).max(1)
    }

    /// Checks that a socket of this family can send the batch, and returns its bytes.
    #[inline]
    pub(crate) fn check(&self, ipv6: bool) -> Result<usize, Error> {
        if self.destination.is_ipv6() != ipv6 {
            return Err(Error::Invalid("the destination and the socket differ in address family"));
        }
        let bytes = self.bytes();
        if bytes > if ipv6 { MAX_BYTES_V6 } else { MAX_BYTES_V4 } {
            return Err(Error::Invalid("a batch must not exceed the size of a UDP datagram"));
        }
        if self.segment == 0 || bytes > self.segment.saturating_mul(MAX_SEGMENTS) {
            return Err(Error::Invalid("a batch must have between 1 and 64 packets"));
        }
        if self.pieces.len() > MAX_PIECES {
            return Err(Error::Invalid("a batch must not have more than 1024 pieces"));
        }
        Ok(bytes)
    }
}

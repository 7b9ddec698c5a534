//! The buffer into which records are copied out of their rings.

use std::net::SocketAddr;

use ferroce_device::{Object, Refusal, destination, receive_fast};
use ferroce_proto::time::Instant;
use ferroce_sys::ring::{Broken, Taken};
use ferroce_sys::{Incoming, RxInfo, record_header};
use ferroce_wire::packet::{ICRC_LEN as ICRC, Packet};
use ferroce_wire::transport::{Bth, Reth};
use ferroce_wire::udp_headers::Headers;

use super::aggregate;
use super::route::{INFO, MAX_RECORD};
use crate::embedder::Embedder;
use crate::packet::{MAX_PACKET, write_icrc};

/// The path MTU of captured packets whose QP does not exist.
const MAX_MTU: u16 = 4096;

/// The buffer into which records are copied out of their rings.
#[derive(Debug)]
pub(super) struct RecordBuffer {
    /// The last record.
    pub(super) bytes: Box<[u8]>,
    /// The metadata of the last record: that of the next is often the same.
    last: Option<Metadata>,
    /// Packets and bytes to add to the counters of the device.
    uncounted: (u32, usize),
}

/// The parsed metadata of a record.
#[derive(Debug)]
pub(super) struct Metadata {
    /// As encoded in the ring.
    pub(super) bytes: [u8; INFO],
    pub(super) info: RxInfo,
    pub(super) headers: Headers,
}

impl Metadata {
    /// Both addresses must be local: a process on this host cannot send from the address of another host, whatever it writes.
    fn parse<H: Embedder>(bytes: &[u8; INFO], host: &H) -> Option<Self> {
        let info = record_header::decode(bytes);
        let addresses = host.addresses();
        if !addresses.is_here(info.source.ip()) || !addresses.is_here(info.destination) {
            return None;
        }
        let destination = SocketAddr::new(info.destination, addresses.port());
        Some(Self { bytes: *bytes, info, headers: Headers { source: info.source, destination } })
    }
}

impl Default for RecordBuffer {
    fn default() -> Self {
        Self { bytes: vec![0; MAX_RECORD].into(), last: None, uncounted: (0, 0) }
    }
}

impl RecordBuffer {
    /// Takes the next record from a ring. The payload of a long one stays in the ring.
    pub(super) fn take<'a>(&mut self, ring: &'a Incoming) -> Result<Option<Taken<'a>>, Broken> {
        ring.consumer.take_start(&mut self.bytes, INFO + MAX_PACKET, INFO + Bth::LEN + Reth::LEN)
    }

    /// Copies the rest of a record of which only the start was copied.
    #[inline]
    pub(super) fn complete(&mut self, taken: &Taken<'_>) {
        if taken.copied < taken.length {
            taken.rest().copy_to(&mut self.bytes[taken.copied..taken.length]);
        }
    }

    /// The number of packets in the record of this length, according to its first header.
    #[inline]
    pub(super) fn packets(&self, length: usize, mtu: u16) -> u32 {
        let behind = length.saturating_sub(INFO + Bth::LEN);
        if aggregate::is_single(behind, mtu) {
            return 1;
        }
        let header = self.bytes.get(INFO..).and_then(<[u8]>::first_chunk);
        header
            .map(Bth::parse)
            .map_or(1, |bth| aggregate::packets(&bth, aggregate::payload(&bth, behind), mtu))
    }

    /// The metadata of the record of this length, and its packet or aggregate. If the metadata is malformed, counts that and
    /// returns `None`.
    #[inline]
    pub(super) fn packet<H: Embedder>(
        &mut self,
        host: &H,
        length: usize,
    ) -> Option<(&Metadata, &mut [u8])> {
        let Self { bytes, last, .. } = self;
        let found = bytes[..length].split_first_chunk_mut::<INFO>().and_then(|(info, packet)| {
            if last.as_ref().is_none_or(|last| last.bytes != *info) {
                *last = Metadata::parse(info, host);
            }
            Some((last.as_ref()?, packet))
        });
        if found.is_none() {
            host.refuse(Refusal::Malformed, None);
        }
        found
    }

    /// Calls `each` with the packets of a record, each with its ICRC: of the path MTU of its QP, or the largest if there is no such
    /// QP.
    #[cold]
    pub(super) fn each_packet<H: Embedder>(
        &mut self,
        host: &H,
        taken: &Taken<'_>,
        mut each: impl FnMut(&[u8], &Metadata),
    ) {
        self.complete(taken);
        let Some((metadata, bytes)) = self.packet(host, taken.length) else { return };
        let known = destination(bytes).and_then(|number| host.tables().queue_pair(number));
        let mtu = |handle: H::Handle| handle.state().lock().endpoint.path_mtu();
        let mtu = known.map_or(MAX_MTU, mtu);
        let packets = Packet::parse(bytes)
            .map_or(1, |one| aggregate::packets(&one.bth, one.payload_len, mtu));
        let mut each = |packet: &mut [u8]| {
            write_icrc(packet, &metadata.headers, 0);
            each(packet, metadata);
        };
        match packets {
            2.. => aggregate::split(bytes, mtu, each),
            _ => each(bytes),
        }
    }

    /// Handles a record of `length` bytes that was copied completely and is from the peer of an RC QP. Returns false, with no state
    /// changed, if the slow path has to handle it.
    #[inline]
    pub(super) fn receive_from_peer<H: Embedder>(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        length: usize,
        now: Instant,
    ) -> bool {
        let Some((info, packet)) = self.bytes[..length].split_first_chunk::<INFO>() else {
            return false;
        };
        let is_from_peer = H::peer_info(state).is_some_and(|known| is_same(&known, info));
        if !is_from_peer || !receive_fast(host, handle, state, packet, 1, now) {
            return false;
        }
        self.add(length - INFO);
        true
    }

    /// Counts a record for no QP of this process.
    pub(super) fn refuse<H: Embedder>(&mut self, host: &H, length: usize) {
        if length < INFO + Bth::LEN + ICRC {
            return host.refuse(Refusal::Malformed, None);
        }
        self.add(length - INFO);
        self.report(host);
        if let Some(packet) = self.bytes.get(INFO..).and_then(<[u8]>::first_chunk) {
            host.refuse(Refusal::UnknownQueuePair, Some(&Bth::parse(packet)));
        }
    }

    /// A packet of this length was received.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.uncounted.0 += 1;
        self.uncounted.1 += bytes;
    }

    /// Adds what was received to the counters of the device.
    #[inline]
    pub(super) fn report<H: Embedder>(&mut self, host: &H) {
        let (packets, bytes) = std::mem::take(&mut self.uncounted);
        if packets > 0 {
            host.received_from_ring(packets, bytes);
        }
    }
}

/// Compares word by word, inline: comparing arrays would call a function. The last word overlaps the one before it.
#[inline(always)]
fn is_same(one: &[u8; INFO], other: &[u8; INFO]) -> bool {
    const { assert!(32 < INFO && INFO <= 40) };
    let differences = |at| word(one, at) ^ word(other, at);
    let first = differences(0) | differences(8) | differences(16) | differences(24);
    first | differences(INFO - 8) == 0
}

#[inline(always)]
fn word(bytes: &[u8; INFO], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

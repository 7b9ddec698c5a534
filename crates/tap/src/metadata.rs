//! The metadata of a packet, which its sender or receiver passes with its bytes.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock};

use ferroce_proto::work::WorkId;
use ferroce_trace::file::Direction;
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

/// The owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The QP.
    pub queue_pair: Qpn,
    /// The work request, if known.
    pub work: Option<WorkId>,
}

/// The metadata of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketMetadata {
    pub(super) direction: Direction,
    pub(super) headers: Headers,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) identification: Identification,
    pub(super) owner: Owner,
    /// Whether it arrived with a wrong ICRC.
    pub(super) corrupted: bool,
}

/// The hop limit of packets whose route sets none, and of those whose hop limit the socket did not report: Linux's default
/// (`net.ipv4.ip_default_ttl`).
const DEFAULT_HOP_LIMIT: u8 = 64;

impl PacketMetadata {
    /// The metadata of a packet that this device sends, at an index of its batch; 0 where batches are not segmented.
    pub fn sent(
        headers: Headers,
        traffic_class: u8,
        hop_limit: Option<u8>,
        index: u16,
        owner: Owner,
    ) -> Self {
        Self {
            direction: Direction::Outbound,
            headers,
            traffic_class,
            hop_limit: hop_limit.unwrap_or(DEFAULT_HOP_LIMIT),
            identification: Identification::of_segment(index),
            owner,
            corrupted: false,
        }
    }

    /// The metadata of a packet that this device has received, with a correct ICRC.
    pub fn received(
        headers: Headers,
        traffic_class: u8,
        hop_limit: Option<u8>,
        identification: Identification,
        owner: Owner,
    ) -> Self {
        let sent = Self::sent(headers, traffic_class, hop_limit, 0, owner);
        Self { direction: Direction::Inbound, identification, ..sent }
    }

    /// The same packet, which arrived with a wrong ICRC.
    pub fn corrupted(self) -> Self {
        Self { corrupted: true, ..self }
    }
}

/// The addresses that captured processes send from. A packet is recorded once, by its sender, and by its receiver as well only if it
/// was corrupted on its way.
#[derive(Debug, Default)]
pub(super) struct Sources(RwLock<HashSet<(IpAddr, u16)>>);

impl Sources {
    pub(super) fn set(&self, source: SocketAddr, is_captured: bool) {
        let mut sources = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let source = (source.ip(), source.port());
        let _ = if is_captured { sources.insert(source) } else { sources.remove(&source) };
    }

    /// Whether the sender of this packet records it, so that its receiver does not.
    pub(super) fn record(&self, metadata: &PacketMetadata) -> bool {
        let PacketMetadata { direction, corrupted, headers: Headers { source, .. }, .. } = metadata;
        let sources = || self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_received = *direction == Direction::Inbound && !corrupted;
        is_received && sources().contains(&(source.ip(), source.port()))
    }
}

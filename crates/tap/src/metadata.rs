//! The metadata of a packet, which its sender or receiver passes with its bytes.

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

    /// Whether the record of its sender, if there is one, shows all there is to see.
    pub(super) fn is_known_to_sender(&self) -> bool {
        self.direction == Direction::Inbound && !self.corrupted
    }
}

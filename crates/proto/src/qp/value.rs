//! Structured attribute values.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::AckTimeout;

/// Largest timeout code: five bits (IBA 9.7.6.1.3).
const MAX_TIMEOUT_CODE: u8 = 31;

/// Whether the timeout code fits five bits.
pub(super) const fn timeout_fits(timeout: &AckTimeout) -> bool {
    timeout.0 <= MAX_TIMEOUT_CODE
}

/// The path of a connected QP (IBA 11.2.2.1). RoCE uses GIDs only, no LIDs (IBA A17).
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// The egress port, from 1.
    pub port: u8,
    /// Index of the source GID in the port's table.
    pub source_index: u8,
    /// The destination.
    pub destination: Gid,
    /// The 20-bit flow label; the UDP source port is derived from it.
    pub flow_label: u32,
    /// IP traffic class or type of service.
    pub traffic_class: u8,
    /// IP hop limit or time to live.
    pub hop_limit: u8,
    /// The 4-bit service level.
    pub service_level: u8,
}

impl AddressVector {
    /// Whether all fields fit their wire widths, and the port number is not 0.
    pub(super) const fn fits(&self) -> bool {
        self.port != 0 && self.flow_label < 1 << 20 && self.service_level < 16
    }
}

/// An alternate path for APM (IBA 17.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlternatePath {
    /// The path.
    pub path: AddressVector,
    /// P_Key index.
    pub partition: u16,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
}

impl AlternatePath {
    /// Whether all fields fit their wire widths.
    pub(super) const fn fits(&self) -> bool {
        self.path.fits() && timeout_fits(&self.timeout)
    }
}

/// Path migration state (IBA 17.2.8).
#[doc(alias = "ibv_mig_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Migration {
    /// On the primary path, without an alternate path.
    Migrated,
    /// A new alternate path is loaded and waits for the peer.
    Rearm,
    /// Both sides can migrate.
    Armed,
}

/// Queue sizes of a QP.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Work requests in the send queue.
    pub max_send_wr: u32,
    /// Work requests in the receive queue.
    pub max_recv_wr: u32,
    /// SGEs of a send.
    pub max_send_sge: u32,
    /// SGEs of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

//! The values of attributes that are more than a number.

use ferroce_wire::address::Gid;
use ferroce_wire::cm::AckTimeout;

/// Five bits: all codes of times (IBA 9.7.6.1.3).
const LONGEST_TIMEOUT: u8 = 31;

/// Whether the code of a time fits its five bits.
pub(super) const fn timeout_fits(timeout: &AckTimeout) -> bool {
    timeout.0 <= LONGEST_TIMEOUT
}

/// Where a connected queue pair sends (IBA 11.2.2.1). RoCE's addresses are global: there is no LID (IBA A17).
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// The port it leaves by, from 1.
    pub port: u8,
    /// Which of the port's GIDs is the source.
    pub source_index: u8,
    /// The destination.
    pub destination: Gid,
    /// 20 bits that name the flow; RoCEv2's source port is made from it.
    pub flow_label: u32,
    /// IP's traffic class, or type of service.
    pub traffic_class: u8,
    /// IP's hop limit, or time to live.
    pub hop_limit: u8,
    /// Four bits of service level.
    pub service_level: u8,
}

impl AddressVector {
    /// Whether all fields fit theirs on the wire, and the port exists at all.
    pub(super) const fn fits(&self) -> bool {
        self.port != 0 && self.flow_label < 1 << 20 && self.service_level < 16
    }
}

/// A second path, for the device to migrate to (IBA 17.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlternatePath {
    /// Where it goes.
    pub path: AddressVector,
    /// Its partition, by index.
    pub partition: u16,
    /// Its own local ACK timeout.
    pub timeout: AckTimeout,
}

impl AlternatePath {
    /// Whether all fields fit theirs.
    pub(super) const fn fits(&self) -> bool {
        self.path.fits() && timeout_fits(&self.timeout)
    }
}

/// Where a connection stands with its alternate path (IBA 17.2.8).
#[doc(alias = "ibv_mig_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Migration {
    /// On the primary path, with no other to go to.
    Migrated,
    /// A new alternate path is loaded and wants the peer's consent.
    Rearm,
    /// Both sides can migrate.
    Armed,
}

/// The sizes of a queue pair's queues.
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

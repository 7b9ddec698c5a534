//! Devices: one for each network interface with an IP address; and their limits.
//!
//! The first device carries the loopback addresses, as Linux binds them to an existing RDMA device
//! (`cma_bind_loopback`). The loopback interface is a device of its own if there is no other, or if `FERROCE_DEVICES`
//! names it.

mod listing;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce_proto::qp::PathMtu;
use ferroce_sys::interface::{Address, Interface};
use ferroce_wire::address::Gid;

use crate::error::OpenError;
pub use listing::{Names, NotNames, devices};

/// An RDMA device: a network interface with an IP address. It uses no socket and no thread until it is opened.
///
/// ```
/// use ferroce::{Context, Device, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // By an address of this host; the index says which entry of the GID table to send from. The loopback addresses belong to
/// // the first device.
/// let (device, gid_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// assert_eq!(device, ferroce::devices()?[0]);
/// assert!(usize::from(gid_index) < device.gids().len());
///
/// // By the name of the interface, or of the device.
/// assert_eq!(Device::named("lo")?.name(), "ferroce_lo");
///
/// let context = Context::open(&device, &Options::default())?;
/// assert!(context.limits().max_qp > 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    interface: Interface,
    /// Loopback addresses that the device carries. They are not in its GID table, where programs look for an address to
    /// send to other hosts.
    pub(crate) loopback: Vec<Address>,
}

/// An entry of the GID table: an IP address of the interface (IBA A17.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
#[non_exhaustive]
pub struct GidEntry {
    /// The address as a GID: an IPv4 address is mapped into IPv6.
    pub gid: Gid,
    /// The address, with its scope and UDP port 4791.
    pub address: SocketAddr,
}

impl Device {
    /// Returns all addresses of the device: those of its GID table, in that order, then loopback addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.interface.addresses.iter().chain(&self.loopback)
    }

    /// Returns the device without an address that cannot be used yet: an IPv6 address is tentative until duplicate address
    /// detection has finished (RFC 4862).
    pub(crate) fn without(mut self, address: IpAddr) -> Self {
        self.interface.addresses.retain(|own| own.ip != address);
        self.loopback.retain(|own| own.ip != address);
        self
    }

    /// Returns the name: `ferroce_` and the interface's name, unless `FERROCE_NAME` sets another.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the network interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    pub(crate) fn capture_interface(&self) -> ferroce_tap::Interface {
        let interface = &self.interface;
        let mac = if interface.loopback { Some([0; 6]) } else { interface.mac };
        ferroce_tap::Interface { name: self.name.clone(), network: interface.name.clone(), mac }
    }

    /// Returns the GID table.
    pub fn gids(&self) -> Vec<GidEntry> {
        let entry = |own: &Address| {
            let address = own.with_port(ferroce_sys::ROCE_PORT);
            GidEntry { gid: Gid::from_ip(own.ip), address }
        };
        self.interface.addresses.iter().map(entry).collect()
    }

    /// Returns the LID: 0, as on any Ethernet device; 1 on the loopback, for programs that address each other by LID only.
    pub fn lid(&self) -> u16 {
        self.interface.loopback.into()
    }

    /// Returns the limits.
    #[doc(alias = "ibv_query_device")]
    pub fn limits(&self) -> Limits {
        let gids = u16::try_from(self.interface.addresses.len()).unwrap_or(u16::MAX);
        Limits {
            max_qp: 65_520,
            max_qp_wr: 1 << 20,
            max_sge: 32,
            max_inline_data: Limits::MAX_INLINE_DATA,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 1 << 20,
            max_mr_size: u64::MAX,
            max_pd: 1 << 20,
            max_rd_atomic: 128,
            max_srq: 65_520,
            max_mcast_grp: 256,
            gid_tbl_len: gids.max(MIN_GID_TABLE_LEN),
        }
    }

    /// Returns the node GUID: the EUI-64 of the MAC address, or of the interface index if there is none.
    pub fn guid(&self) -> u64 {
        let mac = self.interface.mac.filter(|mac| *mac != [0; 6]);
        let mac = mac.unwrap_or_else(|| {
            let [a, b, c, d] = self.interface.index.to_be_bytes();
            [0x02, 0, a, b, c, d]
        });
        u64::from_be_bytes([mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]])
    }

    /// Returns the largest path MTU that the interface carries in packets of all its address families.
    ///
    /// # Errors
    ///
    /// [`OpenError::MtuTooSmall`].
    pub fn mtu(&self) -> Result<PathMtu, OpenError> {
        let ipv6 = self.interface.addresses.iter().any(|own| own.ip.is_ipv6());
        let bytes = self.interface.roce_mtu(ipv6).or(self.interface.roce_mtu(false));
        bytes.and_then(|bytes| PathMtu::from_bytes(usize::from(bytes))).ok_or_else(|| {
            OpenError::MtuTooSmall {
                interface: self.interface.name.clone(),
                mtu: self.interface.mtu,
            }
        })
    }
}

/// The limits of a device. They follow from the wire format and from memory, not from hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_device_attr")]
#[non_exhaustive]
pub struct Limits {
    /// Queue pairs (QP) of a process.
    pub max_qp: u32,
    /// Work requests (WR) of a queue.
    pub max_qp_wr: u32,
    /// SGEs of a work request.
    pub max_sge: u32,
    /// Bytes of inline data of a work request.
    pub max_inline_data: u32,
    /// Completion queues (CQ).
    pub max_cq: u32,
    /// Entries (CQE) of a completion queue.
    pub max_cqe: u32,
    /// Memory regions (MR) and windows (MW).
    pub max_mr: u32,
    /// Bytes of a memory region.
    pub max_mr_size: u64,
    /// Protection domains (PD).
    pub max_pd: u32,
    /// Outstanding READs and atomics of a queue pair, in each direction.
    pub max_rd_atomic: u8,
    /// Shared receive queues (SRQ).
    pub max_srq: u32,
    /// Multicast groups of a queue pair.
    pub max_mcast_grp: u32,
    /// Entries of the GID table; unused ones are empty.
    pub gid_tbl_len: u16,
}

/// The smallest GID table: most devices have more entries than their interface has addresses.
const MIN_GID_TABLE_LEN: u16 = 128;

impl Limits {
    /// Maximum inline data of a work request, for any device and queue pair.
    pub const MAX_INLINE_DATA: u32 = 1024;
}

/// Returns the position of an address among those of a device.
pub(crate) fn position(mut own: impl Iterator<Item = IpAddr>, wanted: IpAddr) -> Option<u8> {
    own.position(|own| own == own_name(wanted)).and_then(|index| u8::try_from(index).ok())
}

/// Maps 127.0.1.1, which Debian's `/etc/hosts` has for the host's name and no interface has, to 127.0.0.1.
pub(crate) fn own_name(ip: IpAddr) -> IpAddr {
    const DEBIAN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));
    if ip == DEBIAN { Ipv4Addr::LOCALHOST.into() } else { ip }
}

/// Whether an address belongs to this host: the kernel chooses it as the source for itself.
pub(crate) fn is_own(address: SocketAddr) -> bool {
    let ip = address.ip();
    ip.is_loopback() || ferroce_sys::route::source_for(address).is_ok_and(|own| own.ip() == ip)
}

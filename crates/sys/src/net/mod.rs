//! Sockets: those that carry RoCEv2, those by which the processes of one address cooperate, and netlink.

pub(crate) mod address;
pub mod batch;
pub mod capture_link;
mod control;
pub(crate) mod device_fd;
pub mod forward_header;
pub(crate) mod hub;
mod icmp_error;
pub mod interface;
pub(crate) mod mailbox;
mod multicast;
pub mod neighbour;
mod netlink;
pub(crate) mod netlink_monitor;
pub(crate) mod options;
pub mod packet_socket;
mod peer_socket;
pub(crate) mod process_watch;
pub(crate) mod receive;
pub mod record_header;
pub mod route;
mod send;
pub(crate) mod slot;
pub(crate) mod socket;
mod start_lock;
pub mod steering;
pub mod tcp;
#[cfg(test)]
mod tests;
pub(crate) mod udp;
mod unix_diag;
mod unix_name;

/// The UDP destination port of RoCEv2, registered with IANA (IBA A17.3.1.1).
pub const ROCE_PORT: u16 = 4791;

/// The UDP source ports of RoCEv2 packets: the dynamic range, whose 14 bits spread connections over equal-cost paths
/// (IBA A17.3.1.1).
pub const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;

//! Errors, worded for users: what happened, why, and what to do about it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::net::slot::SLOTS;
use crate::syscall::errno;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The port is in use by a program that does not share it.
    #[error(
        "cannot bind UDP port {port} of {ip}: it is in use by a program, or another user's process, that does not share \
         it; `ss -ulpn 'sport = :{port}'` shows which (a kernel RoCE device, rdma_rxe, shows no process: `rdma link` lists \
         it)", port = address.port(), ip = address.ip()
    )]
    PortTaken {
        /// The address to bind.
        address: SocketAddr,
    },
    /// Every source port of the range is in use on this address.
    #[error(
        "all source ports of {address} from 49152 to 65535 are in use; `ss -uan` lists the sockets"
    )]
    NoSourcePort {
        /// The address to bind.
        address: IpAddr,
    },
    /// No local interface has the address.
    #[error("no interface of this machine has the address {address}{}", remedy(address))]
    AddressNotLocal {
        /// The address to bind.
        address: IpAddr,
    },
    /// The kernel does not support IPv6, or it is disabled.
    #[error(
        "the kernel does not support IPv6, or it is disabled (`sysctl net.ipv6.conf.all.disable_ipv6`); use an IPv4 address"
    )]
    NoIpv6,
    /// The operating system denied permission.
    #[error(
        "not allowed to {action}: {source}; a firewall rule, a container's policy or a missing capability forbids it"
    )]
    Denied {
        /// The action that failed.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process has reached its limit of open files.
    #[error("cannot {action}: too many open files; raise the limit with `ulimit -n`")]
    TooManyFiles {
        /// The action that failed.
        action: &'static str,
    },
    /// The kernel is out of memory for sockets. The packets were not sent; retry later.
    #[error(
        "cannot {action}: the kernel has no memory left for it; retry, and if it persists check \
         `sysctl net.core.optmem_max net.ipv4.udp_mem`"
    )]
    NoMemory {
        /// The action that failed.
        action: &'static str,
    },
    /// All slots of an address are claimed.
    #[error(
        "cannot open a device at {address}: {SLOTS} processes have it open, the most for one address; end some of them, or \
         use an interface with another address"
    )]
    NoFreeSlot {
        /// The address.
        address: SocketAddr,
    },
    /// The service already has a listener.
    #[error("service {service:#018x} of {address} already has a listener")]
    ServiceTaken {
        /// The address it listens on.
        address: SocketAddr,
        /// The service identifier.
        service: u64,
    },
    /// No process owns the slot or service that a packet was forwarded to.
    #[error("no process owns the queue pair or the service of this packet")]
    NoOwner,
    /// The mailbox of the owner is full, so the packet is dropped.
    #[error("the process that owns this packet's queue pair does not keep up: packet dropped")]
    OwnerBusy,
    /// The rate limit for owner look-ups is exceeded, so the packet is dropped.
    #[error("too many packets for unknown queue pairs or services: packet dropped")]
    TooManyLookups,
    /// The kernel does not segment for this destination. Call [`crate::Socket::disable_gso`], compute the ICRCs again
    /// with identification 0, and resend.
    #[error(
        "the kernel does not segment packets for this destination: send them one by one, with identification 0"
    )]
    GsoRefused,
    /// The packet exceeds the path MTU.
    #[error(
        "a packet of {length} bytes exceeds the path MTU to {destination}{}; use a smaller RoCE MTU, or raise the \
         interfaces' MTU (`ip link set dev … mtu …`)",
        path_mtu.map_or(String::new(), |mtu| format!(" ({mtu} bytes with the IP header)"))
    )]
    TooLong {
        /// Bytes of UDP payload in the packet.
        length: usize,
        /// The destination.
        destination: SocketAddr,
        /// The path MTU, IP header included, as far as the kernel knows.
        path_mtu: Option<u32>,
    },
    /// There is no route to the destination.
    #[error("no route to {destination}: {source}; `ip route get {}` shows the route", destination.ip())]
    Unreachable {
        /// The destination.
        destination: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The arguments can never succeed; the text explains why.
    #[error("{0}")]
    Invalid(&'static str),
    /// Any other error.
    #[error("cannot {action}: {source}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// The corresponding error number.
    pub fn errno(&self) -> i32 {
        match self {
            Self::PortTaken { .. } | Self::NoSourcePort { .. } | Self::ServiceTaken { .. } => {
                libc::EADDRINUSE
            }
            Self::AddressNotLocal { .. } => libc::EADDRNOTAVAIL,
            Self::NoIpv6 => libc::EAFNOSUPPORT,
            Self::TooManyFiles { .. } => libc::EMFILE,
            Self::NoMemory { .. } | Self::NoFreeSlot { .. } => libc::ENOMEM,
            Self::NoOwner => libc::ECONNREFUSED,
            Self::OwnerBusy | Self::TooManyLookups => libc::EAGAIN,
            Self::GsoRefused => libc::EIO,
            Self::TooLong { .. } => libc::EMSGSIZE,
            Self::Invalid(_) => libc::EINVAL,
            Self::Denied { source, .. }
            | Self::Unreachable { source, .. }
            | Self::System { source, .. } => errno(source),
        }
    }

    /// Whether no later call can succeed either: the program has closed the descriptor, or replaced it.
    pub fn is_fatal(&self) -> bool {
        matches!(self.errno(), libc::EBADF | libc::ENOTSOCK)
    }

    /// Classifies an error of the operating system.
    pub(crate) fn system(action: &'static str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        match errno(&error) {
            libc::EPERM | libc::EACCES => Self::Denied { action, source: error },
            libc::EMFILE | libc::ENFILE => Self::TooManyFiles { action },
            libc::ENOMEM | libc::ENOBUFS => Self::NoMemory { action },
            _ => Self::System { action, source: error },
        }
    }

    /// Classifies an error of opening a socket for this address.
    pub(crate) fn open(address: SocketAddr, error: io::Error) -> Self {
        match errno(&error) {
            libc::EAFNOSUPPORT if address.is_ipv6() => Self::NoIpv6,
            _ => Self::system("open a UDP socket", error),
        }
    }

    /// Classifies an error of binding a socket to this address.
    pub(crate) fn bind(address: SocketAddr, error: io::Error) -> Self {
        match errno(&error) {
            libc::EADDRINUSE => Self::PortTaken { address },
            libc::EADDRNOTAVAIL => Self::AddressNotLocal { address: address.ip() },
            _ => Self::system("bind a UDP socket", error),
        }
    }
}

/// What to do about an address that no interface has.
fn remedy(address: &IpAddr) -> &'static str {
    match address.is_loopback() {
        true => ": the loopback interface is down or not configured; `ip link set lo up` does both",
        false => "; `ip address` lists the local addresses",
    }
}

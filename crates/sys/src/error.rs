//! Errors, worded for users: what happened, why, and what to do about it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::net::slot::SLOTS;
use crate::syscall::errno;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The port is in use by a program that does not share it.
    PortTaken {
        /// The address to bind.
        address: SocketAddr,
    },
    /// Every source port of the range is in use on this address.
    NoSourcePort {
        /// The address to bind.
        address: IpAddr,
    },
    /// No local interface has the address.
    AddressNotLocal {
        /// The address to bind.
        address: IpAddr,
    },
    /// The kernel does not support IPv6, or it is disabled.
    NoIpv6,
    /// The operating system denied permission.
    Denied {
        /// The action that failed.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process has reached its limit of open files.
    TooManyFiles {
        /// The action that failed.
        action: &'static str,
    },
    /// The kernel is out of memory for sockets. The packets were not sent; retry later.
    NoMemory {
        /// The action that failed.
        action: &'static str,
    },
    /// All slots of an address are claimed.
    NoFreeSlot {
        /// The address.
        address: SocketAddr,
    },
    /// The service already has a listener.
    ServiceTaken {
        /// The address it listens on.
        address: SocketAddr,
        /// The service identifier.
        service: u64,
    },
    /// No process owns the slot or service that a packet was forwarded to.
    NoOwner,
    /// The mailbox of the owner is full, so the packet is dropped.
    OwnerBusy,
    /// The rate limit for owner look-ups is exceeded, so the packet is dropped.
    TooManyLookups,
    /// The kernel does not segment for this destination. Call [`crate::Socket::disable_gso`], compute the ICRCs again
    /// with identification 0, and resend.
    GsoRefused,
    /// The packet exceeds the path MTU.
    TooLong {
        /// Bytes of UDP payload in the packet.
        length: usize,
        /// The destination.
        destination: SocketAddr,
        /// The path MTU, IP header included, as far as the kernel knows.
        path_mtu: Option<u32>,
    },
    /// There is no route to the destination.
    Unreachable {
        /// The destination.
        destination: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The arguments can never succeed; the text explains why.
    Invalid(&'static str),
    /// Any other error.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortTaken { address } => write!(
                f,
                "cannot bind UDP port {port} of {ip}: it is in use by a program, or another user's \
                 process, that does not share it; `ss -ulpn 'sport = :{port}'` shows which (a kernel \
                 RoCE device, rdma_rxe, shows no process: `rdma link` lists it)",
                port = address.port(),
                ip = address.ip(),
            ),
            Self::NoSourcePort { address } => write!(
                f,
                "all source ports of {address} from 49152 to 65535 are in use; `ss -uan` lists the \
                 sockets"
            ),
            Self::AddressNotLocal { address } if address.is_loopback() => write!(
                f,
                "no interface of this machine has the address {address}: the loopback interface is \
                 down or not configured; `ip link set lo up` does both"
            ),
            Self::AddressNotLocal { address } => write!(
                f,
                "no interface of this machine has the address {address}; `ip address` lists the \
                 local addresses"
            ),
            Self::NoIpv6 => f.write_str(
                "the kernel does not support IPv6, or it is disabled \
                 (`sysctl net.ipv6.conf.all.disable_ipv6`); use an IPv4 address",
            ),
            Self::Denied { action, source } => write!(
                f,
                "not allowed to {action}: {source}; a firewall rule, a container's policy or a \
                 missing capability forbids it"
            ),
            Self::TooManyFiles { action } => {
                write!(f, "cannot {action}: too many open files; raise the limit with `ulimit -n`")
            }
            Self::NoMemory { action } => write!(
                f,
                "cannot {action}: the kernel has no memory left for it; retry, and if it persists \
                 check `sysctl net.core.optmem_max net.ipv4.udp_mem`"
            ),
            Self::NoFreeSlot { address } => {
                write!(
                    f,
                    "cannot open a device at {address}: {SLOTS} processes have it open, the most for one address; end some \
                     of them, or use an interface with another address"
                )
            }
            Self::ServiceTaken { address, service } => {
                write!(f, "service {service:#018x} of {address} already has a listener")
            }
            Self::NoOwner => {
                f.write_str("no process owns the queue pair or the service of this packet")
            }
            Self::OwnerBusy => f.write_str(
                "the process that owns this packet's queue pair does not keep up: packet dropped",
            ),
            Self::TooManyLookups => {
                f.write_str("too many packets for unknown queue pairs or services: packet dropped")
            }
            Self::GsoRefused => f.write_str(
                "the kernel does not segment packets for this destination: send them one by one, \
                 with identification 0",
            ),
            Self::TooLong { length, destination, path_mtu } => {
                write!(f, "a packet of {length} bytes exceeds the path MTU to {destination}")?;
                if let Some(mtu) = path_mtu {
                    write!(f, " ({mtu} bytes with the IP header)")?;
                }
                f.write_str(
                    "; use a smaller RoCE MTU, or raise the interfaces' MTU (`ip link set dev … mtu …`)",
                )
            }
            Self::Unreachable { destination, source } => {
                let ip = destination.ip();
                write!(
                    f,
                    "no route to {destination}: {source}; `ip route get {ip}` shows the route"
                )
            }
            Self::Invalid(what) => f.write_str(what),
            Self::System { action, source } => write!(f, "cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Denied { source, .. }
            | Self::Unreachable { source, .. }
            | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

//! What can go wrong, told to a person: what happened, and what can be done about it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::net::slot::SLOTS;
use crate::syscall::errno;

/// Why a call failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The port belongs to a program that does not share it.
    PortTaken {
        /// What we wanted to bind.
        address: SocketAddr,
    },
    /// Every source port of the range is in use on this address.
    NoSourcePort {
        /// The address whose ports are gone.
        address: IpAddr,
    },
    /// No interface of this machine has the address.
    AddressNotOurs {
        /// What we wanted to bind.
        address: IpAddr,
    },
    /// The kernel has no IPv6, or it is switched off.
    NoIpv6,
    /// The operating system forbids it.
    Denied {
        /// What we wanted to do.
        action: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The process has as many files and sockets open as it may.
    TooManyFiles {
        /// What we wanted to do.
        action: &'static str,
    },
    /// The kernel has no memory for it now. The packets were not sent: trying again later is all there is to do.
    NoMemory {
        /// What we wanted to do.
        action: &'static str,
    },
    /// All slots of an address are claimed.
    NoFreeSlot {
        /// The address.
        address: SocketAddr,
    },
    /// Another listener has this service.
    ServiceTaken {
        /// The address it listens on.
        address: SocketAddr,
        /// The service identifier.
        service: u64,
    },
    /// Nobody has the slot or the service that a packet was forwarded to.
    NoOwner,
    /// The owner of the slot or service has not taken what it was forwarded before, so this packet is dropped.
    OwnerBusy,
    /// The owner of a slot or service was looked for too often in a short time, so this packet is dropped.
    TooManyLookups,
    /// The kernel will not segment for this destination. Call [`crate::Socket::disable_gso`], compute the ICRCs anew
    /// with identification 0, and send again.
    GsoRefused,
    /// The packet does not fit on the path.
    TooLong {
        /// Bytes of UDP payload in the packet.
        length: usize,
        /// Where it should have gone.
        destination: SocketAddr,
        /// What the path takes, IP header included, as far as the kernel knows.
        path_mtu: Option<u32>,
    },
    /// There is no way to the destination.
    Unreachable {
        /// Where it should have gone.
        destination: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// The caller asked for something that can never be sent; the text says what.
    Unfit(&'static str),
    /// Something else.
    System {
        /// What we wanted to do.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Error {
    /// The number that the operating system has for this.
    pub fn errno(&self) -> i32 {
        match self {
            Self::PortTaken { .. } | Self::NoSourcePort { .. } | Self::ServiceTaken { .. } => {
                libc::EADDRINUSE
            }
            Self::AddressNotOurs { .. } => libc::EADDRNOTAVAIL,
            Self::NoIpv6 => libc::EAFNOSUPPORT,
            Self::TooManyFiles { .. } => libc::EMFILE,
            Self::NoMemory { .. } | Self::NoFreeSlot { .. } => libc::ENOMEM,
            Self::NoOwner => libc::ECONNREFUSED,
            Self::OwnerBusy | Self::TooManyLookups => libc::EAGAIN,
            Self::GsoRefused => libc::EIO,
            Self::TooLong { .. } => libc::EMSGSIZE,
            Self::Unfit(_) => libc::EINVAL,
            Self::Denied { source, .. }
            | Self::Unreachable { source, .. }
            | Self::System { source, .. } => errno(source),
        }
    }

    /// An error of the operating system, by kind where the kind tells a person more.
    pub(crate) fn system(action: &'static str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        match errno(&error) {
            libc::EPERM | libc::EACCES => Self::Denied { action, source: error },
            libc::EMFILE | libc::ENFILE => Self::TooManyFiles { action },
            libc::ENOMEM | libc::ENOBUFS => Self::NoMemory { action },
            _ => Self::System { action, source: error },
        }
    }

    /// An error of opening a socket for this address.
    pub(crate) fn open(address: SocketAddr, error: io::Error) -> Self {
        match errno(&error) {
            libc::EAFNOSUPPORT if address.is_ipv6() => Self::NoIpv6,
            _ => Self::system("open a UDP socket", error),
        }
    }

    /// An error of binding a socket to this address.
    pub(crate) fn bind(address: SocketAddr, error: io::Error) -> Self {
        match errno(&error) {
            libc::EADDRINUSE => Self::PortTaken { address },
            libc::EADDRNOTAVAIL => Self::AddressNotOurs { address: address.ip() },
            _ => Self::system("bind a UDP socket", error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortTaken { address } => write!(
                f,
                "UDP port {port} of {ip} is taken by a program, or another user's process, that does \
                 not share it; `ss -ulpn 'sport = :{port}'` shows which (a kernel RoCE device, \
                 rdma_rxe, shows no process: `rdma link` lists it)",
                port = address.port(),
                ip = address.ip(),
            ),
            Self::NoSourcePort { address } => write!(
                f,
                "all source ports of {address} from 49152 to 65535 are in use; `ss -uan` shows by \
                 what"
            ),
            Self::AddressNotOurs { address } if address.is_loopback() => write!(
                f,
                "no interface of this machine has the address {address}: the loopback is down, or not \
                 set up; `ip link set lo up` does both"
            ),
            Self::AddressNotOurs { address } => write!(
                f,
                "no interface of this machine has the address {address}; `ip address` lists those \
                 there are"
            ),
            Self::NoIpv6 => f.write_str(
                "this kernel has no IPv6, or it is switched off \
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
                "cannot {action}: the kernel has no memory left for it; try again, and if it stays \
                 so look at `sysctl net.core.optmem_max net.ipv4.udp_mem`"
            ),
            Self::NoFreeSlot { address } => {
                write!(f, "all {SLOTS} slots of {address} are claimed by other processes")
            }
            Self::ServiceTaken { address, service } => {
                write!(f, "service {service:#018x} of {address} has a listener already")
            }
            Self::NoOwner => {
                f.write_str("no process has the queue pair or the service of this packet")
            }
            Self::OwnerBusy => f.write_str(
                "the process that this packet belongs to does not keep up: packet dropped",
            ),
            Self::TooManyLookups => {
                f.write_str("too many packets for processes that are not known: packet dropped")
            }
            Self::GsoRefused => f.write_str(
                "the kernel will not segment packets for this destination: send them one by one, \
                 with identification 0",
            ),
            Self::TooLong { length, destination, path_mtu } => {
                write!(f, "a packet of {length} bytes does not fit on the path to {destination}")?;
                if let Some(mtu) = path_mtu {
                    write!(f, ", which takes {mtu} bytes with the IP header")?;
                }
                f.write_str(
                    "; use a smaller RoCE MTU, or raise the interfaces' MTU (`ip link set dev … mtu …`)",
                )
            }
            Self::Unreachable { destination, source } => {
                let ip = destination.ip();
                write!(f, "no way to {destination}: {source}; `ip route get {ip}` shows the route")
            }
            Self::Unfit(what) => f.write_str(what),
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

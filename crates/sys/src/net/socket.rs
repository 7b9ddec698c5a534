//! A UDP socket configured for RoCEv2.
//!
//! libc: rustix does not have the options for segmentation, GRO, packet information, hop limits, zero checksums and
//! `SO_BINDTOIFINDEX`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, SOL_UDP, c_int};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{SocketType, bind, ipproto};

use crate::error::Error;
use crate::net::SOURCE_PORTS;
use crate::net::address::{family, local_address};
use crate::net::device_fd::DeviceFd;
use crate::net::options::{Features, Options};
use crate::net::steering::{self, Table};
use crate::syscall::set_option;

/// A RoCEv2 socket: one local address and port, for sending and receiving.
///
/// It never blocks and is never connected. All methods take `&self` and may be called by several threads.
#[derive(Debug)]
pub struct Socket {
    pub(crate) fd: DeviceFd,
    local: SocketAddr,
    features: Features,
    gso: AtomicBool,
}

impl Socket {
    /// Opens a socket that receives packets to this address and port. Port 0 stands for any free port, which is not
    /// shared. The scope of an IPv6 link-local address selects the interface.
    pub fn open(local: SocketAddr, options: &Options) -> Result<Self, Error> {
        let (fd, features) = prepare(local, options)?;
        Self::bound(fd, features, local, options)
    }

    /// As [`Socket::open`], for packets that arrive on one interface only, if the kernel supports that (Linux 5.7 for
    /// unprivileged processes).
    pub(crate) fn open_on(
        interface: u32,
        local: SocketAddr,
        options: &Options,
    ) -> Result<Self, Error> {
        let (fd, features) = prepare(local, options)?;
        // Before binding, so that sockets of two interfaces do not share the port.
        let _ = set_option(fd.as_fd(), SOL_SOCKET, libc::SO_BINDTOIFINDEX, interface as c_int);
        Self::bound(fd, features, local, options)
    }

    fn bound(
        fd: DeviceFd,
        features: Features,
        local: SocketAddr,
        options: &Options,
    ) -> Result<Self, Error> {
        // The kernel treats a port that may be shared as free, so it could select the port of another process.
        let shared = options.shared && local.port() != 0;
        if shared {
            sockopt::set_socket_reuseport(&fd, true)
                .map_err(|error| Error::system("share a port between processes", error))?;
        }
        bind(&fd, &local).map_err(|error| Error::bind(local, error.into()))?;
        // After binding, when the socket is in the group that the program applies to. The owner of a slot replaces it.
        let steering = shared && options.steering && Table::default().attach(fd.as_fd()).is_ok();
        Self::finish(fd, Features { steering, ..features })
    }

    /// Opens a source socket: it has exclusive use of the first free port of [`SOURCE_PORTS`] from the port of `local` on,
    /// and receives nothing. The network spreads connections with different source ports over its paths.
    pub fn source(local: SocketAddr, options: &Options) -> Result<Self, Error> {
        let options = Options { gro: false, receive_buffer: 0, ..*options };
        let (fd, features) = prepare(local, &options)?;
        // Packets that arrive here would never be read. If the kernel refuses the filter, the small buffer bounds them.
        let _ = steering::refuse_all(fd.as_fd());
        let count = SOURCE_PORTS.end() - SOURCE_PORTS.start();
        let first = local.port().wrapping_sub(*SOURCE_PORTS.start()) & count;
        for step in 0..=count {
            let mut local = local;
            local.set_port(SOURCE_PORTS.start() + (first.wrapping_add(step) & count));
            match bind(&fd, &local) {
                Ok(()) => {
                    let socket = Self::finish(fd, features)?;
                    socket.queue_icmp_errors();
                    return Ok(socket);
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(Error::bind(local, error.into())),
            }
        }
        Err(Error::NoSourcePort { address: local.ip() })
    }

    fn finish(fd: DeviceFd, features: Features) -> Result<Self, Error> {
        let local = local_address(fd.as_fd())
            .map_err(|error| Error::system("read the local address of a socket", error))?;
        let gso = AtomicBool::new(features.gso);
        Ok(Self { fd, local, features, gso })
    }

    /// The local address and port.
    #[inline]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The local port, which is the source port of all packets it sends: the ICRC covers it.
    #[inline]
    pub fn port(&self) -> u16 {
        self.local.port()
    }

    /// Whether it is an IPv6 socket.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.local.is_ipv6()
    }

    /// The features that it has.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether the kernel segments batches. This determines the IPv4 identification that the ICRC covers: the index of the
    /// packet in its batch if it does, otherwise 0.
    #[inline]
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Sends packets one by one from now on, as required after [`Error::GsoRefused`]. A batch that another thread has built
    /// but not yet sent then has wrong ICRCs, and receivers drop it: threads that send from one socket must synchronise.
    pub fn disable_gso(&self) {
        self.gso.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// Opens a socket and sets all options except those of its port.
fn prepare(local: SocketAddr, options: &Options) -> Result<(DeviceFd, Features), Error> {
    let socket = DeviceFd::socket(family(local), SocketType::DGRAM, Some(ipproto::UDP))
        .map_err(|error| Error::open(local, error))?;
    let fd = socket.as_fd();
    let set = |level, name, value: c_int| set_option(fd, level, name, value);
    let on = |wanted: bool, level, name| wanted && set(level, name, 1).is_ok();
    let failed = |error: Errno| Error::system("configure a UDP socket", error);

    // DF on every packet, whatever the route's setting: RoCE is never fragmented, and the ICRC covers the bit
    // (IBA A17.3.1). PROBE instead of DO: an ICMP error that claims a smaller path MTU, which anyone can forge, would otherwise
    // make the kernel refuse the packets of connections that have a larger one, and these cannot change it.
    let (packet_info, packet_marks, zero_checksum) = if local.is_ipv6() {
        sockopt::set_ipv6_v6only(fd, true).map_err(failed)?;
        sockopt::set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::PROBE).map_err(failed)?;
        (
            on(options.packet_info, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            options.packet_marks
                && sockopt::set_ipv6_recvtclass(fd, true).is_ok()
                && on(true, IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            on(options.zero_checksum, SOL_UDP, libc::UDP_NO_CHECK6_RX),
        )
    } else {
        sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::PROBE).map_err(failed)?;
        (
            on(options.packet_info, IPPROTO_IP, libc::IP_PKTINFO),
            options.packet_marks
                && sockopt::set_ip_recvtos(fd, true).is_ok()
                && on(true, IPPROTO_IP, libc::IP_RECVTTL),
            true,
        )
    };
    let force = options.force_buffers;
    let features = Features {
        // Zero disables segmentation by default: each batch has its size. A kernel without segmentation refuses it.
        gso: options.gso && set(SOL_UDP, libc::UDP_SEGMENT, 0).is_ok(),
        gro: on(options.gro, SOL_UDP, libc::UDP_GRO),
        steering: false,
        packet_info,
        packet_marks,
        zero_checksum,
        receive_buffer: set_receive_buffer(fd, options.receive_buffer, force),
        send_buffer: set_send_buffer(fd, options.send_buffer, force),
    };
    Ok((socket, features))
}

/// The kernel doubles the size in an `int`.
const MAX_BUFFER: usize = (c_int::MAX / 2) as usize;

/// Sets the size of the receive buffer, beyond the administrator's limit if `force` is set and the process is privileged.
/// Returns the size that the kernel selected.
fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: usize, force: bool) -> usize {
    let bytes = bytes.min(MAX_BUFFER);
    if !(force && sockopt::set_socket_recv_buffer_size_force(fd, bytes).is_ok()) {
        // Cannot fail: the kernel limits the size.
        let _ = sockopt::set_socket_recv_buffer_size(fd, bytes);
    }
    sockopt::socket_recv_buffer_size(fd).unwrap_or(0)
}

/// As [`set_receive_buffer`], for the send buffer.
pub(crate) fn set_send_buffer(fd: BorrowedFd<'_>, bytes: usize, force: bool) -> usize {
    let bytes = bytes.min(MAX_BUFFER);
    if !(force && sockopt::set_socket_send_buffer_size_force(fd, bytes).is_ok()) {
        let _ = sockopt::set_socket_send_buffer_size(fd, bytes);
    }
    sockopt::socket_send_buffer_size(fd).unwrap_or(0)
}

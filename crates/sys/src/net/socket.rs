//! A UDP socket set up for RoCEv2.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, SOL_UDP, c_int};

use crate::SOURCE_PORTS;
use crate::error::Error;
use crate::net::address::{RawAddress, family};
use crate::net::device_fd::DeviceFd;
use crate::net::options::{Features, Options};
use crate::net::steering::{self, Table};
use crate::syscall::{check, errno, int_option, set_option};

/// One local address and port, open for sending and receiving.
///
/// It never blocks and is never connected. All methods take `&self`, and threads may call them at the same time.
#[derive(Debug)]
pub struct Socket {
    pub(crate) fd: DeviceFd,
    local: SocketAddr,
    features: Features,
    gso: AtomicBool,
}

impl Socket {
    /// Opens a socket that receives what is sent to this address and port, of which 0 stands for any free one, which
    /// is then not shared. For an IPv6 link-local address the scope says on which interface.
    pub fn open(local: SocketAddr, options: &Options) -> Result<Self, Error> {
        let (fd, features) = prepare(local, options)?;
        Self::bound(fd, features, local, options)
    }

    /// The same, for what comes by one interface alone, where the kernel knows that (Linux 5.7 for everybody).
    pub(crate) fn open_on(
        interface: u32,
        local: SocketAddr,
        options: &Options,
    ) -> Result<Self, Error> {
        let (fd, features) = prepare(local, options)?;
        // Before binding: sockets of two interfaces share no port.
        let _ = set_option(fd.as_fd(), SOL_SOCKET, libc::SO_BINDTOIFINDEX, interface as c_int);
        Self::bound(fd, features, local, options)
    }

    fn bound(
        fd: DeviceFd,
        features: Features,
        local: SocketAddr,
        options: &Options,
    ) -> Result<Self, Error> {
        // A port that may be shared is a free one to the kernel, so it could give us another process's.
        let shared = options.shared && local.port() != 0;
        if shared {
            set_option::<c_int>(fd.as_fd(), SOL_SOCKET, libc::SO_REUSEPORT, 1)
                .map_err(|error| Error::system("share a port between processes", error))?;
        }
        bind(fd.as_fd(), local).map_err(|error| Error::bind(local, error))?;
        // After binding: only then is the socket one of the group whose program it is. A slot's owner replaces it.
        let steering = shared && options.steering && Table::default().attach(fd.as_fd()).is_ok();
        Self::finish(fd, Features { steering, ..features })
    }

    /// Opens a socket to send from: it has a port of [`SOURCE_PORTS`] to itself, the first free one from the port of
    /// `local` on, and receives nothing. Spread connections over several of these and the network spreads them over
    /// its paths.
    pub fn source(local: SocketAddr, options: &Options) -> Result<Self, Error> {
        let options = Options { gro: false, receive_buffer: 0, ..*options };
        let (fd, features) = prepare(local, &options)?;
        // What is sent here would only wait for ever. Where the filter is refused, it is the small buffer that ends it.
        let _ = steering::refuse_all(fd.as_fd());
        let count = SOURCE_PORTS.end() - SOURCE_PORTS.start();
        let first = local.port().wrapping_sub(*SOURCE_PORTS.start()) & count;
        for step in 0..=count {
            let mut local = local;
            local.set_port(SOURCE_PORTS.start() + (first.wrapping_add(step) & count));
            match bind(fd.as_fd(), local) {
                Ok(()) => {
                    let socket = Self::finish(fd, features)?;
                    socket.keep_reports();
                    return Ok(socket);
                }
                Err(error) if errno(&error) == libc::EADDRINUSE => {}
                Err(error) => return Err(Error::bind(local, error)),
            }
        }
        Err(Error::NoSourcePort { address: local.ip() })
    }

    fn finish(fd: DeviceFd, features: Features) -> Result<Self, Error> {
        let local = bound_to(fd.as_fd())
            .map_err(|error| Error::system("learn a socket's own address", error))?;
        let gso = AtomicBool::new(features.gso);
        Ok(Self { fd, local, features, gso })
    }

    /// The address and port it is bound to.
    #[inline]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The port it is bound to, which is the source port of all it sends: the ICRC covers it.
    #[inline]
    pub fn port(&self) -> u16 {
        self.local.port()
    }

    /// Whether it is an IPv6 socket.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.local.is_ipv6()
    }

    /// What it got of what was asked for.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether the kernel segments batches. It decides the IPv4 identification that the ICRC covers: the packet's
    /// index in its batch if so, 0 if not.
    #[inline]
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Sends packets one by one from now on: the answer to [`Error::GsoRefused`]. A batch that another thread has built
    /// but not yet sent then has the wrong ICRCs, so receivers drop it: whoever sends from one socket with several
    /// threads keeps them apart.
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

/// Opens a socket and sets all options but those that belong to a port.
fn prepare(local: SocketAddr, options: &Options) -> Result<(DeviceFd, Features), Error> {
    let socket = DeviceFd::socket(family(local), libc::SOCK_DGRAM, libc::IPPROTO_UDP)
        .map_err(|error| Error::open(local, error))?;
    let fd = socket.as_fd();
    let set = |level, name, value: c_int| set_option(fd, level, name, value);
    let on = |wanted: bool, level, name| wanted && set(level, name, 1).is_ok();
    let must = |error| Error::system("set up a UDP socket", error);

    // DF on every packet, whatever the route says: RoCE is never fragmented, and the ICRC covers the bit (IBA A17.3.1).
    let (packet_info, packet_marks, zero_checksum) = if local.is_ipv6() {
        set(IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).map_err(must)?;
        set(IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO).map_err(must)?;
        (
            on(options.packet_info, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            on(options.packet_marks, IPPROTO_IPV6, libc::IPV6_RECVTCLASS)
                && on(true, IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
            on(options.zero_checksum, SOL_UDP, libc::UDP_NO_CHECK6_RX),
        )
    } else {
        set(IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO).map_err(must)?;
        (
            on(options.packet_info, IPPROTO_IP, libc::IP_PKTINFO),
            on(options.packet_marks, IPPROTO_IP, libc::IP_RECVTOS)
                && on(true, IPPROTO_IP, libc::IP_RECVTTL),
            true,
        )
    };
    let force = options.force_buffers;
    let features = Features {
        // Zero segments nothing: the size comes with each batch. Only a kernel that can takes the option.
        gso: options.gso && set(SOL_UDP, libc::UDP_SEGMENT, 0).is_ok(),
        gro: on(options.gro, SOL_UDP, libc::UDP_GRO),
        steering: false,
        packet_info,
        packet_marks,
        zero_checksum,
        receive_buffer: buffer(
            fd,
            options.receive_buffer,
            force.then_some(libc::SO_RCVBUFFORCE),
            libc::SO_RCVBUF,
        ),
        send_buffer: buffer(
            fd,
            options.send_buffer,
            force.then_some(libc::SO_SNDBUFFORCE),
            libc::SO_SNDBUF,
        ),
    };
    Ok((socket, features))
}

/// Asks for a buffer of so many bytes, first beyond the limit that the administrator set, and returns what it became.
pub(crate) fn buffer(fd: BorrowedFd<'_>, bytes: usize, force: Option<c_int>, name: c_int) -> usize {
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
    let forced = force.is_some_and(|name| set_option(fd, SOL_SOCKET, name, wanted).is_ok());
    if !forced {
        // Cannot fail: the kernel takes what it allows. What that is, is asked below.
        let _ = set_option(fd, SOL_SOCKET, name, wanted);
    }
    int_option(fd, SOL_SOCKET, name).map_or(0, |got| got.unsigned_abs() as usize)
}

/// Binds a socket to an address.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::new(address);
    // SAFETY: the address is a local, as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length) }).map(drop)
}

/// The address a socket is bound to.
pub(crate) fn bound_to(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let (mut raw, mut length) = (RawAddress::empty(), RawAddress::ROOM);
    // SAFETY: the address is a local with as much room as said.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut raw).cast(), &raw mut length) })?;
    raw.get().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
}

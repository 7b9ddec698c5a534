//! Multicast groups.
//!
//! A socket bound to one of our addresses is never given what was sent to a group, so a group has a socket of its own,
//! bound to the group's address. The kernel gives a multicast packet to every such socket of every process:
//! there is nothing to steer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};

use crate::error::Error;
use crate::net::options::Options;
use crate::net::socket::Socket;
use crate::syscall::set_option;

impl Socket {
    /// Opens a socket that receives what is sent to a multicast group and port on one interface, and joins the group.
    pub fn group(group: SocketAddr, interface: u32, options: &Options) -> Result<Self, Error> {
        if !group.ip().is_multicast() {
            return Err(Error::Unfit("a group's address is a multicast address"));
        }
        let options = Options { steering: false, ..*options };
        let mut local = group;
        if let SocketAddr::V6(local) = &mut local {
            local.set_scope_id(interface);
        }
        // Sockets of two interfaces that shared the port would get each other's packets: a kernel that looks for a packet's
        // socket early takes any of those that share (Linux 6.18).
        let socket = Self::open_on(interface, local, &options)?;
        // Otherwise a group that any process joined on any interface would be ours too. Old kernels know it for IPv4
        // only.
        let _ = match group {
            SocketAddr::V4(_) => socket.set(IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
            SocketAddr::V6(_) => socket.set(IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0),
        };
        socket.join(group.ip(), interface)?;
        Ok(socket)
    }

    /// Joins a group on an interface: the network brings its packets here, to the sockets that [`Socket::group`] opens.
    pub fn join(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        self.member(group, interface, libc::IP_ADD_MEMBERSHIP, libc::IPV6_ADD_MEMBERSHIP)
            .map_err(|error| Error::system("join a multicast group", error))
    }

    /// Leaves a group on an interface. A closed socket has left all its groups.
    pub fn leave(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        self.member(group, interface, libc::IP_DROP_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP)
            .map_err(|error| Error::system("leave a multicast group", error))
    }

    fn member(&self, group: IpAddr, interface: u32, v4: c_int, v6: c_int) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                let request = libc::ip_mreqn {
                    imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
                    imr_address: libc::in_addr { s_addr: 0 },
                    imr_ifindex: interface as c_int,
                };
                set_option(self.as_fd(), IPPROTO_IP, v4, request)
            }
            IpAddr::V6(group) => {
                let request = libc::ipv6_mreq {
                    ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
                    ipv6mr_interface: interface,
                };
                set_option(self.as_fd(), IPPROTO_IPV6, v6, request)
            }
        }
    }

    /// The interface by which packets to groups leave, and whether processes of this machine receive them as well
    /// (they do unless told otherwise).
    pub fn multicast_out(&self, interface: u32, to_ourselves: bool) -> Result<(), Error> {
        let to_ourselves = c_int::from(to_ourselves);
        let done = if self.is_ipv6() {
            self.set(IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface as c_int)
                .and_then(|()| self.set(IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, to_ourselves))
        } else {
            let any = libc::in_addr { s_addr: 0 };
            let request = libc::ip_mreqn {
                imr_multiaddr: any,
                imr_address: any,
                imr_ifindex: interface as c_int,
            };
            set_option(self.as_fd(), IPPROTO_IP, libc::IP_MULTICAST_IF, request)
                .and_then(|()| self.set(IPPROTO_IP, libc::IP_MULTICAST_LOOP, to_ourselves))
        };
        done.map_err(|error| Error::system("choose the interface for multicast", error))
    }

    fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        set_option(self.as_fd(), level, name, value)
    }
}

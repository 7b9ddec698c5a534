//! Multicast groups.
//!
//! A socket bound to a unicast address does not receive packets to a group, so each group has a socket bound to the
//! group's address. The kernel delivers a multicast packet to every such socket of every process, so steering does not
//! apply.
//!
//! libc: rustix does not have `IP_MULTICAST_ALL` and `IPV6_MULTICAST_ALL`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use rustix::net::sockopt;

use crate::error::Error;
use crate::net::options::Options;
use crate::net::socket::Socket;
use crate::syscall::set_option;

impl Socket {
    /// Opens a socket that receives packets to a multicast group and port on one interface, and joins the group.
    pub fn group(group: SocketAddr, interface: u32, options: &Options) -> Result<Self, Error> {
        if !group.ip().is_multicast() {
            return Err(Error::Invalid("the address of a group must be a multicast address"));
        }
        let options = Options { steering: false, ..*options };
        let mut local = group;
        if let SocketAddr::V6(local) = &mut local {
            local.set_scope_id(interface);
        }
        // Sockets of two interfaces that share the port would receive each other's packets: early demultiplexing in the
        // kernel selects any of the sockets that share it (Linux 6.18).
        let socket = Self::open_on(interface, local, &options)?;
        // Otherwise the socket would receive groups that any process joined on any interface. Old kernels have the option
        // for IPv4 only.
        let (level, name) = match group {
            SocketAddr::V4(_) => (IPPROTO_IP, libc::IP_MULTICAST_ALL),
            SocketAddr::V6(_) => (IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
        };
        let _ = set_option::<c_int>(socket.as_fd(), level, name, 0);
        socket.join(group.ip(), interface)?;
        Ok(socket)
    }

    /// Joins a group on an interface: its packets arrive at the sockets that [`Socket::group`] opened.
    pub fn join(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        match group {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(
                self.fd(),
                &group,
                &Ipv4Addr::UNSPECIFIED,
                interface,
            ),
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(self.fd(), &group, interface),
        }
        .map_err(|error| Error::system("join a multicast group", error))
    }

    /// Leaves a group on an interface. Closing a socket leaves all its groups.
    pub fn leave(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        match group {
            IpAddr::V4(group) => sockopt::set_ip_drop_membership_with_ifindex(
                self.fd(),
                &group,
                &Ipv4Addr::UNSPECIFIED,
                interface,
            ),
            IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(self.fd(), &group, interface),
        }
        .map_err(|error| Error::system("leave a multicast group", error))
    }

    /// Sets the interface that packets to groups are sent from, and whether local processes receive them too, which they
    /// do by default.
    pub fn multicast_out(&self, interface: u32, loopback: bool) -> Result<(), Error> {
        let fd = self.fd();
        if self.is_ipv6() {
            sockopt::set_ipv6_multicast_if(fd, interface)
                .and_then(|()| sockopt::set_ipv6_multicast_loop(fd, loopback))
        } else {
            let any = Ipv4Addr::UNSPECIFIED;
            sockopt::set_ip_multicast_if_with_ifindex(fd, &any, &any, interface)
                .and_then(|()| sockopt::set_ip_multicast_loop(fd, loopback))
        }
        .map_err(|error| Error::system("select the interface for multicast", error))
    }
}

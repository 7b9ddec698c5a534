//! What other hosts report about packets of ours, by ICMP.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{SOL_SOCKET, iovec};

use crate::net::address::RawAddress;
use crate::net::control::Control;
use crate::net::socket::Socket;
use crate::syscall::{check_length, errno, int_option, set_option, zeroed};

impl Socket {
    /// Has the kernel keep reports for [`Socket::take_port_unreachable`]. A kernel that does not keeps none.
    pub(crate) fn keep_reports(&self) {
        let (level, name) = match self.is_ipv6() {
            false => (libc::IPPROTO_IP, libc::IP_RECVERR),
            true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        let _ = set_option::<libc::c_int>(self.fd(), level, name, 1);
    }

    /// The next report that nobody receives at the port a packet of ours went to: where it went, and how many bytes of
    /// the packet the report quotes, which are now in `quoted`. Other reports are passed over.
    ///
    /// A socket to send from ([`Socket::source`]) has [`Readiness::broken`](crate::Readiness) while there are any. Reports
    /// are not authenticated: whether one is about a packet that was sent is for the caller to see from the quote.
    pub fn take_port_unreachable(&self, quoted: &mut [u8]) -> Option<(SocketAddr, usize)> {
        loop {
            let mut address = RawAddress::empty();
            let mut control = Control::empty();
            let mut piece = iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
            // SAFETY: a msghdr is numbers and pointers.
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = RawAddress::ROOM;
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr();
            message.msg_controllen = Control::ROOM as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the message refers to locals and to the caller's buffer, each as long as said.
            let received = check_length(unsafe {
                libc::recvmsg(self.fd().as_raw_fd(), &raw mut message, flags)
            });
            let length = match received {
                Ok(length) => length,
                Err(error) if errno(&error) == libc::EINTR => continue,
                Err(_) => {
                    // Reading the error clears it; left alone it would end the next call, and every wait.
                    let _ = int_option(self.fd(), SOL_SOCKET, libc::SO_ERROR);
                    return None;
                }
            };
            #[allow(clippy::unnecessary_cast)] // The field's width differs between C libraries.
            let marks = control.read(message.msg_controllen as usize);
            if let (true, Some(destination)) = (marks.port_unreachable, address.get()) {
                return Some((destination, length.min(quoted.len())));
            }
        }
    }
}

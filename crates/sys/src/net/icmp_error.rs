//! ICMP errors that other hosts return for packets that a socket sent.
//!
//! libc: rustix parses no `IP_RECVERR` control messages and does not set the option.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::iovec;
use rustix::net::sockopt::socket_error;

use crate::cancel::Uncancellable;
use crate::net::address::RawAddress;
use crate::net::control::Control;
use crate::net::socket::Socket;
use crate::syscall::{check_length, errno, set_option, zeroed};

impl Socket {
    /// Makes the kernel queue ICMP errors for [`Socket::take_port_unreachable`]. Ignores a kernel that refuses.
    pub(crate) fn queue_icmp_errors(&self) {
        let (level, name) = match self.is_ipv6() {
            false => (libc::IPPROTO_IP, libc::IP_RECVERR),
            true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        let _ = set_option::<libc::c_int>(self.fd(), level, name, 1);
    }

    /// Takes the next ICMP error "port unreachable": the destination of the packet it answers, and how many bytes of that
    /// packet it quotes, which are copied to `quoted`. Other errors are discarded.
    ///
    /// A source socket ([`Socket::source`]) has [`Readiness::broken`](crate::Readiness) while errors are queued. ICMP is
    /// not authenticated: the caller checks by the quote whether it sent that packet.
    pub fn take_port_unreachable(&self, quoted: &mut [u8]) -> Option<(SocketAddr, usize)> {
        loop {
            let mut address = RawAddress::empty();
            let mut control = Control::empty();
            let mut piece = iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
            // SAFETY: a msghdr is numbers and pointers.
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = RawAddress::CAPACITY;
            message.msg_iov = &raw mut piece;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr();
            message.msg_controllen = Control::CAPACITY as _;
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let _guard = Uncancellable::new();
            // SAFETY: the message refers to locals and to the caller's buffer, each with its length.
            let received = check_length(unsafe {
                libc::recvmsg(self.fd().as_raw_fd(), &raw mut message, flags)
            });
            let length = match received {
                Ok(length) => length,
                Err(error) if errno(&error) == libc::EINTR => continue,
                Err(_) => {
                    // Reading SO_ERROR clears it; otherwise it would fail the next call and end every wait.
                    let _ = socket_error(self.fd());
                    return None;
                }
            };
            #[allow(clippy::unnecessary_cast)]
            // The width of the field differs between C libraries.
            let data = control.read(message.msg_controllen as usize);
            if let (true, Some(destination)) = (data.port_unreachable, address.get()) {
                return Some((destination, length.min(quoted.len())));
            }
        }
    }
}

//! Receiving in two steps: look at a message's first bytes, then take it to where it belongs.
//!
//! This is for placing payload without a copy. Only one thread may do both steps on a socket, or it takes another
//! message than it looked at.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use libc::{c_int, iovec, msghdr};

use crate::error::Error;
use crate::net::address::RawAddress;
use crate::net::batch::MAX_PIECES;
use crate::net::control::Control;
use crate::net::receive::{RxInfo, Taken};
use crate::net::socket::Socket;
use crate::syscall::{check_length, errno, zeroed};

impl Socket {
    /// Copies the first bytes of the next message without taking it. [`RxInfo::length`] is that of the whole
    /// message, and [`RxInfo::truncated`] says whether `head` holds less. `None` when nothing waits.
    pub fn peek(&self, head: &mut [u8]) -> Result<Option<RxInfo>, Error> {
        self.take(&mut [IoSliceMut::new(head)], libc::MSG_PEEK | libc::MSG_TRUNC)
    }

    /// Takes the next message into these pieces, one filled after the other. [`RxInfo::length`] counts what was
    /// written: what the pieces do not hold is lost, and [`RxInfo::truncated`] says so. `None` when nothing waits.
    pub fn receive_into(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<RxInfo>, Error> {
        self.take(pieces, 0)
    }

    fn take(&self, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Option<RxInfo>, Error> {
        if pieces.len() > MAX_PIECES {
            return Err(Error::Unfit("a message is received into at most 1024 pieces"));
        }
        let (mut address, mut control) = (RawAddress::empty(), Control::empty());
        // SAFETY: a msghdr is numbers and pointers.
        let mut message: msghdr = unsafe { zeroed() };
        // An IoSliceMut is an iovec: std promises the layout.
        message.msg_iov = pieces.as_mut_ptr().cast::<iovec>();
        message.msg_iovlen = pieces.len() as _;
        let mut reports = 0;
        let length = loop {
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = RawAddress::ROOM;
            message.msg_control = control.as_mut_ptr();
            message.msg_controllen = Control::ROOM as _;
            // SAFETY: the message refers to the lent pieces and to two locals, all alive through the call.
            let received = check_length(unsafe {
                libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT)
            });
            match received {
                Ok(length) => break length,
                Err(error) if errno(&error) == libc::EAGAIN => return Ok(None),
                Err(error) if Self::is_report(&error, &mut reports) => {}
                Err(error) => return Err(Error::system("receive a packet", error)),
            }
        };
        // The field is a `size_t` in one C library and 32 bits in another.
        #[allow(clippy::unnecessary_cast)]
        let marks = control.read(message.msg_controllen as usize);
        let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
        let taken = Taken { source: address.get(), marks, length, truncated };
        Ok(Some(taken.info(self.local().ip())))
    }
}

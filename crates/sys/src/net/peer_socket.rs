//! Unix sockets between two processes of a user: how one connects to the name of the other, how both learn that the other
//! has ended, and how memory is passed.
//!
//! Names end with a random number ([`crate::net::unix_name`]), so no other user can bind one in advance, and the kernel
//! reports the user at the other end of a connection: other users are never talked to.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg,
};

use crate::net::device_fd::DeviceFd;
use crate::net::{mailbox, unix_name};
use crate::ring::{Consumer, RingFile};

/// The maximum number of connections that are accepted in one call.
const MAX_ACCEPTED: usize = 1024;

fn open() -> io::Result<DeviceFd> {
    DeviceFd::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
}

/// Listens under a name.
pub(super) fn listen(name: &str, backlog: i32) -> io::Result<DeviceFd> {
    let fd = open()?;
    mailbox::bind(&fd, name).map_err(io::Error::other)?;
    rustix::net::listen(&fd, backlog)?;
    Ok(fd)
}

/// Connects to a name, if it belongs to a process of this user.
pub(super) fn connect(name: &str) -> io::Result<DeviceFd> {
    let fd = open()?;
    rustix::net::connect(&fd, &unix_name::socket_address(name)?)?;
    if belongs_to_this_user(fd.as_fd()) { Ok(fd) } else { Err(Errno::PERM.into()) }
}

/// Accepts the pending connections of this user's processes, and closes those of others.
pub(super) fn accept_all(listener: &DeviceFd) -> Vec<DeviceFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let accept = || Ok(accept_with(listener, flags)?);
    let accepted = std::iter::from_fn(|| DeviceFd::open(accept).ok()).take(MAX_ACCEPTED);
    accepted.filter(|fd| belongs_to_this_user(fd.as_fd())).collect()
}

/// Whether the peer of a connection is certainly a process of this user.
fn belongs_to_this_user(fd: BorrowedFd<'_>) -> bool {
    socket_peercred(fd).is_ok_and(|peer| unix_name::is_certainly_this_user(peer.uid.as_raw()))
}

/// Waits for events of a connection. Without a timeout, it waits indefinitely.
pub(super) fn wait(fd: &DeviceFd, events: PollFlags, timeout: Option<Duration>) -> PollFlags {
    let mut fds = [PollFd::new(fd, events)];
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Waits until the other end of a connection is gone, but no longer than `timeout`. Returns whether it is.
pub(super) fn wait_for_end(fd: &DeviceFd, timeout: Duration) -> bool {
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    wait(fd, PollFlags::RDHUP, Some(timeout)).intersects(ended)
}

/// Sends the first message of a connection: `offer`, with the memory of a ring.
pub(super) fn send_ring(
    connection: &DeviceFd,
    offer: &[u8],
    file: &RingFile,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(connection, &[IoSlice::new(offer)], &mut control, flags).map(|_| ())
}

/// Reads the first message of a connection, which must be `offer`, and maps the ring of at most `max` bytes that it carries.
pub(super) fn take_ring(connection: &DeviceFd, offer: &[u8], max: usize) -> Option<Consumer> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut pieces = [IoSliceMut::new(&mut bytes)];
    let received = match recvmsg(connection, &mut pieces, &mut control, flags) {
        // The other end is gone and has left a message unread: said once, before the messages that it has sent.
        Err(Errno::CONNRESET) => recvmsg(connection, &mut pieces, &mut control, flags),
        received => received,
    };
    let received = received.ok()?.bytes;
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            files.extend(passed);
        }
    }
    if bytes.get(..received)? != offer || files.len() != 1 {
        return None;
    }
    Consumer::new(&RingFile::check(files.pop()?, max).ok()?).ok()
}

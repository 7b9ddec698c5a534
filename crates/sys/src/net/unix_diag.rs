//! The kernel's table of Unix sockets with their names and owners: sock_diag(7), which needs no privilege.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send};

use crate::syscall::socket;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The state does not matter: a datagram socket is reported as connected if another one has connected to it.
const ALL_STATES: u32 = u32::MAX;

const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 1 << 2;
const SHOW_UID: u32 = 1 << 6;
const NAME: u16 = 0;
const PEER: u16 = 2;
const UID: u16 = 7;

/// Bytes of a message header, and of `struct unix_diag_msg`.
const HEADER: usize = 16;
const FIXED: usize = 16;
const BUFFER: usize = 64 << 10;

/// A socket with an abstract name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The name without the leading zero byte of abstract names.
    pub(crate) name: String,
    pub(crate) inode: u32,
    /// The user ID of the owner. `None` if the kernel does not report it: before Linux 5.3, or without `unix_diag`.
    pub(crate) user: Option<u32>,
}

/// Lists the sockets of this network namespace whose abstract name has the prefix.
pub(crate) fn named(prefix: &str) -> io::Result<Vec<Named>> {
    let mut found = Vec::new();
    let dumped = dump(|fixed, attributes| {
        let name = attributes.clone().find(|(kind, _)| *kind == NAME).map(|(_, name)| name);
        let Some(name) = name.and_then(abstract_name).filter(|name| name.starts_with(prefix))
        else {
            return;
        };
        let user =
            attributes.clone().find(|(kind, _)| *kind == UID).and_then(|(_, uid)| number(uid, 0));
        found.push(Named { name: name.into(), inode: number(fixed, 4).unwrap_or(0), user });
    });
    match dumped {
        Ok(()) => Ok(found),
        // The textual table has everything but the owners. The thread's, because its namespace may differ from the process's.
        Err(_) => Ok(listed(&std::fs::read_to_string("/proc/thread-self/net/unix")?, prefix)),
    }
}

/// Returns the inode of the socket that a Unix socket is connected to; `None` if the kernel does not report it.
pub(crate) fn peer(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let inode = fstat(fd)?.st_ino as u32;
    let socket = request(libc::NLM_F_REQUEST as u16, inode, SHOW_PEER)?;
    let mut buffer = vec![0; BUFFER];
    let length = receive(&socket, &mut buffer)?;
    let (kind, body, _) = message(&buffer[..length]).ok_or_else(malformed)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        return Err(refused(body));
    }
    let mut attributes = Attributes(body.get(FIXED..).unwrap_or_default());
    Ok(attributes.find(|(kind, _)| *kind == PEER).and_then(|(_, peer)| number(peer, 0)))
}

/// Calls `visit` with the fixed part and attributes of each socket.
fn dump(mut visit: impl FnMut(&[u8], Attributes<'_>)) -> io::Result<()> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let socket = request(flags, 0, SHOW_NAME | SHOW_UID)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = receive(&socket, &mut buffer)?;
        let mut rest = &buffer[..length];
        while let Some((kind, body, behind)) = message(rest) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(refused(body)),
                _ => {
                    let fixed = body.get(..FIXED).ok_or_else(malformed)?;
                    visit(fixed, Attributes(&body[FIXED..]));
                }
            }
            rest = behind;
        }
        if length == 0 || !rest.is_empty() {
            return Err(malformed());
        }
    }
}

fn request(flags: u16, inode: u32, show: u32) -> io::Result<OwnedFd> {
    let mut request = Vec::with_capacity(40);
    request.extend_from_slice(&40_u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    // struct unix_diag_req: family and protocol, states, inode, attributes to return, and a cookie that matches any.
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [ALL_STATES, inode, show, u32::MAX, u32::MAX] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    let fd = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG))?;
    send(&fd, &request, SendFlags::NOSIGNAL)?;
    Ok(fd)
}

/// The kernel queues messages before `send` or the last `recv` returns, so this does not wait.
fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (length, _) = retry_on_intr(|| recv(fd, &mut *buffer, RecvFlags::empty()))?;
    Ok(length)
}

/// Splits off the first message: its type, its body, and the remaining bytes.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(bytes, 0)? as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

#[derive(Clone)]
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let half = |at: usize| Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().ok()?));
        let (length, kind) = (usize::from(half(0)?), half(2)?);
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn abstract_name(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name.strip_prefix(&[0])?).ok()
}

fn refused(body: &[u8]) -> io::Error {
    let error = number(body, 0).map_or(libc::EPROTO, |error| -(error as i32));
    io::Error::from_raw_os_error(error)
}

fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EPROTO)
}

/// Parses `/proc/net/unix`: address, references, protocol, flags, type, state, inode and name in each line.
fn listed(table: &str, prefix: &str) -> Vec<Named> {
    let line = |line: &str| {
        let mut columns = line.split_ascii_whitespace().skip(6);
        let inode = columns.next()?.parse().ok()?;
        let name = columns.next()?.strip_prefix('@')?;
        name.starts_with(prefix).then(|| Named { name: name.into(), inode, user: None })
    };
    table.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests;

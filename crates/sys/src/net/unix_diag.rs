//! The kernel's table of Unix sockets with their names and owners: sock_diag(7), which needs no privilege.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::net::netlink::SOCK_DIAG;

use crate::net::netlink::{Attributes, Message, receive, send_request};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The state does not matter: a datagram socket is reported as connected if another one has connected to it.
const ALL_STATES: u32 = u32::MAX;

const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 1 << 2;
const SHOW_UID: u32 = 1 << 6;
const NAME: u16 = 0;
const PEER: u16 = 2;
const UID: u16 = 7;

/// `struct unix_diag_msg`.
type Fixed = [u8; 16];

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
        let name = attributes.find(NAME).and_then(abstract_name);
        let Some(name) = name.filter(|name| name.starts_with(prefix)) else { return };
        let inode = fixed[4..8].try_into().map_or(0, u32::from_ne_bytes);
        found.push(Named { name: name.into(), inode, user: attributes.number(UID) });
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
    let socket = request(0, inode, SHOW_PEER)?;
    let mut buffer = vec![0; BUFFER];
    let length = receive(&socket, &mut buffer)?;
    let (_, attributes): (&Fixed, _) = Message::parse(&buffer[..length])?.split()?;
    Ok(attributes.number(PEER))
}

/// Calls `visit` with the fixed part and attributes of each socket.
fn dump(mut visit: impl FnMut(&Fixed, Attributes<'_>)) -> io::Result<()> {
    let socket = request(libc::NLM_F_DUMP, 0, SHOW_NAME | SHOW_UID)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = receive(&socket, &mut buffer)?;
        let mut rest = &buffer[..length];
        loop {
            let message = Message::parse(rest)?;
            if i32::from(message.kind) == libc::NLMSG_DONE {
                return Ok(());
            }
            let (fixed, attributes) = message.split()?;
            visit(fixed, attributes);
            rest = message.rest;
            if rest.is_empty() {
                break;
            }
        }
    }
}

fn request(flags: libc::c_int, inode: u32, show: u32) -> io::Result<OwnedFd> {
    // struct unix_diag_req: family and protocol, states, inode, attributes to return, and a cookie that matches any.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [ALL_STATES, inode, show, u32::MAX, u32::MAX] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    send_request(Some(SOCK_DIAG), SOCK_DIAG_BY_FAMILY, flags, &request)
}

fn abstract_name(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name.strip_prefix(&[0])?).ok()
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

//! Questions to the kernel about routes and neighbours, by netlink(7): rtnetlink(7) has the messages. None needs a
//! privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::syscall::{check, check_length, socket, zeroed};

/// Bytes of the header of a message, of an attribute's, and of the headers of a route and of a neighbour.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
const FIXED: usize = 12;
/// More than the kernel says of one route or neighbour.
const LONGEST: usize = 4096;

/// A message to the kernel, and the first that it answers.
pub(crate) struct Answer {
    kind: u16,
    body: Vec<u8>,
}

pub(crate) fn open() -> io::Result<OwnedFd> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)
}

/// The same with an address of its own: the kernel's news go to no socket that has none.
pub(crate) fn open_bound() -> io::Result<OwnedFd> {
    let fd = open()?;
    // SAFETY: a sockaddr_nl is numbers.
    let mut any: libc::sockaddr_nl = unsafe { zeroed() };
    any.nl_family = libc::AF_NETLINK as u16;
    let length = size_of::<libc::sockaddr_nl>() as u32;
    // SAFETY: the address is a local, as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const any).cast(), length) })?;
    Ok(fd)
}

/// The family's number, as these messages have it.
pub(crate) fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Asks one question: its kind, the header of its kind, and attributes with their kinds.
pub(crate) fn ask(
    kind: u16,
    fixed: [u8; FIXED],
    attributes: &[(u16, &[u8])],
) -> io::Result<Answer> {
    let mut message = vec![0; HEADER];
    message.extend_from_slice(&fixed);
    for (kind, value) in attributes {
        message.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    let fd = open()?;
    // SAFETY: the message is a local, as long as said.
    check_length(unsafe {
        libc::send(fd.as_raw_fd(), message.as_ptr().cast(), message.len(), libc::MSG_NOSIGNAL)
    })?;
    let mut answer = vec![0; LONGEST];
    // The kernel has answered before the call above returned.
    // SAFETY: the buffer is a local, as long as said.
    let length = check_length(unsafe {
        libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    })?;
    answer.truncate(length);
    Answer::parse(&answer).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))?
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl Answer {
    /// `None` when it is no message.
    fn parse(bytes: &[u8]) -> Option<io::Result<Self>> {
        let length = u32::from_ne_bytes(number(bytes, 0)?) as usize;
        let kind = u16::from_ne_bytes(number(bytes, 4)?);
        let body = bytes.get(HEADER..length)?;
        if i32::from(kind) == libc::NLMSG_ERROR {
            let error = i32::from_ne_bytes(number(body, 0)?);
            return Some(Err(io::Error::from_raw_os_error(-error)));
        }
        body.get(..FIXED)?;
        Some(Ok(Self { kind, body: body.to_vec() }))
    }

    pub(crate) fn kind(&self) -> u16 {
        self.kind
    }

    /// The header of its kind.
    pub(crate) fn fixed(&self) -> &[u8] {
        &self.body[..FIXED]
    }

    /// The attribute of this kind.
    pub(crate) fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = &self.body[FIXED..];
        loop {
            let length = usize::from(u16::from_ne_bytes(number(rest, 0)?));
            let kind = u16::from_ne_bytes(number(rest, 2)?);
            let value = rest.get(ATTRIBUTE..length)?;
            if kind == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }

    pub(crate) fn number(&self, wanted: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.attribute(wanted)?.try_into().ok()?))
    }

    pub(crate) fn address(&self, wanted: u16) -> Option<IpAddr> {
        let value = self.attribute(wanted)?;
        let short = <[u8; 4]>::try_from(value).map(|value| IpAddr::V4(Ipv4Addr::from(value)));
        let long = <[u8; 16]>::try_from(value).map(|value| IpAddr::V6(Ipv6Addr::from(value)));
        short.or(long).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Answer;

    #[test]
    fn what_is_no_answer_is_refused() {
        let mut message = vec![0; 28];
        message[..4].copy_from_slice(&28_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&24_u16.to_ne_bytes());
        for length in 0..28 {
            assert!(Answer::parse(&message[..length]).is_none(), "{length} bytes");
        }
        let whole = Answer::parse(&message).unwrap().unwrap();
        assert!(whole.attribute(1).is_none());
        // Attributes that end behind the message, or are shorter than their header.
        for length in [0_u16, 3, 9, 0xffff] {
            let mut damaged = message.clone();
            damaged[0] = 36;
            damaged.extend_from_slice(&length.to_ne_bytes());
            damaged.extend_from_slice(&[1, 0, 1, 2, 3, 4]);
            let answer = Answer::parse(&damaged).unwrap().unwrap();
            assert!(answer.number(1).is_none() && answer.address(2).is_none(), "{length}");
        }
    }
}

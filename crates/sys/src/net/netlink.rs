//! Requests about routes and neighbours over netlink(7); rtnetlink(7) describes the messages. They need no privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, recv, send};

use crate::syscall::socket;

/// Bytes of the header of a message, of an attribute, and of the fixed part of a route or neighbour message.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
const FIXED: usize = 12;
/// More than the kernel sends for one route or neighbour.
const MAX_MESSAGE: usize = 4096;

/// The first message of the kernel's response.
pub(crate) struct Response {
    kind: u16,
    body: Vec<u8>,
}

pub(crate) fn open() -> io::Result<OwnedFd> {
    // No protocol is 0, which is NETLINK_ROUTE.
    socket(AddressFamily::NETLINK, SocketType::RAW, None)
}

/// As [`open`], bound: the kernel sends notifications only to sockets with an address.
pub(crate) fn open_bound() -> io::Result<OwnedFd> {
    let fd = open()?;
    bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    Ok(fd)
}

/// The address family, as these messages encode it.
pub(crate) fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Sends one request (its type, the fixed part of that type, and attributes with their types) and returns the response.
pub(crate) fn request(
    kind: u16,
    fixed: [u8; FIXED],
    attributes: &[(u16, &[u8])],
) -> io::Result<Response> {
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
    send(&fd, &message, SendFlags::NOSIGNAL)?;
    let mut response = vec![0; MAX_MESSAGE];
    // The kernel queues the response before `send` returns, so this does not wait.
    let (length, _) = recv(&fd, &mut response, RecvFlags::empty())?;
    response.truncate(length);
    Response::parse(&response).ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))?
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl Response {
    /// `None` if it is malformed.
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

    /// The fixed part.
    pub(crate) fn fixed(&self) -> &[u8] {
        &self.body[..FIXED]
    }

    /// The attribute of this type.
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
        let v4 = <[u8; 4]>::try_from(value).map(|value| IpAddr::V4(Ipv4Addr::from(value)));
        let v6 = <[u8; 16]>::try_from(value).map(|value| IpAddr::V6(Ipv6Addr::from(value)));
        v4.or(v6).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Response;

    #[test]
    fn malformed_responses_are_rejected() {
        let mut message = vec![0; 28];
        message[..4].copy_from_slice(&28_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&24_u16.to_ne_bytes());
        for length in 0..28 {
            assert!(Response::parse(&message[..length]).is_none(), "{length} bytes");
        }
        let whole = Response::parse(&message).unwrap().unwrap();
        assert!(whole.attribute(1).is_none());
        // Attributes that extend beyond the message, or are shorter than their header.
        for length in [0_u16, 3, 9, 0xffff] {
            let mut damaged = message.clone();
            damaged[0] = 36;
            damaged.extend_from_slice(&length.to_ne_bytes());
            damaged.extend_from_slice(&[1, 0, 1, 2, 3, 4]);
            let response = Response::parse(&damaged).unwrap().unwrap();
            assert!(response.number(1).is_none() && response.address(2).is_none(), "{length}");
        }
    }
}

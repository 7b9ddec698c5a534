//! Messages of netlink(7): what all of them have in common, and requests about routes and neighbours, which rtnetlink(7)
//! describes. They need no privilege.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::io::retry_on_intr;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, bind, recv, send};

use crate::syscall::socket;

/// Bytes of the header of a message, of an attribute, and of the fixed part of a route or neighbour message.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
const FIXED: usize = 12;
/// More than the kernel sends for one route or neighbour.
const MAX_MESSAGE: usize = 4096;

fn open(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    // No protocol is 0, which is NETLINK_ROUTE.
    socket(AddressFamily::NETLINK, SocketType::RAW, protocol)
}

/// Opens a socket with an address: the kernel sends notifications to no others.
pub(crate) fn open_bound() -> io::Result<OwnedFd> {
    let fd = open(None)?;
    bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    Ok(fd)
}

/// Opens a socket and sends one request: a message of this type with `NLM_F_REQUEST` and other flags.
pub(crate) fn send_request(
    protocol: Option<Protocol>,
    kind: u16,
    flags: libc::c_int,
    body: &[u8],
) -> io::Result<OwnedFd> {
    let mut message = vec![0; HEADER];
    message[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
    message.extend_from_slice(body);
    let fd = open(protocol)?;
    send(&fd, &message, SendFlags::NOSIGNAL)?;
    Ok(fd)
}

/// Receives messages. The kernel queues them before the request or the last call returns, so this does not wait.
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (length, _) = retry_on_intr(|| recv(fd, &mut *buffer, RecvFlags::empty()))?;
    Ok(length)
}

pub(crate) fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EPROTO)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A received message.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    body: &'a [u8],
    /// The messages behind it.
    pub(crate) rest: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses the first message. One that reports an error is returned as that error.
    pub(crate) fn parse(bytes: &'a [u8]) -> io::Result<Self> {
        let parts = || {
            let length = u32::from_ne_bytes(number(bytes, 0)?) as usize;
            let kind = u16::from_ne_bytes(number(bytes, 4)?);
            let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some(Self { kind, body: bytes.get(HEADER..length)?, rest })
        };
        let message = parts().ok_or_else(malformed)?;
        if i32::from(message.kind) == libc::NLMSG_ERROR {
            let error = number(message.body, 0).map_or(libc::EPROTO, |e| -i32::from_ne_bytes(e));
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(message)
    }

    /// Splits the body into the fixed part of its type and the attributes.
    pub(crate) fn split<const N: usize>(&self) -> io::Result<(&'a [u8; N], Attributes<'a>)> {
        let (fixed, attributes) = self.body.split_first_chunk().ok_or_else(malformed)?;
        Ok((fixed, Attributes(attributes)))
    }
}

/// The attributes of a message, with their types.
#[derive(Clone)]
pub(crate) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub(crate) fn find(&self, wanted: u16) -> Option<&'a [u8]> {
        self.clone().find_map(|(kind, value)| (kind == wanted).then_some(value))
    }

    pub(crate) fn number(&self, wanted: u16) -> Option<u32> {
        number(self.find(wanted)?, 0).map(u32::from_ne_bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(number(self.0, 0)?));
        let kind = u16::from_ne_bytes(number(self.0, 2)?);
        let value = self.0.get(ATTRIBUTE..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The address family, as messages about routes encode it.
pub(crate) fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

pub(crate) fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The kernel's response about a route or neighbour.
pub(crate) struct Response {
    pub(crate) kind: u16,
    pub(crate) fixed: [u8; FIXED],
    attributes: Vec<u8>,
}

/// Requests a route or neighbour: the type of the message, its fixed part, and attributes with their types.
pub(crate) fn request(
    kind: u16,
    fixed: [u8; FIXED],
    attributes: &[(u16, &[u8])],
) -> io::Result<Response> {
    let mut body = fixed.to_vec();
    for (kind, value) in attributes {
        body.extend_from_slice(&((ATTRIBUTE + value.len()) as u16).to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let fd = send_request(None, kind, 0, &body)?;
    let mut response = vec![0; MAX_MESSAGE];
    let length = receive(&fd, &mut response)?;
    Response::parse(&response[..length])
}

impl Response {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let message = Message::parse(bytes)?;
        let (fixed, attributes) = message.split()?;
        Ok(Self { kind: message.kind, fixed: *fixed, attributes: attributes.0.to_vec() })
    }

    pub(crate) fn number(&self, wanted: u16) -> Option<u32> {
        Attributes(&self.attributes).number(wanted)
    }

    pub(crate) fn address(&self, wanted: u16) -> Option<IpAddr> {
        let value = Attributes(&self.attributes).find(wanted)?;
        let v4 = <[u8; 4]>::try_from(value).map(|value| IpAddr::V4(Ipv4Addr::from(value)));
        let v6 = <[u8; 16]>::try_from(value).map(|value| IpAddr::V6(Ipv6Addr::from(value)));
        v4.or(v6).ok()
    }
}

#[cfg(test)]
mod tests;

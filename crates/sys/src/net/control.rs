//! Control messages: the ancillary data of a packet, from and to the kernel.
//!
//! libc: rustix has none of these messages but credentials.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{c_int, c_uint, cmsghdr};

/// Bytes for all control messages of one packet. Sending takes at most 72 bytes, receiving 144.
const CAPACITY: usize = 192;

/// Offset of the value in a control message: its header, aligned.
const VALUE: usize = size_of::<cmsghdr>().next_multiple_of(size_of::<usize>());

/// A buffer for control messages with the alignment that the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CAPACITY],
}

impl Control {
    /// Bytes of the buffer.
    pub(crate) const CAPACITY: usize = CAPACITY;

    /// A buffer without messages.
    pub(crate) const fn empty() -> Self {
        Self { bytes: [0; CAPACITY] }
    }

    /// The buffer, for the kernel to read or write.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Writes a message at `at`, and returns the offset of the next one.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, level: c_int, kind: c_int, value: &[u8]) -> usize {
        let end = at + VALUE + value.len();
        // The callers put a few numbers, which always fit.
        debug_assert!(end <= CAPACITY);
        let header = &mut self.bytes[at..end];
        let length = offset_of!(cmsghdr, cmsg_len);
        // The width of the field differs between C libraries; the buffer is zeroed, so both byte orders work.
        put_length(&mut header[length..], VALUE + value.len());
        header[offset_of!(cmsghdr, cmsg_level)..][..4].copy_from_slice(&level.to_ne_bytes());
        header[offset_of!(cmsghdr, cmsg_type)..][..4].copy_from_slice(&kind.to_ne_bytes());
        header[VALUE..].copy_from_slice(value);
        end.next_multiple_of(size_of::<usize>())
    }

    /// Parses the messages in the first `length` bytes, which the kernel wrote.
    #[inline]
    pub(crate) fn read(&self, length: usize) -> ControlData {
        let mut data = ControlData::default();
        let mut rest = &self.bytes[..length.min(CAPACITY)];
        while let Some((length, level, kind)) = header(rest) {
            let Some(value) = rest.get(VALUE..length) else { break };
            data.add(level, kind, value);
            let next = length.next_multiple_of(size_of::<usize>());
            rest = rest.get(next..).unwrap_or_default();
        }
        data
    }
}

#[inline]
fn put_length(field: &mut [u8], length: usize) {
    if offset_of!(cmsghdr, cmsg_level) - offset_of!(cmsghdr, cmsg_len) == size_of::<usize>() {
        field[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
    } else {
        field[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    }
}

/// Length, level and type of the first message.
#[inline]
fn header(bytes: &[u8]) -> Option<(usize, c_int, c_int)> {
    let bytes = bytes.get(..size_of::<cmsghdr>())?;
    // SAFETY: as many bytes as the structure has, all of them numbers; alignment is not assumed.
    let header: cmsghdr = unsafe { bytes.as_ptr().cast::<cmsghdr>().read_unaligned() };
    // The field is a `size_t` in one C library and 32 bits in another.
    #[allow(clippy::unnecessary_cast)]
    let length = header.cmsg_len as usize;
    (length >= VALUE).then_some((length, header.cmsg_level, header.cmsg_type))
}

/// The control messages of a received packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlData {
    pub(crate) tos: Option<u8>,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) interface: Option<u32>,
    /// Bytes of each packet that GRO coalesced.
    pub(crate) segment: Option<usize>,
    /// The user ID of the sender, on a Unix socket.
    pub(crate) user: Option<u32>,
    /// An ICMP error "port unreachable" for a packet that this socket sent.
    pub(crate) port_unreachable: bool,
}

impl ControlData {
    #[inline]
    fn add(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        match (level, kind) {
            // The kernel writes one byte here and an `int` everywhere else.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = value.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.tos = int(value).map(|tos| tos as u8),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = int(value).map(|limit| limit as u8);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let at = offset_of!(libc::in_pktinfo, ipi_addr);
                self.destination = array::<4>(value, at).map(|ip| Ipv4Addr::from(ip).into());
                self.interface =
                    array(value, offset_of!(libc::in_pktinfo, ipi_ifindex)).map(u32::from_ne_bytes);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let at = offset_of!(libc::in6_pktinfo, ipi6_addr);
                self.destination = array::<16>(value, at).map(|ip| Ipv6Addr::from(ip).into());
                self.interface = array(value, offset_of!(libc::in6_pktinfo, ipi6_ifindex))
                    .map(c_uint::from_ne_bytes);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment = int(value).and_then(|bytes| usize::try_from(bytes).ok());
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                self.user = array(value, offset_of!(libc::ucred, uid)).map(u32::from_ne_bytes);
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                self.port_unreachable = is_port_unreachable(value);
            }
            _ => {}
        }
    }
}

/// Whether an extended error is ICMP's "port unreachable" (RFC 792, RFC 4443 section 3.1).
fn is_port_unreachable(value: &[u8]) -> bool {
    const ICMP: [u8; 2] = [3, 3];
    const ICMPV6: [u8; 2] = [1, 4];
    let at = offset_of!(libc::sock_extended_err, ee_origin);
    let origin = array::<1>(value, at);
    let kind = array::<2>(value, offset_of!(libc::sock_extended_err, ee_type));
    matches!(
        (origin, kind),
        (Some([libc::SO_EE_ORIGIN_ICMP]), Some(ICMP))
            | (Some([libc::SO_EE_ORIGIN_ICMP6]), Some(ICMPV6))
    )
}

fn array<const N: usize>(value: &[u8], at: usize) -> Option<[u8; N]> {
    value.get(at..)?.first_chunk().copied()
}

fn int(value: &[u8]) -> Option<c_int> {
    array(value, 0).map(c_int::from_ne_bytes)
}

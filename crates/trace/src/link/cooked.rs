//! Linux cooked captures: the pseudo-header of the `any` device.

use super::{Carried, LinkError, LinkField, LinkHeader, chunk, ethertype_name};

/// Version 1: packet type, hardware, address length, address, protocol.
const VERSION_1_LEN: usize = 16;
/// Version 2: protocol, reserved, interface, hardware, packet type, address length, address.
const VERSION_2_LEN: usize = 20;
/// Length of the address field in both.
const ADDRESS_LEN: usize = 8;

const FRAME_RELAY: u16 = 770;
const RADIOTAP: u16 = 803;
const NETLINK: u16 = 824;

pub(super) fn version_1(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let header = chunk::<VERSION_1_LEN>(data, 0, "cooked header")?;
    let hardware = u16::from_be_bytes([header[2], header[3]]);
    let protocol = u16::from_be_bytes([header[14], header[15]]);
    carried(hardware, protocol, VERSION_1_LEN, data)
}

pub(super) fn version_2(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let header = chunk::<VERSION_2_LEN>(data, 0, "cooked header")?;
    let protocol = u16::from_be_bytes([header[0], header[1]]);
    let hardware = u16::from_be_bytes([header[8], header[9]]);
    carried(hardware, protocol, VERSION_2_LEN, data)
}

fn carried(
    hardware: u16,
    protocol: u16,
    offset: usize,
    data: &[u8],
) -> Result<Carried<'_>, LinkError> {
    // According to the registry, the protocol of these device types is not an EtherType.
    if matches!(hardware, FRAME_RELAY | RADIOTAP | NETLINK) {
        return Err(LinkError::NoEtherType { hardware });
    }
    Ok(Carried::Network { ethertype: protocol, offset, data: &data[offset..] })
}

pub(super) fn version_1_header(data: &[u8]) -> Result<LinkHeader, LinkError> {
    let header = chunk::<VERSION_1_LEN>(data, 0, "cooked header")?;
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let fields = vec![
        LinkField::new("packet type", 0..2, u16_at(0), packet_type_name(u16_at(0))),
        LinkField::new("hardware", 2..4, u16_at(2), hardware_name(u16_at(2))),
        LinkField::new("address length", 4..6, u16_at(4), ""),
        address(&header[6..14], u16_at(4), 6),
        protocol(u16_at(14), 14),
    ];
    Ok(LinkHeader { name: "Linux cooked capture v1", fields })
}

pub(super) fn version_2_header(data: &[u8]) -> Result<LinkHeader, LinkError> {
    let header = chunk::<VERSION_2_LEN>(data, 0, "cooked header")?;
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let interface = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let (packet_type, address_len) = (u16::from(header[10]), u16::from(header[11]));
    let fields = vec![
        protocol(u16_at(0), 0),
        LinkField::new("reserved", 2..4, format_args!("0x{:04x}", u16_at(2)), ""),
        LinkField::new("interface index", 4..8, interface, ""),
        LinkField::new("hardware", 8..10, u16_at(8), hardware_name(u16_at(8))),
        LinkField::new("packet type", 10..11, packet_type, packet_type_name(packet_type)),
        LinkField::new("address length", 11..12, address_len, ""),
        address(&header[12..20], address_len, 12),
    ];
    Ok(LinkHeader { name: "Linux cooked capture v2", fields })
}

fn protocol(ethertype: u16, at: usize) -> LinkField {
    let value = format_args!("0x{ethertype:04x}").to_string();
    LinkField::new("protocol", at..at + 2, value, ethertype_name(ethertype))
}

/// The sender's link address: up to `length` of 8 bytes. Longer addresses (20 bytes in IPoIB) are
/// truncated.
fn address(field: &[u8], length: u16, at: usize) -> LinkField {
    let used = usize::from(length).min(ADDRESS_LEN).min(field.len());
    let text: Vec<String> = field[..used].iter().map(|byte| format!("{byte:02x}")).collect();
    let meaning = match usize::from(length) {
        0 => "none".to_owned(),
        length if length > ADDRESS_LEN => format!("the first {ADDRESS_LEN} of {length} bytes"),
        _ => String::new(),
    };
    LinkField::new("address", at..at + field.len(), text.join(":"), meaning)
}

fn packet_type_name(packet_type: u16) -> &'static str {
    match packet_type {
        0 => "to this host",
        1 => "broadcast",
        2 => "multicast",
        3 => "to another host",
        4 => "sent by this host",
        _ => "unknown",
    }
}

/// Names of Linux `ARPHRD_*` device types common in RDMA captures.
pub(super) fn hardware_name(hardware: u16) -> &'static str {
    match hardware {
        1 => "Ethernet",
        32 => "InfiniBand",
        512 => "PPP",
        768 => "IP tunnel",
        769 => "IPv6 tunnel",
        FRAME_RELAY => "frame relay",
        772 => "loopback",
        778 => "GRE",
        RADIOTAP => "802.11 with radiotap",
        NETLINK => "netlink",
        65_534 => "none (tun)",
        _ => "unknown",
    }
}

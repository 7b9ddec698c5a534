//! Endace's extensible record format (ERF), used for captures of native InfiniBand.
//!
//! A record consists of a header of 16 bytes, extension headers of 8 bytes (the top bit of the type
//! indicates a further one), two bytes of padding for Ethernet, and the packet. All integers are
//! big-endian except the timestamp.

use super::{Carried, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LinkError, LinkField, LinkHeader, chunk};
use crate::timestamp::Timestamp;

const HEADER_LEN: usize = 16;
const EXTENSION_LEN: usize = 8;
/// The offset and padding bytes that align the IP header after an Ethernet header.
const ETHERNET_PADDING_LEN: usize = 2;

/// Bit of the type: an extension header follows.
const MORE_EXTENSIONS: u8 = 0x80;

mod record_type {
    pub(super) const ETHERNET: u8 = 2;
    pub(super) const COLOR_ETHERNET: u8 = 11;
    pub(super) const DSM_COLOR_ETHERNET: u8 = 16;
    pub(super) const COLOR_HASH_ETHERNET: u8 = 20;
    pub(super) const INFINIBAND: u8 = 21;
    pub(super) const IPV4: u8 = 22;
    pub(super) const IPV6: u8 = 23;
    pub(super) const INFINIBAND_LINK: u8 = 25;
}

/// The headers of a record.
struct Headers<'a> {
    fixed: &'a [u8; HEADER_LEN],
    /// The type without the bit for extensions.
    record_type: u8,
    /// The length of the whole record.
    record_len: usize,
    /// The length of the packet on the wire.
    wire_len: usize,
    /// Where the extension headers end.
    extensions_end: usize,
    /// Where the packet starts.
    packet_start: usize,
}

fn is_ethernet(record_type: u8) -> bool {
    use record_type::*;
    matches!(record_type, ETHERNET | COLOR_ETHERNET | DSM_COLOR_ETHERNET | COLOR_HASH_ETHERNET)
}

fn headers(data: &[u8]) -> Result<Headers<'_>, LinkError> {
    let fixed = chunk::<HEADER_LEN>(data, 0, "ERF header")?;
    let record_type = fixed[8] & !MORE_EXTENSIONS;
    let record_len = usize::from(u16::from_be_bytes([fixed[10], fixed[11]]));
    let wire_len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));

    let mut extensions_end = HEADER_LEN;
    let mut more = fixed[8] & MORE_EXTENSIONS != 0;
    while more {
        let extension = chunk::<EXTENSION_LEN>(data, extensions_end, "ERF extension header")?;
        more = extension[0] & MORE_EXTENSIONS != 0;
        extensions_end += EXTENSION_LEN;
    }
    let padding_len = if is_ethernet(record_type) { ETHERNET_PADDING_LEN } else { 0 };
    let packet_start = extensions_end + padding_len;
    if record_len < packet_start {
        let (length, minimum) = (record_len, packet_start);
        return Err(LinkError::InvalidLength {
            of: "ERF record length",
            offset: 10,
            length,
            minimum,
        });
    }
    if padding_len > 0 {
        chunk::<ETHERNET_PADDING_LEN>(data, extensions_end, "ERF Ethernet padding")?;
    }
    Ok(Headers { fixed, record_type, record_len, wire_len, extensions_end, packet_start })
}

pub(super) fn carried(data: &[u8]) -> Result<Carried<'_>, LinkError> {
    let headers = headers(data)?;
    let offset = headers.packet_start;
    // The record length includes padding after the packet, the wire length includes bytes not
    // captured, and the file may truncate both: the packet ends at the smallest of them.
    let end = data.len().min(headers.record_len).min(offset + headers.wire_len);
    let data = &data[offset..end];
    match headers.record_type {
        ethernet if is_ethernet(ethernet) => Ok(Carried::Ethernet { offset, data }),
        record_type::INFINIBAND => Ok(Carried::Infiniband { offset, data }),
        record_type::INFINIBAND_LINK => Ok(Carried::InfinibandLink { offset, data }),
        record_type::IPV4 => Ok(Carried::Network { ethertype: ETHERTYPE_IPV4, offset, data }),
        record_type::IPV6 => Ok(Carried::Network { ethertype: ETHERTYPE_IPV6, offset, data }),
        erf_type => Err(LinkError::UnsupportedErf { erf_type }),
    }
}

pub(super) fn header(data: &[u8]) -> Result<LinkHeader, LinkError> {
    let headers = headers(data)?;
    let fixed = headers.fixed;
    let [time @ .., _, _, _, _, _, _, _, _] = *fixed;
    let (raw_type, flags) = (fixed[8], fixed[9]);
    let counter = u16::from_be_bytes([fixed[12], fixed[13]]);
    let counter_name = if has_color(headers.record_type) { "color" } else { "loss counter" };
    let type_meaning = match raw_type & MORE_EXTENSIONS {
        0 => type_name(headers.record_type).to_owned(),
        _ => format!("{}, extension headers follow", type_name(headers.record_type)),
    };
    let time = u64::from_le_bytes(time);
    let mut fields = vec![
        LinkField::new("timestamp", 0..8, format_args!("0x{time:016x}"), timestamp(time)),
        LinkField::new("type", 8..9, headers.record_type, type_meaning),
        LinkField::new("flags", 9..10, format_args!("0x{flags:02x}"), flag_names(flags)),
        LinkField::new("record length", 10..12, headers.record_len, ""),
        LinkField::new(counter_name, 12..14, counter, ""),
        LinkField::new("wire length", 14..16, headers.wire_len, ""),
    ];
    for at in (HEADER_LEN..headers.extensions_end).step_by(EXTENSION_LEN) {
        let extension = u64::from_be_bytes(*chunk::<EXTENSION_LEN>(data, at, "extension header")?);
        let range = at..at + EXTENSION_LEN;
        let value = format_args!("0x{extension:016x}").to_string();
        let name = extension_name((extension >> 56) as u8 & !MORE_EXTENSIONS);
        fields.push(LinkField::new("extension header", range, value, name));
    }
    if headers.packet_start > headers.extensions_end {
        let range = headers.extensions_end..headers.packet_start;
        let [offset, padding] = *chunk::<2>(data, headers.extensions_end, "ERF Ethernet padding")?;
        let value = format_args!("{offset:02x} {padding:02x}").to_string();
        fields.push(LinkField::new("Ethernet offset and padding", range, value, ""));
    }
    Ok(LinkHeader { name: "ERF record", fields })
}

/// Formats the timestamp: 32 bits of seconds since the epoch and 32 bits of fraction.
fn timestamp(time: u64) -> String {
    let fraction = ((time & 0xffff_ffff) * 1_000_000_000) >> 32;
    let nanoseconds = (time >> 32) as i64 * 1_000_000_000 + fraction as i64;
    Timestamp::from_nanoseconds(nanoseconds).to_string()
}

fn flag_names(flags: u8) -> String {
    // Bits 0, 1 and 6 are the interface of the card.
    let interface = (flags & 0x03) | (flags & 0x40) >> 4;
    let mut text = format!("capture interface {interface}");
    for (bit, name) in [
        (0x04, ", varying record length"),
        (0x08, ", truncated"),
        (0x10, ", receive error"),
        (0x20, ", internal error"),
    ] {
        if flags & bit != 0 {
            text.push_str(name);
        }
    }
    text
}

/// Whether the loss counter field holds a filter color instead.
fn has_color(record_type: u8) -> bool {
    matches!(record_type, 10 | 11 | 15 | 16 | 17 | 19 | 20)
}

pub(super) fn type_name(record_type: u8) -> &'static str {
    match record_type {
        0 => "LEGACY",
        1 => "HDLC_POS",
        2 => "ETH",
        3 => "ATM",
        4 => "AAL5",
        5 => "MC_HDLC",
        6 => "MC_RAW",
        7 => "MC_ATM",
        8 => "MC_RAW_CHANNEL",
        9 => "MC_AAL5",
        10 => "COLOR_HDLC_POS",
        11 => "COLOR_ETH",
        12 => "MC_AAL2",
        13 => "IP_COUNTER",
        14 => "TCP_FLOW_COUNTER",
        15 => "DSM_COLOR_HDLC_POS",
        16 => "DSM_COLOR_ETH",
        17 => "COLOR_MC_HDLC_POS",
        18 => "AAL2",
        19 => "COLOR_HASH_POS",
        20 => "COLOR_HASH_ETH",
        21 => "INFINIBAND",
        22 => "IPV4",
        23 => "IPV6",
        24 => "RAW_LINK",
        25 => "INFINIBAND_LINK",
        27 => "META",
        28 => "OPA_SNC",
        29 => "OPA_9B",
        48 => "PAD",
        _ => "unknown",
    }
}

fn extension_name(extension_type: u8) -> &'static str {
    match extension_type {
        3 => "classification",
        4 => "intercept id",
        5 => "raw link",
        6 => "BFS filter and hash",
        12 => "channelised",
        14 => "signature",
        15 => "packet id",
        16 => "flow id",
        17 => "host id",
        18 => "anchor id",
        19 => "entropy",
        _ => "unknown",
    }
}

//! Layers below the transport: Ethernet, VLAN tags, IP, UDP, and InfiniBand routing headers.

use ferroce_wire::ethernet::{EtherType, Vlan};
use ferroce_wire::field::{Header, Meaning, Show, Value};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::infiniband::{Grh, Lrh};
use ferroce_wire::ip::{Ipv4, Ipv6, ROCE_PORT, Udp};

use super::build::Builder;
use super::checksum;

/// Adds every layer below the transport.
pub(super) fn layers(builder: &mut Builder<'_>, frame: &Frame<'_>) {
    if let Some(ethernet) = &frame.ethernet {
        let (from, to) = (ethernet.source, ethernet.destination);
        let summary = format!("{from} → {to}  {}", name_or_number(&ethernet.ethertype));
        builder.header(ethernet, summary);
    }
    for vlan in frame.vlans.iter().flatten() {
        builder.header(vlan, vlan_summary(vlan));
    }
    match &frame.network {
        Some(Network::Ipv4(ip, options)) => ipv4(builder, ip, options),
        Some(Network::Ipv6(ip)) => ipv6(builder, ip),
        Some(Network::Grh(grh)) => global(builder, grh),
        Some(Network::Lrh(lrh, grh)) => {
            local(builder, lrh);
            if let Some(grh) = grh {
                global(builder, grh);
            }
        }
        None => {}
    }
    if let Some(udp) = &frame.udp {
        let (verdict, meaning) = checksum::udp(frame, udp);
        let layer = builder.header(udp, udp_summary(udp));
        if udp.destination_port == ROCE_PORT {
            layer.explain("destination_port", "RoCEv2");
        }
        match verdict {
            Some(verdict) => layer.set_verdict("checksum", verdict, meaning),
            None => layer.explain("checksum", meaning),
        };
    }
}

fn vlan_summary(vlan: &Vlan) -> String {
    let next = name_or_number(&vlan.ethertype);
    format!("VLAN {}, priority {}  {next}", vlan.identifier, vlan.priority)
}

fn ipv4(builder: &mut Builder<'_>, ip: &Ipv4, options: &[u8]) {
    let summary = format!("{} → {}  {}", ip.source, ip.destination, name_or_number(&ip.protocol));
    let start = builder.at;
    let header = builder.bytes.get(start..start + Ipv4::LEN + options.len()).unwrap_or_default();
    let (verdict, meaning) = checksum::ipv4(header);
    let layer = builder.header(ip, summary);
    layer
        .explain("header_words", format!("{} bytes", ip.header_len()))
        .explain("dscp", dscp(ip.dscp))
        .set_verdict("checksum", verdict, meaning);
    if ip.fragment_offset != 0 {
        layer.explain("fragment_offset", format!("byte {}", u32::from(ip.fragment_offset) * 8));
    }
    builder.data("IPv4 options", options.len(), bytes(options.len()));
}

fn ipv6(builder: &mut Builder<'_>, ip: &Ipv6) {
    let summary =
        format!("{} → {}  {}", ip.source, ip.destination, name_or_number(&ip.next_header));
    builder.header(ip, summary).explain("dscp", dscp(ip.dscp));
}

fn global(builder: &mut Builder<'_>, grh: &Grh) {
    let summary =
        format!("{} → {}  {}", grh.source, grh.destination, name_or_number(&grh.next_header));
    builder.header(grh, summary);
}

fn local(builder: &mut Builder<'_>, lrh: &Lrh) {
    let next = name_or_number(&lrh.next_header);
    let summary = format!("LID {} → {}  {next}", lrh.source, lrh.destination);
    let len = format!("{} bytes", usize::from(lrh.packet_length) * 4);
    builder.header(lrh, summary).explain("packet_length", len);
}

fn udp_summary(udp: &Udp) -> String {
    let kind = if udp.destination_port == ROCE_PORT { " (RoCEv2)" } else { "" };
    format!("{} → {}{kind}", udp.source_port, udp.destination_port)
}

/// A code's name, or its number if it has none.
pub(super) fn name_or_number(code: &dyn Show) -> String {
    match Meaning(code).to_string() {
        name if name.is_empty() => Value(code).to_string(),
        name => name,
    }
}

/// The usual name of a differentiated services code point (RFC 2474, RFC 2597, RFC 3246).
fn dscp(code: u8) -> String {
    match (code / 8, code % 8) {
        (0, 0) => "default".to_owned(),
        (5, 6) => "EF, expedited forwarding".to_owned(),
        (class, 0) => format!("CS{class}, class selector"),
        (class @ 1..=4, drop @ (2 | 4 | 6)) => format!("AF{class}{}, assured forwarding", drop / 2),
        _ => String::new(),
    }
}

/// A byte count with its noun.
pub(super) fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}

/// The name of the network layer, for frames that are not RoCE.
pub(super) fn network_name(frame: &Frame<'_>) -> Option<&'static str> {
    match frame.network? {
        Network::Ipv4(..) => Some(Ipv4::NAME),
        Network::Ipv6(_) => Some(Ipv6::NAME),
        Network::Grh(_) => Some(Grh::NAME),
        Network::Lrh(..) => Some(Lrh::NAME),
    }
}

/// The name of an EtherType, or its number.
pub(super) fn ethertype_name(ethertype: EtherType) -> String {
    match name_or_number(&ethertype) {
        number if number.starts_with("0x") => format!("EtherType {number}"),
        name => name,
    }
}

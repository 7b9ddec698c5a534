//! The protocol hierarchy: packets counted by protocol, layer by layer.

use ferroce_wire::ethernet::EtherType;
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::ip::IpProtocol;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{Operation, Transport};

use super::report::HierarchyNode;
use crate::link::LinkType;

/// The hierarchy under construction. Names come from a fixed set, so its size is bounded.
#[derive(Debug, Default)]
pub(super) struct Hierarchy {
    roots: Vec<HierarchyNode>,
}

impl Hierarchy {
    pub(super) fn add(&mut self, link: LinkType, frame: &Frame<'_>, bytes: u64) {
        let mut nodes = &mut self.roots;
        for name in std::iter::once(link_name(link)).chain(layers(frame).into_iter().flatten()) {
            let at = nodes.iter().position(|node| node.name == name).unwrap_or_else(|| {
                nodes.push(HierarchyNode { name, packets: 0, bytes: 0, children: Vec::new() });
                nodes.len() - 1
            });
            let node = &mut nodes[at];
            node.packets += 1;
            node.bytes += bytes;
            nodes = &mut node.children;
        }
    }

    /// Returns the tree, sorted by packet count on every level.
    pub(super) fn finish(mut self) -> Vec<HierarchyNode> {
        sort(&mut self.roots);
        self.roots
    }
}

fn sort(nodes: &mut [HierarchyNode]) {
    nodes.sort_by_key(|node| std::cmp::Reverse(node.packets));
    nodes.iter_mut().for_each(|node| sort(&mut node.children));
}

/// The layers of a frame, outermost first.
fn layers(frame: &Frame<'_>) -> [Option<&'static str>; 6] {
    let vlan = frame.vlans[0].map(|_| "VLAN");
    let (network, above) = match frame.network {
        Some(Network::Ipv4(ip, _)) => ("IPv4", Some(ip.protocol)),
        Some(Network::Ipv6(ip)) => ("IPv6", Some(ip.next_header)),
        Some(Network::Grh(_)) => ("RoCEv1", None),
        Some(Network::Lrh(_, Some(_))) => ("InfiniBand, global", None),
        Some(Network::Lrh(_, None)) => ("InfiniBand, local", None),
        None => (frame.ethertype.map_or("unreadable", ethertype_name), None),
    };
    let transport = above.map(protocol_name);
    let roce = (above.is_some() && frame.is_roce()).then_some("RoCEv2");
    let service = match &frame.packet {
        Some(packet) => Some(match packet.bth.opcode.info() {
            Some(info) => match info.transport {
                Transport::ReliableConnection => "RC",
                Transport::UnreliableConnection => "UC",
                Transport::ReliableDatagram => "RD",
                Transport::UnreliableDatagram => "UD",
                Transport::CongestionNotification => "CNP",
                Transport::ExtendedReliableConnection => "XRC",
            },
            None => "unknown opcode",
        }),
        None if frame.problem.is_some() && frame.network.is_some() => Some("unreadable"),
        None => None,
    };
    let operation = frame.packet.as_ref().and_then(|packet| {
        let info = packet.bth.opcode.info()?;
        let management = info.transport == Transport::UnreliableDatagram
            && packet.bth.destination == Qpn::GENERAL_SERVICES;
        Some(if management { "management" } else { operation_name(info.operation) })
    });
    [vlan, Some(network), transport, roce, service, operation]
}

/// The name of an operation in reports.
pub(super) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "SEND",
        Operation::Write => "RDMA_WRITE",
        Operation::ReadRequest => "RDMA_READ",
        Operation::ReadResponse => "RDMA_READ_RESPONSE",
        Operation::Acknowledge => "ACKNOWLEDGE",
        Operation::AtomicAcknowledge => "ATOMIC_ACKNOWLEDGE",
        Operation::CompareSwap => "COMPARE_SWAP",
        Operation::FetchAdd => "FETCH_ADD",
        Operation::Resync => "RESYNC",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC_WRITE",
        Operation::CongestionNotification => "CNP",
    }
}

fn link_name(link: LinkType) -> &'static str {
    match link {
        LinkType::ETHERNET => "Ethernet",
        LinkType::LINUX_SLL => "Linux cooked",
        LinkType::LINUX_SLL2 => "Linux cooked, version 2",
        LinkType::NULL | LinkType::LOOP => "loopback",
        LinkType::ERF => "ERF",
        LinkType::INFINIBAND => "InfiniBand link",
        _ => "raw IP",
    }
}

fn ethertype_name(ethertype: EtherType) -> &'static str {
    match ethertype {
        EtherType(0x0806) => "ARP",
        EtherType(0x88cc) => "LLDP",
        EtherType(0x8808) => "flow control",
        EtherType::IPV4 | EtherType::IPV6 | EtherType::ROCE_V1 => "unreadable",
        _ => "other",
    }
}

fn protocol_name(protocol: IpProtocol) -> &'static str {
    match protocol.0 {
        1 => "ICMP",
        6 => "TCP",
        17 => "UDP",
        44 => "fragment",
        58 => "ICMPv6",
        _ => "other",
    }
}

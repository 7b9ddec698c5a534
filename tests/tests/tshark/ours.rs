//! One packet as Ferroce parses it, layer by layer, each with its position in the record.

use std::ops::Range;

use ferroce_tests::capture::Recorded;
use ferroce_tests::sample::emit;
use ferroce_trace::link::{self, Carried, LinkType};
use ferroce_wire::cm::{CmMessage, Req};
use ferroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use ferroce_wire::field::{FieldSpec, Header};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::infiniband::{Grh, Lrh};
use ferroce_wire::ip::{Ipv4, Ipv6, Udp};
use ferroce_wire::mad::{Mad, MadHeader};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Extensions;
use ferroce_wire::packet::Packet;
use ferroce_wire::rdmacm::{self, IpHeader};
use ferroce_wire::transport::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};

/// A packet, with the connection management message in it.
pub struct Ours<'a> {
    /// The frame.
    pub frame: Frame<'a>,
    /// Its offset in the record, as tshark counts.
    start: usize,
    /// The EtherType in the capture's link header.
    carried: Option<EtherType>,
    /// The record as we would write it; empty if the frame is incomplete.
    emitted: Vec<u8>,
    /// The management datagram in it, if it is one.
    pub mad: Option<Mad<'a>>,
    /// The message in the management datagram.
    pub message: Option<CmMessage>,
}

/// A cooked header is at least this long; a loopback header, which has no EtherType, is shorter.
const COOKED_LEN: usize = 16;

/// A header and its offset.
pub type Located<H> = Option<(H, usize)>;

impl<'a> Ours<'a> {
    pub fn read(recorded: &'a Recorded) -> Self {
        let (start, frame) = recorded.frame();
        let carried = match link::network(recorded.link, &recorded.data) {
            Ok(Carried::Network { ethertype, .. }) => Some(EtherType(ethertype)),
            _ => None,
        };
        // tshark does not count the ERF header.
        let start = if recorded.link == LinkType::ERF { 0 } else { start };
        let emitted = emit(&frame).map(|bytes| [&recorded.data[..start], &bytes].concat());
        let to_general_services =
            |packet: &Packet<'_>| packet.bth.destination == Qpn::GENERAL_SERVICES;
        let mad = frame.packet.filter(to_general_services);
        let mad = mad.and_then(|packet| Mad::parse(packet.payload).ok());
        let message = mad.and_then(|mad| CmMessage::from_mad(&mad).ok());
        Self { frame, start, carried, emitted: emitted.unwrap_or_default(), mad, message }
    }

    /// Returns the record as we would write it.
    pub fn emitted(&self) -> &[u8] {
        &self.emitted
    }

    fn packet(&self) -> Option<&Packet<'a>> {
        self.frame.packet.as_ref()
    }

    fn network_at(&self) -> usize {
        self.start + self.frame.at.network
    }

    pub fn transport_at(&self) -> usize {
        self.start + self.frame.at.transport
    }

    fn extension_at(&self, bit: Extensions) -> Option<usize> {
        let set = self.packet()?.extensions.set();
        let before = set.iter().take_while(|one| one.bit != bit).map(|one| one.len).sum::<usize>();
        Some(self.transport_at() + Bth::LEN + before)
    }

    /// Returns the offset of the payload.
    pub fn payload_at(&self) -> Option<usize> {
        Some(self.transport_at() + Bth::LEN + self.packet()?.extensions.set().len())
    }

    pub fn ethernet(&self) -> Located<Ethernet> {
        Some((self.frame.ethernet?, self.start))
    }

    pub fn vlan(&self, index: usize) -> Located<Vlan> {
        let tags = self.frame.vlans.iter().flatten().count();
        let vlan = self.frame.vlans[index]?;
        Some((vlan, self.network_at() - (tags - index) * Vlan::LEN))
    }

    /// Returns the EtherType before a VLAN tag.
    pub fn ethertype_before_tag(&self, index: usize) -> Option<EtherType> {
        match index.checked_sub(1) {
            Some(outer) => Some(self.frame.vlans[outer]?.ethertype),
            None => self.frame.ethernet.map(|ethernet| ethernet.ethertype).or(self.carried),
        }
    }

    /// Returns the EtherType in the header of a cooked capture.
    pub fn cooked_ethertype(&self) -> Option<EtherType> {
        self.carried.filter(|_| self.start >= COOKED_LEN)
    }

    pub fn ipv4(&self) -> Located<Ipv4> {
        match self.frame.network? {
            Network::Ipv4(ip, _) => Some((ip, self.network_at())),
            _ => None,
        }
    }

    pub fn ipv6(&self) -> Located<Ipv6> {
        match self.frame.network? {
            Network::Ipv6(ip) => Some((ip, self.network_at())),
            _ => None,
        }
    }

    pub fn udp(&self) -> Located<Udp> {
        Some((self.frame.udp?, self.start + self.frame.at.udp))
    }

    pub fn lrh(&self) -> Located<Lrh> {
        match self.frame.network? {
            Network::Lrh(lrh, _) => Some((lrh, self.network_at())),
            _ => None,
        }
    }

    pub fn grh(&self) -> Located<Grh> {
        match self.frame.network? {
            Network::Grh(grh) => Some((grh, self.network_at())),
            Network::Lrh(_, Some(grh)) => Some((grh, self.network_at() + Lrh::LEN)),
            _ => None,
        }
    }

    pub fn bth(&self) -> Located<Bth> {
        Some((self.packet()?.bth, self.transport_at()))
    }

    pub fn mad_header(&self) -> Located<MadHeader> {
        Some((self.mad?.header, self.payload_at()?))
    }

    /// Where the class's data starts in a management datagram.
    pub fn message_at(&self) -> Option<usize> {
        Some(self.mad_header()?.1 + MadHeader::LEN)
    }

    /// RDMA-CM's header in the private data of a REQ.
    pub fn ip_header(&self) -> Located<IpHeader> {
        let Some(CmMessage::Req(req)) = &self.message else { return None };
        let (header, _) = rdmacm::split_private_data(req.service_id, &req.private_data.0).ok()?;
        Some((header, field_place::<Req>(self.message_at()?, "private_data").start))
    }

    /// All fields that we name, with the bytes they lie in.
    pub fn fields(&self) -> Vec<(&'static FieldSpec, Range<usize>)> {
        let mut fields = Vec::new();
        let mut add = |specs: &'static [FieldSpec], at: usize| {
            fields.extend(specs.iter().map(|spec| (spec, moved(spec.bytes(), at))));
        };
        macro_rules! add {
            ($($layer:ident),+) => {$(
                if let Some((header, at)) = self.$layer() {
                    add(specs_of(&header), at);
                }
            )+};
        }
        add!(ipv4, ipv6, udp, lrh, grh, bth, rdeth, deth, xrceth, feth, reth, atomic, aeth);
        add!(atomic_ack, immediate, ieth, mad_header, ip_header);
        if let (Some(message), Some(at)) = (&self.message, self.message_at()) {
            add(message.fields(), at);
        }
        fields
    }
}

macro_rules! extensions {
    ($($field:ident $bit:ident $header:ident),+ $(,)?) => {
        impl Ours<'_> {
            $(pub fn $field(&self) -> Located<$header> {
                Some((self.packet()?.extensions.$field?, self.extension_at(Extensions::$bit)?))
            })+
        }
    };
}

extensions! {
    rdeth RDETH Rdeth, deth DETH Deth, xrceth XRCETH Xrceth, feth FETH Feth, reth RETH Reth,
    atomic ATOMIC AtomicEth, aeth AETH Aeth, atomic_ack ATOMIC_ACK AtomicAckEth,
    immediate IMMEDIATE ImmDt, ieth IETH Ieth,
}

fn specs_of<H: Header>(_: &H) -> &'static [FieldSpec] {
    H::FIELDS
}

/// The bytes of a field in a header that starts at `at`.
pub fn field_place<H: Header>(at: usize, name: &str) -> Range<usize> {
    let spec = H::FIELDS.iter().find(|spec| spec.name == name);
    moved(spec.unwrap_or_else(|| panic!("{} has no {name}", H::NAME)).bytes(), at)
}

fn moved(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

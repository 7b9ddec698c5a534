//! Maps tshark's fields to ours: one row for each name that tshark prints.

use std::ops::Range;

use ferroce_wire::ethernet::{EtherType, Ethernet, Vlan};
use ferroce_wire::frame::Network;
use ferroce_wire::infiniband::{Grh, Lrh};
use ferroce_wire::ip::{Ipv4, Ipv6, Udp};
use ferroce_wire::mad::MadHeader;
use ferroce_wire::packet::ICRC_LEN;
use ferroce_wire::syndrome::SyndromeKind;
use ferroce_wire::transport::{Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Ieth, ImmDt, Rdeth, Reth};

use super::ours::{Located, Ours, field_place};
use super::table_cm;
use super::value::{FieldValue, Value};

/// A name of tshark, and our values for it in a packet: none, one, or several.
pub struct Row {
    pub name: &'static str,
    pub part: Part,
    pub ours: fn(&Ours<'_>) -> Vec<Found>,
}

/// The part of a packet that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything up to the BTH.
    Front,
    /// What follows the BTH: if tshark does not know an opcode, it cannot know these.
    BehindBth,
}

/// Our value, and its position in the record.
pub struct Found {
    pub value: Value,
    pub place: Range<usize>,
    /// Whether only another version of tshark prints this.
    pub alternative: bool,
}

impl Found {
    /// Returns a value at `place`.
    pub fn at(place: Range<usize>, value: &dyn FieldValue) -> Vec<Self> {
        vec![Self { value: value.value(), place, alternative: false }]
    }

    /// Returns a field of a header, or a value derived from it.
    pub fn in_field<H: ferroce_wire::field::Header>(
        at: usize,
        field: &str,
        value: &dyn FieldValue,
    ) -> Vec<Self> {
        Self::at(field_place::<H>(at, field), value)
    }

    /// Marks values that only another version of tshark prints.
    pub fn as_alternatives(found: Vec<Self>) -> Vec<Self> {
        found.into_iter().map(|found| Self { alternative: true, ..found }).collect()
    }

    /// Returns bytes from `at` on.
    pub fn bytes(at: usize, bytes: &[u8]) -> Vec<Self> {
        let (value, place) = (Value::Bytes(bytes.to_vec()), at..at + bytes.len());
        vec![Self { value, place, alternative: false }]
    }
}

/// Rows for the fields of one header: tshark's name, our field. A leading `=` means the header as a whole.
macro_rules! header_rows {
    ($part:ident $header:ident, $locate:expr; $(= $whole:literal;)? $($name:literal: $field:ident,)*) => {
        vec![
            $(super::table::Row {
                name: $whole,
                part: super::table::Part::$part,
                ours: |ours| match $locate(ours) {
                    Some((header, at)) => super::table::Found::bytes(at, &header.to_bytes()),
                    None => Vec::new(),
                },
            },)?
            $(super::table::Row {
                name: $name,
                part: super::table::Part::$part,
                ours: |ours| match $locate(ours) {
                    Some((header, at)) => {
                        super::table::Found::in_field::<$header>(at, stringify!($field), &header.$field)
                    }
                    None => Vec::new(),
                },
            },)*
        ]
    };
}
pub(crate) use header_rows;

/// Rows that need more than one field: tshark's name, and a function that returns our values.
macro_rules! rows {
    ($part:ident; $($name:literal: $ours:expr,)+) => {
        vec![$(super::table::Row {
            name: $name,
            part: super::table::Part::$part,
            ours: |ours| {
                let ours_or_none: fn(&Ours<'_>) -> Option<Vec<super::table::Found>> = $ours;
                ours_or_none(ours).unwrap_or_default()
            },
        }),+]
    };
}
pub(crate) use rows;

/// Returns every row. Each name is in one row only.
pub fn all() -> Vec<Row> {
    let rows: Vec<Row> = [
        link(),
        ip(),
        infiniband(),
        base_transport(),
        extensions(),
        syndrome(),
        body(),
        table_cm::all(),
    ]
    .into_iter()
    .flatten()
    .collect();
    for (index, row) in rows.iter().enumerate() {
        assert!(rows[..index].iter().all(|other| other.name != row.name), "{} twice", row.name);
    }
    rows
}

/// Returns the tag after an EtherType.
fn tag_behind(ours: &Ours<'_>, ethertype: EtherType) -> Located<Vlan> {
    (0..2)
        .find(|&index| ours.ethertype_before_tag(index) == Some(ethertype))
        .and_then(|i| ours.vlan(i))
}

fn customer_tag(ours: &Ours<'_>) -> Located<Vlan> {
    tag_behind(ours, EtherType::VLAN)
}

fn service_tag(ours: &Ours<'_>) -> Located<Vlan> {
    tag_behind(ours, EtherType::SERVICE_VLAN)
}

fn link() -> Vec<Row> {
    let ethernet = header_rows!(Front Ethernet, Ours::ethernet;
        "eth.dst": destination,
        "eth.src": source,
        "eth.type": ethertype,
    );
    let customer = header_rows!(Front Vlan, customer_tag;
        "vlan.priority": priority,
        "vlan.dei": drop_eligible,
        "vlan.id": identifier,
        "vlan.etype": ethertype,
    );
    let service = header_rows!(Front Vlan, service_tag;
        "ieee8021ad.priority": priority,
        "ieee8021ad.dei": drop_eligible,
        "ieee8021ad.id": identifier,
        // tshark borrows the name from provider backbone bridges.
        "ieee8021ah.etype": ethertype,
    );
    let cooked = rows!(Front;
        "sll.etype": |ours| Some(Found::at(0..0, &ours.cooked_ethertype()?)),
    );
    [ethernet, customer, service, cooked].into_iter().flatten().collect()
}

fn ip() -> Vec<Row> {
    let ipv4 = header_rows!(Front Ipv4, Ours::ipv4;
        "ip.dsfield.dscp": dscp,
        "ip.dsfield.ecn": ecn,
        "ip.len": total_length,
        "ip.id": identification,
        "ip.flags.rb": reserved,
        "ip.flags.df": dont_fragment,
        "ip.flags.mf": more_fragments,
        "ip.frag_offset": fragment_offset,
        "ip.ttl": time_to_live,
        "ip.proto": protocol,
        "ip.checksum": checksum,
        "ip.src": source,
        "ip.dst": destination,
    );
    let ipv4_combined = rows!(Front;
        // For both IPs, although IPv6 also has its own name.
        "ip.version": |ours| match (ours.ipv4(), ours.ipv6()) {
            (Some((ip, at)), _) => Some(Found::in_field::<Ipv4>(at, "version", &ip.version)),
            (_, Some((ip, at))) => Some(Found::in_field::<Ipv6>(at, "version", &ip.version)),
            _ => None,
        },
        "ip.hdr_len": |ours| {
            let (ip, at) = ours.ipv4()?;
            Some(Found::in_field::<Ipv4>(at, "header_words", &(ip.header_len() as u64)))
        },
        "ip.dsfield": |ours| {
            let (ip, at) = ours.ipv4()?;
            Some(Found::in_field::<Ipv4>(at, "dscp", &(ip.dscp << 2 | ip.ecn.0)))
        },
        "ip.flags": |ours| {
            let (ip, at) = ours.ipv4()?;
            let flags = [ip.reserved, ip.dont_fragment, ip.more_fragments];
            let number = flags.into_iter().fold(0, |number, flag| number << 1 | u8::from(flag));
            Some(Found::in_field::<Ipv4>(at, "dont_fragment", &number))
        },
        // Samples have options of one byte only.
        "ip.opt.type": |ours| {
            let (Some(Network::Ipv4(_, options)), (_, at)) = (ours.frame.network, ours.ipv4()?) else {
                return None;
            };
            let places = at + Ipv4::LEN..;
            Some(places.zip(options).flat_map(|(at, byte)| Found::at(at..at + 1, byte)).collect())
        },
    );
    let ipv6 = header_rows!(Front Ipv6, Ours::ipv6;
        "ipv6.version": version,
        "ipv6.tclass.dscp": dscp,
        "ipv6.tclass.ecn": ecn,
        "ipv6.flow": flow_label,
        "ipv6.plen": payload_length,
        "ipv6.nxt": next_header,
        "ipv6.hlim": hop_limit,
        "ipv6.src": source,
        "ipv6.dst": destination,
    );
    let ipv6_combined = rows!(Front;
        "ipv6.tclass": |ours| {
            let (ip, at) = ours.ipv6()?;
            Some(Found::in_field::<Ipv6>(at, "dscp", &(ip.dscp << 2 | ip.ecn.0)))
        },
    );
    let udp = header_rows!(Front Udp, Ours::udp;
        "udp.srcport": source_port,
        "udp.dstport": destination_port,
        "udp.length": length,
        "udp.checksum": checksum,
    );
    let udp_payload = rows!(Front;
        "udp.payload": |ours| {
            let (udp, at) = ours.udp()?;
            let at = at + Udp::LEN;
            let end = at + usize::from(udp.length) - Udp::LEN;
            Some(Found::bytes(at, ours.emitted().get(at..end)?))
        },
    );
    [ipv4, ipv4_combined, ipv6, ipv6_combined, udp, udp_payload].into_iter().flatten().collect()
}

fn infiniband() -> Vec<Row> {
    let lrh = header_rows!(Front Lrh, Ours::lrh;
        = "infiniband.lrh";
        "infiniband.lrh.vl": virtual_lane,
        "infiniband.lrh.lver": version,
        "infiniband.lrh.sl": service_level,
        "infiniband.lrh.reserved2": reserved1,
        "infiniband.lrh.lnh": next_header,
        "infiniband.lrh.dlid": destination,
        "infiniband.lrh.reserved5": reserved2,
        "infiniband.lrh.pktlen": packet_length,
        "infiniband.lrh.slid": source,
    );
    let grh = header_rows!(Front Grh, Ours::grh;
        = "infiniband.grh";
        "infiniband.grh.ipver": version,
        "infiniband.grh.tclass": traffic_class,
        "infiniband.grh.flowlabel": flow_label,
        "infiniband.grh.paylen": payload_length,
        "infiniband.grh.nxthdr": next_header,
        "infiniband.grh.hoplmt": hop_limit,
        "infiniband.grh.sgid": source,
        "infiniband.grh.dgid": destination,
    );
    [lrh, grh].into_iter().flatten().collect()
}

fn base_transport() -> Vec<Row> {
    // tshark derives its length from the opcode.
    let whole = header_rows!(BehindBth Bth, Ours::bth;
        = "infiniband.bth";
    );
    let fields = header_rows!(Front Bth, Ours::bth;
        "infiniband.bth.opcode": opcode,
        "infiniband.bth.se": solicited,
        "infiniband.bth.m": migrated,
        "infiniband.bth.padcnt": pad,
        "infiniband.bth.tver": version,
        "infiniband.bth.p_key": partition,
        "infiniband.bth.destqp": destination,
        "infiniband.bth.a": ack_request,
        "infiniband.bth.reserved7": reserved2,
        "infiniband.bth.psn": psn,
    );
    [whole, fields].into_iter().flatten().collect()
}

fn extensions() -> Vec<Row> {
    let rdeth = header_rows!(BehindBth Rdeth, Ours::rdeth;
        = "infiniband.rdeth";
        "infiniband.rdeth.eecnxt": context,
    );
    let deth = header_rows!(BehindBth Deth, Ours::deth;
        = "infiniband.deth";
        "infiniband.deth.q_key": queue_key,
        "infiniband.deth.srcqp": source,
    );
    let feth = header_rows!(BehindBth Feth, Ours::feth;
        = "infiniband.feth";
    );
    // tshark 4.4 has a placement type of 3 bits after 2 bits of selectivity. The kernel's rdma_rxe has one of 4 bits,
    // and so do we. So tshark's values differ from those sent, and are compared as the bits that it takes.
    fn feth_bits(ours: &Ours<'_>, shift: u32, mask: u32) -> Option<Vec<Found>> {
        let (feth, at) = ours.feth()?;
        Some(Found::at(at + 3..at + 4, &(u32::from_be_bytes(feth.to_bytes()) >> shift & mask)))
    }
    let feth_fields = rows!(BehindBth;
        "infiniband.feth.reserved27": |ours| feth_bits(ours, 5, 0x7ff_ffff),
        "infiniband.feth.sel": |ours| feth_bits(ours, 3, 3),
        "infiniband.feth.plt": |ours| feth_bits(ours, 0, 7),
    );
    let reth = header_rows!(BehindBth Reth, Ours::reth;
        = "infiniband.reth";
        "infiniband.reth.dmalen": length,
    );
    // tshark gives the address and the key of both headers the names of the RETH's.
    let both = rows!(BehindBth;
        "infiniband.reth.va": |ours| match (ours.reth(), ours.atomic()) {
            (Some((reth, at)), _) => Some(Found::in_field::<Reth>(at, "address", &reth.address)),
            (_, Some((atomic, at))) => {
                Some(Found::in_field::<AtomicEth>(at, "address", &atomic.address))
            }
            _ => None,
        },
        "infiniband.reth.r_key": |ours| match (ours.reth(), ours.atomic()) {
            (Some((reth, at)), _) => Some(Found::in_field::<Reth>(at, "key", &reth.key)),
            (_, Some((atomic, at))) => Some(Found::in_field::<AtomicEth>(at, "key", &atomic.key)),
            _ => None,
        },
    );
    let atomic = header_rows!(BehindBth AtomicEth, Ours::atomic;
        = "infiniband.atomiceth";
        "infiniband.atomiceth.swapdt": swap_or_add,
        "infiniband.atomiceth.cmpdt": compare,
    );
    let aeth = header_rows!(BehindBth Aeth, Ours::aeth;
        = "infiniband.aeth";
        "infiniband.aeth.syndrome": syndrome,
        "infiniband.aeth.msn": msn,
    );
    let atomic_ack = header_rows!(BehindBth AtomicAckEth, Ours::atomic_ack;
        = "infiniband.atomicacketh";
        "infiniband.atomicacketh.origremdt": original,
    );
    // The header and its only field have one name, and tshark prints both.
    let one_field = rows!(BehindBth;
        "infiniband.immdt": |ours| {
            let (immediate, at) = ours.immediate()?;
            Some(Found::bytes(at, &ImmDt { value: immediate.value }.to_bytes()))
        },
        "infiniband.ieth": |ours| {
            let (ieth, at) = ours.ieth()?;
            Some(Found::bytes(at, &Ieth { key: ieth.key }.to_bytes()))
        },
    );
    [rdeth, deth, feth, feth_fields, reth, both, atomic, aeth, atomic_ack, one_field]
        .into_iter()
        .flatten()
        .collect()
}

/// The parts of the syndrome. tshark ignores the reserved bit when it distinguishes the kinds; we do not.
fn syndrome() -> Vec<Row> {
    fn part(
        ours: &Ours<'_>,
        kind: u8,
        meaning: fn(SyndromeKind) -> Option<u8>,
    ) -> Option<Vec<Found>> {
        let (aeth, at) = ours.aeth()?;
        let byte = aeth.syndrome.0;
        let value = match aeth.syndrome.kind() {
            _ if byte >> 5 & 3 != kind => return None,
            SyndromeKind::Reserved => byte & 0x1f,
            known => meaning(known)?,
        };
        Some(Found::in_field::<Aeth>(at, "syndrome", &value))
    }
    rows!(BehindBth;
        "infiniband.aeth.syndrome.reserved": |ours| {
            let (aeth, at) = ours.aeth()?;
            Some(Found::in_field::<Aeth>(at, "syndrome", &(aeth.syndrome.0 >> 7)))
        },
        "infiniband.aeth.syndrome.opcode": |ours| {
            let (aeth, at) = ours.aeth()?;
            let kind = match aeth.syndrome.kind() {
                SyndromeKind::Ack(_) => 0,
                SyndromeKind::RnrNak(_) => 1,
                SyndromeKind::Nak(_) => 3,
                SyndromeKind::Reserved => aeth.syndrome.0 >> 5 & 3,
            };
            Some(Found::in_field::<Aeth>(at, "syndrome", &kind))
        },
        "infiniband.aeth.syndrome.credit_count": |ours| part(ours, 0, |kind| match kind {
            SyndromeKind::Ack(credits) => Some(credits.code()),
            _ => None,
        }),
        "infiniband.aeth.syndrome.timer": |ours| part(ours, 1, |kind| match kind {
            SyndromeKind::RnrNak(timer) => Some(timer.code()),
            _ => None,
        }),
        "infiniband.aeth.syndrome.reserved_value": |ours| part(ours, 2, |_| None),
        "infiniband.aeth.syndrome.error_code": |ours| part(ours, 3, |kind| match kind {
            SyndromeKind::Nak(code) => Some(code.code()),
            _ => None,
        }),
    )
}

/// Payload, management datagrams, and the CRCs.
fn body() -> Vec<Row> {
    /// Payload and pad, which tshark does not remove. None if it is a management datagram.
    fn data(ours: &Ours<'_>) -> Option<(Vec<u8>, usize)> {
        let packet = ours.frame.packet.filter(|_| ours.mad.is_none())?;
        let bytes = [packet.payload, packet.pad].concat();
        (!bytes.is_empty()).then_some((bytes, ours.payload_at()?))
    }
    let body = rows!(BehindBth;
        "data.data": |ours| data(ours).map(|(bytes, at)| Found::bytes(at, &bytes)),
        "data.len": |ours| data(ours).map(|(bytes, _)| Found::at(0..0, &(bytes.len() as u64))),
        "infiniband.invariant.crc": |ours| {
            let packet = ours.frame.packet?;
            let end = ours.transport_at() + packet.wire_len();
            Some(Found::at(end - ICRC_LEN..end, &u32::from_be_bytes(packet.icrc?)))
        },
        "infiniband.variant.crc": |ours| {
            ours.lrh()?;
            let crc = ours.frame.trailer.first_chunk::<2>()?;
            let at = ours.transport_at() + ours.frame.packet?.wire_len();
            Some(Found::at(at..at + 2, &u16::from_be_bytes(*crc)))
        },
        "infiniband.mad": |ours| Some(Found::bytes(ours.payload_at()?, &ours.mad?.to_bytes())),
        "infiniband.mad.data": |ours| Some(Found::bytes(ours.message_at()?, ours.mad?.data)),
        // tshark prints every connection manager message under this name of another class.
        "infiniband.smplid.smpdata": |ours| {
            Some(Found::bytes(ours.message_at()?, &ours.message?.to_bytes()))
        },
    );
    let mad = header_rows!(BehindBth MadHeader, Ours::mad_header;
        "infiniband.mad.baseversion": base_version,
        "infiniband.mad.mgmtclass": class,
        "infiniband.mad.classversion": class_version,
        "infiniband.mad.method": method,
        "infiniband.mad.status": status,
        "infiniband.mad.classspecific": class_specific,
        "infiniband.mad.transactionid": transaction,
        "infiniband.mad.attributeid": attribute,
        "infiniband.mad.attributemodifier": modifier,
    );
    [body, mad].into_iter().flatten().collect()
}

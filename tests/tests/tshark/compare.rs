//! Compares packet by packet, field by field, in both directions.

use std::collections::BTreeMap;
use std::ops::Range;

use ferroce_tests::capture::Recorded;
use ferroce_wire::opcode::{Opcode, Operation, Transport};

use super::ours::Ours;
use super::pdml;
use super::table::{self, Part, Row};

/// tshark's name for every byte that a header reserves.
const RESERVED: &str = "infiniband.reserved";

/// Our fields in bytes that tshark calls reserved, with the reason.
const RESERVED_TO_TSHARK: [(&str, &str); 6] = [
    ("fecn", "named by the RoCEv2 annex, which tshark does not follow in the BTH"),
    ("becn", "the same"),
    ("vendor_id", "of REQ, named by IBA release 1.3, which tshark does not follow"),
    ("vendor_id_high", "of REP, the same"),
    ("vendor_id_middle", "the same"),
    ("vendor_id_low", "the same"),
];

/// Prefixes of names that are printed and not compared, and why.
const IGNORED: &[(&str, &str)] = &[
    ("frame.", "what tshark says about the record; the readers' own tests compare it"),
    ("eth.addr", "the source and the destination once more"),
    ("eth.dst.", "parts of the destination"),
    ("eth.dst_", "the destination's name"),
    ("eth.src.", "parts of the source"),
    ("eth.src_", "the source's name"),
    ("eth.ig", "a bit of an address"),
    ("eth.lg", "a bit of an address"),
    ("eth.fcs", "behind the packet"),
    ("eth.stream", "tshark's count"),
    ("vlan.trailer", "behind the packet"),
    ("sll.", "the capture's own header; the tests of ferroce-trace compare its fields"),
    ("null.", "the same"),
    ("erf.", "the same"),
    ("ip.addr", "the source and the destination once more"),
    ("ip.host", "the same"),
    ("ip.src_host", "the same"),
    ("ip.dst_host", "the same"),
    ("ip.stream", "tshark's count"),
    ("ip.checksum.status", "tshark's opinion"),
    ("ip.ttl.too_small", "tshark's opinion"),
    ("ip.opt.type.", "bits of the option's type"),
    ("ip.options.", "an option's name"),
    ("ip.nop", "the same"),
    ("ipv6.addr", "the source and the destination once more"),
    ("ipv6.host", "the same"),
    ("ipv6.stream", "tshark's count"),
    ("ipv6.multicast", "parts of the destination"),
    ("ipv6.src_", "parts of the source that tshark knows special addresses by"),
    ("ipv6.dst_", "the same of the destination"),
    ("udp.port", "both ports once more"),
    ("udp.checksum.", "tshark's opinion"),
    ("udp.stream", "tshark's count"),
    ("udp.time_", "tshark's clock"),
    ("_ws.expert", "tshark's opinion; that a packet is malformed it says under another name"),
    ("", "an unnamed branch of the tree"),
    ("data", "the branch around data.data"),
];

/// tshark's name for bytes that it does not know.
const UNKNOWN: &str = "infiniband.vendor";

/// Returns why tshark does not dissect a packet after the BTH, if it does not. Up to there it is compared.
fn unknown_to_tshark(opcode: Opcode, theirs: &pdml::Packet) -> Option<&'static str> {
    if theirs.misread_payload {
        return Some(
            "tshark takes a payload with zeros in bytes 3 and 4 for one after an EtherType",
        );
    }
    let info = opcode.info()?;
    match (info.transport, info.operation) {
        (Transport::CongestionNotification, _) => Some("tshark has no name for the CNP"),
        (Transport::ExtendedReliableConnection, _) => {
            Some("tshark knows the opcodes of XRC by name, but not the XRCETH")
        }
        (Transport::ReliableDatagram, _) => Some(
            "tshark takes reliable datagrams for Mellanox's dynamically connected transport, \
             which uses their opcodes and has 8 more bytes of BTH",
        ),
        (_, Operation::Flush | Operation::AtomicWrite) if theirs.all(UNKNOWN).next().is_some() => {
            Some("tshark 4.0 is older than FLUSH and ATOMIC WRITE; 4.4 is not")
        }
        _ => None,
    }
}

/// Compares a file, or single packets.
pub struct Comparer {
    rows: Vec<Row>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Packets compared.
    pub packets: usize,
    /// Values compared.
    pub values: usize,
    /// Packets by opcode.
    pub opcodes: BTreeMap<Opcode, usize>,
    /// The differences.
    pub differences: Vec<String>,
}

impl Comparer {
    pub fn new() -> Self {
        Self { rows: table::all() }
    }

    /// Returns a comparer that lacks one of the names.
    pub fn without(name: &str) -> Self {
        let mut rows = table::all();
        rows.retain(|row| row.name != name);
        Self { rows }
    }

    /// Compares all packets of a file.
    pub fn file(&self, records: &[Recorded], theirs: &[pdml::Packet]) -> Outcome {
        let mut outcome = Outcome::default();
        let ours: Vec<Ours<'_>> = records.iter().map(Ours::read).collect();
        let roce = records.iter().zip(&ours).filter(|(_, ours)| ours.frame.is_roce());
        let numbers: Vec<u64> = roce.map(|(record, _)| record.number).collect();
        let their_numbers: Vec<u64> = theirs.iter().map(|packet| packet.number).collect();
        if numbers != their_numbers {
            let text = format!("ours are packets {numbers:?}, tshark's are {their_numbers:?}");
            outcome.differences.push(text);
            return outcome;
        }
        let mut their_opcodes: BTreeMap<Opcode, usize> = BTreeMap::new();
        for theirs in theirs {
            let ours = &ours[theirs.number as usize - 1];
            self.packet(ours, theirs, &mut outcome);
            for field in theirs.all("infiniband.bth.opcode") {
                *their_opcodes.entry(Opcode(field.show.parse().expect("a byte"))).or_default() += 1;
            }
        }
        if outcome.opcodes != their_opcodes {
            let text = format!("opcodes: {:?}, tshark's: {their_opcodes:?}", outcome.opcodes);
            outcome.differences.push(text);
        }
        outcome
    }

    /// Compares one packet.
    pub fn packet(&self, ours: &Ours<'_>, theirs: &pdml::Packet, outcome: &mut Outcome) {
        outcome.packets += 1;
        let opcode = ours.frame.packet.map(|packet| packet.bth.opcode);
        if let Some(opcode) = opcode {
            *outcome.opcodes.entry(opcode).or_default() += 1;
        }
        let unknown = opcode.and_then(|opcode| unknown_to_tshark(opcode, theirs));
        let front_only = unknown.is_some();
        let mut difference = |text: String| {
            outcome.differences.push(format!("packet {}: {text}", theirs.number));
        };

        for row in self.rows.iter().filter(|row| !(front_only && row.part == Part::BehindBth)) {
            let found = (row.ours)(ours);
            let shown: Vec<&pdml::Field> = theirs.all(row.name).collect();
            let wanted = found.iter().filter(|found| !found.alternative).count();
            if shown.len() < wanted {
                let values: Vec<_> = found.iter().map(|found| &found.value).collect();
                let (name, count) = (row.name, shown.len());
                difference(format!("{name}: {values:?}, tshark prints {count} of it"));
            }
            for (index, shown) in shown.into_iter().enumerate() {
                outcome.values += 1;
                let place = shown.at..shown.at + shown.len;
                // The value at that position. If tshark prints it more often than we have it, it repeats it.
                let there = found.iter().find(|found| contains(&place, &found.place));
                let Some(found) = there.or(found.get(index)).or(found.last()) else {
                    difference(format!("{}: we have none, tshark {}", row.name, shown.show));
                    continue;
                };
                if !found.value.is_shown_as(&shown.show) {
                    difference(format!("{}: {:?}, tshark {}", row.name, found.value, shown.show));
                }
                let derived = found.place.is_empty() || place.is_empty();
                if !derived && !contains(&place, &found.place) {
                    let name = row.name;
                    difference(format!("{name}: at {:?}, tshark at {place:?}", found.place));
                }
            }
        }

        for shown in &theirs.fields {
            if shown.name == RESERVED {
                outcome.values += 1;
                if let Some(text) = reserved(ours, shown, front_only) {
                    difference(text);
                }
            } else if !self.knows(&shown.name, front_only) {
                difference(format!("{}: tshark prints {}, we ignore it", shown.name, shown.show));
            }
        }
        for shown in theirs.all("infiniband.bth.opcode") {
            outcome.values += 1;
            if let Some(text) = opcode.and_then(|opcode| name(opcode, &shown.text, front_only)) {
                difference(text);
            }
        }
    }

    fn knows(&self, name: &str, front_only: bool) -> bool {
        // tshark's output for bytes that it cannot know.
        let guess = name == UNKNOWN || name.starts_with("_ws.malformed");
        self.rows.iter().any(|row| row.name == name)
            || front_only && guess
            || IGNORED.iter().any(|(start, _)| match *start {
                whole @ ("" | "data") => name == whole,
                start => name.starts_with(start),
            })
    }
}

/// Compares bytes that tshark calls reserved: we must have them, and give them no other meaning.
fn reserved(ours: &Ours<'_>, shown: &pdml::Field, front_only: bool) -> Option<String> {
    let place = shown.at..shown.at + shown.len;
    let bytes = ours.emitted().get(place.clone()).map(<[u8]>::to_vec).unwrap_or_default();
    let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let fields = ours.fields();
    let here: Vec<&str> = fields
        .iter()
        .filter(|(_, bytes)| bytes.start < place.end && place.start < bytes.end)
        .filter(|(spec, _)| !spec.is_reserved())
        .map(|(spec, _)| spec.name)
        .filter(|name| RESERVED_TO_TSHARK.iter().all(|(known, _)| known != name))
        .collect();
    let same = text.join(":") == shown.show;
    // In a packet that tshark misreads, what it calls reserved is not reliable either.
    let agrees = same && (here.is_empty() || front_only);
    (!agrees).then(|| format!("reserved at {place:?}: {text:?} {here:?}, tshark {}", shown.show))
}

/// Compares tshark's name of an opcode, as in `Opcode: Reliable Connection (RC) - SEND Only (4)`.
fn name(opcode: Opcode, text: &str, may_be_unknown: bool) -> Option<String> {
    let words = text.strip_prefix("Opcode: ").unwrap_or(text);
    let words = words.rsplit_once(" (").map_or(words, |(words, _)| words);
    let theirs = match words.split_once(") - ") {
        Some((service, rest)) => {
            let service = service.rsplit('(').next().unwrap_or_default();
            let rest = rest.replace("CmpSwap", "Compare Swap").replace("FetchAdd", "Fetch Add");
            format!("{service}_{}", rest.replace(' ', "_").to_uppercase())
        }
        None => words.to_owned(),
    };
    let expected = theirs == opcode.name();
    let nameless = may_be_unknown && theirs == "Unknown";
    (!expected && !nameless).then(|| format!("{opcode}: tshark calls it {theirs}"))
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

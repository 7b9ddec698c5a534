//! Compares the messages of our connection manager with rdma_rxe's: all messages of the third matrix, where each
//! program was client and server on both sides, and every field of all their headers.
//!
//! For a program and a kind of message, a field has the same values on both sides, or it is in one of the lists of
//! [`crate::differences`]. Addresses are compared by their owner.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use ferroce_tests::peer;
use ferroce_tests::{capture, document};
use ferroce_trace::dissect::{self, Field, Layer, Tree, Verdict};
use ferroce_trace::link::LinkType;

use crate::differences::{DIFFERENCES, Difference, VARIABLE, is_variable};
use crate::wireshark;

/// The kinds that every column must have from either side: all that programs send without packet loss.
const KINDS: [&str; 8] =
    ["CM DREP", "CM DREQ", "CM REJ", "CM REP", "CM REQ", "CM RTU", "CM SIDR_REP", "CM SIDR_REQ"];

/// The chapter of the document.
const CHAPTER: &str = "Our connection manager";

/// The key of a value: program, kind of message, header and field.
type FieldKey = [String; 4];

/// The messages sent; in each pair, ours is first.
#[derive(Default)]
pub(crate) struct Messages {
    values: BTreeMap<FieldKey, [BTreeSet<String>; 2]>,
    counts: BTreeMap<&'static str, [usize; 2]>,
    packets: Vec<(LinkType, Vec<u8>)>,
}

/// Describes an address by its owner and its form, because the sides alternate.
fn whose(value: &str, tree: &Tree<'_>) -> Option<String> {
    let (form, address) = match value.parse().ok()? {
        IpAddr::V4(address) => ("", IpAddr::from(address)),
        IpAddr::V6(address) => match address.octets() {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] if a > 0 => {
                (", padded", Ipv4Addr::new(a, b, c, d).into())
            }
            _ => match address.to_ipv4_mapped() {
                Some(address) => (", mapped", address.into()),
                None => ("", address.into()),
            },
        },
    };
    let side = match Some(address) {
        address if address == tree.source => "the sender's",
        address if address == tree.destination => "the receiver's",
        _ => return None,
    };
    Some(format!("{side}{form}"))
}

fn fields(layer: &Layer<'_>, tree: &Tree<'_>) -> Vec<(&'static str, String)> {
    let value = |field: &Field<'_>| {
        assert_ne!(field.verdict, Some(Verdict::Wrong), "{field:?}");
        (field.name, whose(&field.value, tree).unwrap_or_else(|| field.value.clone()))
    };
    let data = layer.data.map(|data| ("bytes", format!("{data:02x?}")));
    layer.fields.iter().map(value).chain(data).collect()
}

impl Messages {
    /// Reads the messages in the capture of a program's run.
    pub(crate) fn read(&mut self, program: &str, path: &Path) {
        let ours = [IpAddr::from(peer::OUR_V4), peer::OUR_V6.into()];
        for record in capture::read(path) {
            let tree = dissect::dissect(record.link, &record.data, record.original_len);
            let mut names = tree.layers.iter().map(|layer| layer.name);
            let Some(kind) = names.find(|name| name.starts_with("CM ")) else { continue };
            assert_eq!(tree.problems, [], "{}, packet {}", path.display(), record.number);
            let side = usize::from(!tree.source.is_some_and(|source| ours.contains(&source)));
            self.counts.entry(kind).or_default()[side] += 1;
            for layer in &tree.layers {
                for (field, value) in fields(layer, &tree) {
                    let place = [program, kind, layer.name, field].map(str::to_owned);
                    self.values.entry(place).or_default()[side].insert(value);
                }
            }
            self.packets.push((record.link, record.data));
        }
    }

    /// Compares the messages of both sides, and our dissection of them with tshark's, and prints the counts. Panics if
    /// there is a difference that is not listed, if a listed difference does not occur, or if a kind is missing.
    pub(crate) fn compare(&self, name: &str) {
        let path = crate::file(&format!("messages-{name}.pcapng"));
        capture::write(&path, &self.packets);
        println!("tshark agrees on {} values of the messages", wireshark::agrees(&path));
        let mut wrong = Vec::new();
        let mut met = BTreeSet::new();
        let [mut same, mut different, mut variable] = [0; 3];
        for (place, [ours, theirs]) in &self.values {
            let [_, kind, header, field] = place;
            // Which side disconnects first, and whether a slow side requests more time, varies between runs.
            if ours.is_empty() || theirs.is_empty() {
                continue;
            }
            let listed = DIFFERENCES.iter().position(|one| one.is_of(kind, header, field));
            let listed = listed.filter(|&at| DIFFERENCES[at].kind.is_empty() || ours != theirs);
            if let Some(at) = listed {
                match DIFFERENCES[at].holds(ours, theirs) {
                    true => _ = met.insert(at),
                    false => wrong.push(format!("{place:?}: {ours:?}, {theirs:?}: not as listed")),
                }
                different += 1;
            } else if is_variable(header, field) {
                variable += 1;
            } else if ours == theirs {
                same += 1;
            } else {
                wrong.push(format!("{place:?}: ours {ours:?}, rdma_rxe's {theirs:?}"));
            }
        }
        for (kind, [ours, theirs]) in &self.counts {
            println!("{kind}: {ours} of ours compared with {theirs} of rdma_rxe's");
        }
        println!("{same} fields are the same, {variable} variable, {different} differ as listed");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for kind in KINDS {
            let counts = self.counts.get(kind).copied().unwrap_or_default();
            assert!(counts.iter().all(|&count| count > 0), "{kind}: {counts:?} were sent");
        }
        for (at, one) in DIFFERENCES.iter().enumerate() {
            let seen = self.values.keys().any(|place| place[2] == one.header);
            assert!(!seen || met.contains(&at), "{one}: no difference any more");
        }
    }
}

impl Difference {
    fn is_of(&self, kind: &str, header: &str, field: &str) -> bool {
        (self.kind.is_empty() || self.kind == kind) && self.header == header && self.field == field
    }

    fn holds(&self, ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> bool {
        let is = |values: &BTreeSet<String>, wanted: &str| match wanted.split_once(" to ") {
            Some((first, last)) => {
                values.iter().all(|value| (first..=last).contains(&value.as_str()))
            }
            None => wanted.is_empty() || values.iter().eq([wanted]),
        };
        is(ours, self.ours) && is(theirs, self.theirs) && ours != theirs
    }
}

/// The chapter on differences and fields that are not compared.
#[test]
fn message_differences_are_documented() {
    let mut text = String::from(
        "In the third matrix of [interop.md](interop.md), rping, ucmatose and udaddy run on our librdmacm against the same\n\
         programs on rdma_rxe, each side as client and as server. For each kind of message that both sides have sent in a run\n\
         (REQ, REP, RTU, DREQ, DREP, REJ, SIDR_REQ, SIDR_REP), every field of every header is compared, from the Ethernet header\n\
         to the private data:\n\n    \
         cargo test -p ferroce-tests --test interop_rxe full::managed -- --test-threads 1 --nocapture\n\n\
         Only these fields differ:\n\n\
         | message | header | field | ours | rdma_rxe | why |\n|---|---|---|---|---|---|\n",
    );
    for difference in DIFFERENCES {
        writeln!(text, "{difference}").expect("a string");
    }
    text += "\nThese fields differ from message to message and are not compared. IP addresses and GIDs are compared by the host they belong to.\n\n\
             | what | fields |\n|---|---|\n";
    for (what, fields) in VARIABLE {
        writeln!(text, "| {what} | `{}` |", fields.join("`, `")).expect("a string");
    }
    text += "\nMRA, LAP and APR are not compared: nothing in these runs makes both sides send them. How the two differ over time, when\n\
             messages are lost or repeated, is in [connection-manager.md](connection-manager.md).\n";
    let command = "cargo test -p ferroce-tests --test interop_rxe message_differences";
    document::keep("differences-from-rxe.md", CHAPTER, &text, command);
}

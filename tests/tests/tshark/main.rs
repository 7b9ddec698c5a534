//! Compares our dissection with tshark's: every packet of every capture, and generated packets for what the captures
//! lack. There is no stored table: tshark runs on the same files, and every field that it prints is compared. It works
//! with tshark 4.0 and 4.4, those of Debian 12 and 13.
#![allow(unreachable_pub)] // A test is a crate by itself.

mod compare;
mod generated;
mod ours;
mod pdml;
mod table;
mod table_cm;
mod value;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use compare::{Comparer, Outcome};
use ferroce_tests::capture::{self, Recorded};
use ferroce_tests::sample::Carrier;
use ferroce_tests::tool;
use ferroce_trace::link::LinkType;
use ferroce_wire::ethernet::Ethernet;
use ferroce_wire::frame::IcrcVerdict;
use ferroce_wire::ip::{Ipv4, Udp};
use ferroce_wire::opcode::Opcode;
use generated::{Envelope, Record};
use ours::Ours;

/// The minimum number of values per packet; fewer would mean that something was not compared: Ethernet has 3, IP and
/// UDP have at least 15, the BTH has 13 and the ICRC 1.
const MIN_VALUES_PER_PACKET: usize = 32;

/// The number of tshark processes that run in parallel.
const WORKERS: usize = 2;

fn tshark(file: &Path) -> Vec<pdml::Packet> {
    pdml::parse(&tool::tshark_pdml(file))
}

/// Calls `work` for every file, in parallel, and returns the results in the order of the files.
fn for_each_file<T: Send>(files: &[PathBuf], work: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let next = Mutex::new(files.iter().enumerate());
    let results = Mutex::new(Vec::new());
    let worker = || loop {
        let taken = next.lock().expect("no worker panicked here").next();
        let Some((index, file)) = taken else { break };
        let result = work(file);
        results.lock().expect("no worker panicked here").push((index, result));
    };
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(worker);
        }
    });
    let mut results = results.into_inner().expect("no worker panicked here");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn report(name: &str, outcome: &Outcome) {
    println!("{name}: {} packets, {} values", outcome.packets, outcome.values);
}

/// Panics if anything differs, and shows the first differences.
fn expect_agreement(name: &str, outcome: &Outcome) {
    let shown: Vec<&str> = outcome.differences.iter().take(20).map(String::as_str).collect();
    let count = outcome.differences.len();
    assert!(count == 0, "{name}: {count} differences\n{}", shown.join("\n"));
    let (packets, values) = (outcome.packets, outcome.values);
    assert!(packets > 0, "{name}: nothing was compared");
    assert!(values >= packets * MIN_VALUES_PER_PACKET, "{name}: {values} of {packets} packets");
}

#[test]
fn every_field_of_every_capture_agrees() {
    let comparer = Comparer::new();
    let files = capture::rxe();
    let outcomes = for_each_file(&files, |file| {
        let records = capture::read(file);
        for record in &records {
            let verdict = record.frame().1.check_icrc();
            assert_eq!(verdict, IcrcVerdict::Ok, "{}, packet {}", file.display(), record.number);
        }
        comparer.file(&records, &tshark(file))
    });
    let mut all = Outcome::default();
    for (file, outcome) in files.iter().zip(outcomes) {
        report(&capture::name(file), &outcome);
        expect_agreement(&capture::name(file), &outcome);
        all.packets += outcome.packets;
        all.values += outcome.values;
    }
    report(&format!("{} files", files.len()), &all);
}

/// Writes a capture, lets tshark read it, and compares.
fn compare_generated(name: &str, records: &[Record]) -> Outcome {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcapng"));
    capture::write(&file, records);
    let read = capture::read(&file);
    assert_eq!(read.len(), records.len());
    for (read, (link, data)) in read.iter().zip(records) {
        assert_eq!((&read.link, &read.data), (link, data), "packet {}", read.number);
        assert_eq!(read.frame().1.check_icrc(), IcrcVerdict::Ok, "packet {}", read.number);
    }
    let outcome = Comparer::new().file(&read, &tshark(&file));
    report(name, &outcome);
    expect_agreement(name, &outcome);
    outcome
}

#[test]
fn every_opcode_agrees_over_every_carrier() {
    let mut records = Vec::new();
    for (seed, carrier) in Carrier::ALL.into_iter().enumerate() {
        for tags in 0..if carrier.is_ethernet() { 3 } else { 1 } {
            let packets = generated::all_opcodes(carrier, tags, (seed * 4 + tags) as u64);
            records.extend(packets.into_iter().map(|packet| match carrier.is_ethernet() {
                true => (LinkType::ETHERNET, packet),
                false => generated::erf_infiniband(&packet),
            }));
        }
    }
    let outcome = compare_generated("opcodes", &records);
    let defined: BTreeSet<Opcode> = Opcode::all().filter(|one| one.info().is_some()).collect();
    assert_eq!(outcome.opcodes.keys().copied().collect::<BTreeSet<_>>(), defined);
}

/// The captures leave most fields of these messages zero.
#[test]
fn every_connection_manager_message_agrees() {
    let mut records = Vec::new();
    for carrier in [Carrier::RoceV2Ipv4, Carrier::RoceV2Ipv6, Carrier::RoceV1] {
        let packets = generated::messages(carrier, 12);
        records.extend(packets.into_iter().map(|packet| (LinkType::ETHERNET, packet)));
    }
    compare_generated("messages", &records);
}

#[test]
fn every_link_header_agrees() {
    let mut records = Vec::new();
    for carrier in Carrier::ALL.into_iter().filter(|carrier| carrier.is_ethernet()) {
        for tags in 0..3 {
            for packet in generated::all_opcodes(carrier, tags, 1000).into_iter().step_by(7) {
                records
                    .extend(Envelope::ALL.iter().filter_map(|envelope| envelope.around(&packet)));
            }
        }
    }
    let links: BTreeSet<LinkType> = records.iter().map(|record| record.0).collect();
    assert_eq!(links.len(), Envelope::ALL.len() + 1, "raw IP has two: {links:?}");
    compare_generated("links", &records);
}

/// `ib_send_lat` sends two random bytes. With the padding they look like an EtherType, which tshark then tries to dissect.
#[test]
fn payloads_like_ethertypes_are_not_malformed() {
    let ethertypes = [0x0800_u16, 0x0806, 0x8100, 0x86dd, 0x8863, 0x880b, 0xc02b, 0xffff];
    let packet =
        |ethertype: u16| (LinkType::ETHERNET, generated::short_send(ethertype.to_be_bytes()));
    compare_generated("ethertypes", &ethertypes.map(packet));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ethertypes.pcapng");
    assert_eq!(tool::tshark_packets(&file), ethertypes.len() as u64);
}

#[test]
#[should_panic(expected = "packet 1")]
fn a_packet_without_its_header_is_malformed() {
    const BTH: usize = Ethernet::LEN + Ipv4::LEN + Udp::LEN;
    let mut packet = generated::short_send([0; 2]);
    packet[BTH] = Opcode::RC_RDMA_WRITE_ONLY.0;
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("malformed.pcapng");
    capture::write(&file, &[(LinkType::ETHERNET, packet)]);
    tool::tshark_packets(&file);
}

/// Packets of the kernel over carriers that it does not support: the same transport packets with another ICRC.
#[test]
fn captured_packets_agree_over_other_carriers() {
    let mut records = Vec::new();
    for file in ["rping", "rping_v6", "udaddy", "cm_reject", "atomic", "invalidate", "rnr", "imm"] {
        let path = capture::rxe().into_iter().find(|path| capture::name(path) == file);
        for recorded in capture::read(&path.expect("the capture is there")) {
            let over = |carrier| generated::carried_by(&recorded, carrier);
            records.push((LinkType::ETHERNET, over(Carrier::RoceV1)));
            records.push(generated::erf_infiniband(&over(Carrier::InfinibandLocal)));
            records.push(generated::erf_infiniband(&over(Carrier::InfinibandGlobal)));
        }
    }
    compare_generated("carriers", &records);
}

/// tshark cannot read the link type of native InfiniBand without an ERF header. We can.
#[test]
fn native_infiniband_is_read_without_erf() {
    let packet = generated::all_opcodes(Carrier::InfinibandGlobal, 0, 7).swap_remove(4);
    let (link, original_len) = (LinkType::INFINIBAND, packet.len());
    let recorded = Recorded { number: 1, time: None, link, original_len, data: packet };
    let (start, frame) = recorded.frame();
    assert_eq!((start, frame.check_icrc()), (0, IcrcVerdict::Ok));
}

/// The comparison detects a change of any byte of a packet.
#[test]
fn every_changed_byte_is_detected() {
    let files = ["atomic", "cm_reject", "invalidate", "rnr_exceeded", "ud_imm", "udaddy"];
    let paths = capture::rxe().into_iter();
    let paths: Vec<PathBuf> =
        paths.filter(|path| files.contains(&capture::name(path).as_str())).collect();
    assert_eq!(paths.len(), files.len());
    let comparer = Comparer::new();
    let changed = for_each_file(&paths, |path| {
        let theirs = tshark(path);
        let mut changed = 0;
        for (record, theirs) in capture::read(path).into_iter().zip(&theirs) {
            for at in 0..record.data.len() {
                let mut altered = record.clone();
                altered.data[at] ^= 1 << (at % 8);
                let mut outcome = Outcome::default();
                comparer.packet(&Ours::read(&altered), theirs, &mut outcome);
                let (file, number) = (path.display(), record.number);
                assert!(!outcome.differences.is_empty(), "{file}, packet {number}, byte {at}");
                changed += 1;
            }
        }
        changed
    });
    let changed: usize = changed.iter().sum();
    println!("{changed} changed bytes were detected");
    assert!(changed > 5000);
}

/// A name that is missing in the table is an error, for every name that tshark prints in these captures.
#[test]
fn unknown_names_are_detected() {
    let path = capture::rxe().into_iter().find(|path| capture::name(path) == "cm_reject");
    let path = path.expect("the capture is there");
    let (records, theirs) = (capture::read(&path), tshark(&path));
    expect_agreement("cm_reject", &Comparer::new().file(&records, &theirs));
    let printed = theirs.iter().flat_map(|packet| &packet.fields).map(|field| field.name.as_str());
    let printed: BTreeSet<&str> =
        printed.filter(|name| table::all().iter().any(|row| row.name == *name)).collect();
    assert!(printed.len() > 80, "{}", printed.len());
    for name in printed {
        let outcome = Comparer::without(name).file(&records, &theirs);
        assert!(!outcome.differences.is_empty(), "the absence of {name} is not detected");
    }
}

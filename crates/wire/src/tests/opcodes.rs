use std::collections::BTreeSet;
use std::vec::Vec;
use std::{format, string::String};

use crate::field::Header;
use crate::opcode::{Extensions, Opcode, OpcodeInfo, Operation, Position, Transport};
use crate::packet::ExtensionHeaders;
use crate::transport::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};

/// IBA volume 1, table 38, with annex A14 (XRC), A17 (CNP) and A19 (FLUSH, ATOMIC WRITE): code, name, and
/// extension headers in wire order.
const TABLE_38: &[(u8, &str, &str)] = &[
    (0b000_00000, "RC_SEND_FIRST", "PayLd"),
    (0b000_00001, "RC_SEND_MIDDLE", "PayLd"),
    (0b000_00010, "RC_SEND_LAST", "PayLd"),
    (0b000_00011, "RC_SEND_LAST_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b000_00100, "RC_SEND_ONLY", "PayLd"),
    (0b000_00101, "RC_SEND_ONLY_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b000_00110, "RC_RDMA_WRITE_FIRST", "RETH PayLd"),
    (0b000_00111, "RC_RDMA_WRITE_MIDDLE", "PayLd"),
    (0b000_01000, "RC_RDMA_WRITE_LAST", "PayLd"),
    (0b000_01001, "RC_RDMA_WRITE_LAST_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b000_01010, "RC_RDMA_WRITE_ONLY", "RETH PayLd"),
    (0b000_01011, "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", "RETH ImmDt PayLd"),
    (0b000_01100, "RC_RDMA_READ_REQUEST", "RETH"),
    (0b000_01101, "RC_RDMA_READ_RESPONSE_FIRST", "AETH PayLd"),
    (0b000_01110, "RC_RDMA_READ_RESPONSE_MIDDLE", "PayLd"),
    (0b000_01111, "RC_RDMA_READ_RESPONSE_LAST", "AETH PayLd"),
    (0b000_10000, "RC_RDMA_READ_RESPONSE_ONLY", "AETH PayLd"),
    (0b000_10001, "RC_ACKNOWLEDGE", "AETH"),
    (0b000_10010, "RC_ATOMIC_ACKNOWLEDGE", "AETH AtomicAckETH"),
    (0b000_10011, "RC_COMPARE_SWAP", "AtomicETH"),
    (0b000_10100, "RC_FETCH_ADD", "AtomicETH"),
    (0b000_10110, "RC_SEND_LAST_WITH_INVALIDATE", "IETH PayLd"),
    (0b000_10111, "RC_SEND_ONLY_WITH_INVALIDATE", "IETH PayLd"),
    (0b000_11100, "RC_FLUSH", "FETH RETH"),
    (0b000_11101, "RC_ATOMIC_WRITE", "RETH PayLd"),
    (0b001_00000, "UC_SEND_FIRST", "PayLd"),
    (0b001_00001, "UC_SEND_MIDDLE", "PayLd"),
    (0b001_00010, "UC_SEND_LAST", "PayLd"),
    (0b001_00011, "UC_SEND_LAST_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b001_00100, "UC_SEND_ONLY", "PayLd"),
    (0b001_00101, "UC_SEND_ONLY_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b001_00110, "UC_RDMA_WRITE_FIRST", "RETH PayLd"),
    (0b001_00111, "UC_RDMA_WRITE_MIDDLE", "PayLd"),
    (0b001_01000, "UC_RDMA_WRITE_LAST", "PayLd"),
    (0b001_01001, "UC_RDMA_WRITE_LAST_WITH_IMMEDIATE", "ImmDt PayLd"),
    (0b001_01010, "UC_RDMA_WRITE_ONLY", "RETH PayLd"),
    (0b001_01011, "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", "RETH ImmDt PayLd"),
    (0b010_00000, "RD_SEND_FIRST", "RDETH DETH PayLd"),
    (0b010_00001, "RD_SEND_MIDDLE", "RDETH DETH PayLd"),
    (0b010_00010, "RD_SEND_LAST", "RDETH DETH PayLd"),
    (0b010_00011, "RD_SEND_LAST_WITH_IMMEDIATE", "RDETH DETH ImmDt PayLd"),
    (0b010_00100, "RD_SEND_ONLY", "RDETH DETH PayLd"),
    (0b010_00101, "RD_SEND_ONLY_WITH_IMMEDIATE", "RDETH DETH ImmDt PayLd"),
    (0b010_00110, "RD_RDMA_WRITE_FIRST", "RDETH DETH RETH PayLd"),
    (0b010_00111, "RD_RDMA_WRITE_MIDDLE", "RDETH DETH PayLd"),
    (0b010_01000, "RD_RDMA_WRITE_LAST", "RDETH DETH PayLd"),
    (0b010_01001, "RD_RDMA_WRITE_LAST_WITH_IMMEDIATE", "RDETH DETH ImmDt PayLd"),
    (0b010_01010, "RD_RDMA_WRITE_ONLY", "RDETH DETH RETH PayLd"),
    (0b010_01011, "RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE", "RDETH DETH RETH ImmDt PayLd"),
    (0b010_01100, "RD_RDMA_READ_REQUEST", "RDETH DETH RETH"),
    (0b010_01101, "RD_RDMA_READ_RESPONSE_FIRST", "RDETH AETH PayLd"),
    (0b010_01110, "RD_RDMA_READ_RESPONSE_MIDDLE", "RDETH PayLd"),
    (0b010_01111, "RD_RDMA_READ_RESPONSE_LAST", "RDETH AETH PayLd"),
    (0b010_10000, "RD_RDMA_READ_RESPONSE_ONLY", "RDETH AETH PayLd"),
    (0b010_10001, "RD_ACKNOWLEDGE", "RDETH AETH"),
    (0b010_10010, "RD_ATOMIC_ACKNOWLEDGE", "RDETH AETH AtomicAckETH"),
    (0b010_10011, "RD_COMPARE_SWAP", "RDETH DETH AtomicETH"),
    (0b010_10100, "RD_FETCH_ADD", "RDETH DETH AtomicETH"),
    (0b010_10101, "RD_RESYNC", "RDETH DETH"),
    (0b010_11100, "RD_FLUSH", "RDETH DETH FETH RETH"),
    (0b010_11101, "RD_ATOMIC_WRITE", "RDETH DETH RETH PayLd"),
    (0b011_00100, "UD_SEND_ONLY", "DETH PayLd"),
    (0b011_00101, "UD_SEND_ONLY_WITH_IMMEDIATE", "DETH ImmDt PayLd"),
    (0b100_00001, "CNP", "PayLd"),
    (0b101_00000, "XRC_SEND_FIRST", "XRCETH PayLd"),
    (0b101_00001, "XRC_SEND_MIDDLE", "XRCETH PayLd"),
    (0b101_00010, "XRC_SEND_LAST", "XRCETH PayLd"),
    (0b101_00011, "XRC_SEND_LAST_WITH_IMMEDIATE", "XRCETH ImmDt PayLd"),
    (0b101_00100, "XRC_SEND_ONLY", "XRCETH PayLd"),
    (0b101_00101, "XRC_SEND_ONLY_WITH_IMMEDIATE", "XRCETH ImmDt PayLd"),
    (0b101_00110, "XRC_RDMA_WRITE_FIRST", "XRCETH RETH PayLd"),
    (0b101_00111, "XRC_RDMA_WRITE_MIDDLE", "XRCETH PayLd"),
    (0b101_01000, "XRC_RDMA_WRITE_LAST", "XRCETH PayLd"),
    (0b101_01001, "XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE", "XRCETH ImmDt PayLd"),
    (0b101_01010, "XRC_RDMA_WRITE_ONLY", "XRCETH RETH PayLd"),
    (0b101_01011, "XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE", "XRCETH RETH ImmDt PayLd"),
    (0b101_01100, "XRC_RDMA_READ_REQUEST", "XRCETH RETH"),
    (0b101_01101, "XRC_RDMA_READ_RESPONSE_FIRST", "AETH PayLd"),
    (0b101_01110, "XRC_RDMA_READ_RESPONSE_MIDDLE", "PayLd"),
    (0b101_01111, "XRC_RDMA_READ_RESPONSE_LAST", "AETH PayLd"),
    (0b101_10000, "XRC_RDMA_READ_RESPONSE_ONLY", "AETH PayLd"),
    (0b101_10001, "XRC_ACKNOWLEDGE", "AETH"),
    (0b101_10010, "XRC_ATOMIC_ACKNOWLEDGE", "AETH AtomicAckETH"),
    (0b101_10011, "XRC_COMPARE_SWAP", "XRCETH AtomicETH"),
    (0b101_10100, "XRC_FETCH_ADD", "XRCETH AtomicETH"),
    (0b101_10110, "XRC_SEND_LAST_WITH_INVALIDATE", "XRCETH IETH PayLd"),
    (0b101_10111, "XRC_SEND_ONLY_WITH_INVALIDATE", "XRCETH IETH PayLd"),
    (0b101_11100, "XRC_FLUSH", "XRCETH FETH RETH"),
    (0b101_11101, "XRC_ATOMIC_WRITE", "XRCETH RETH PayLd"),
];

/// Length of each header, from the figures of IBA 9.3, A14 and A19.
const SIZES: [(&str, usize); 10] = [
    ("RDETH", 4),
    ("DETH", 8),
    ("XRCETH", 4),
    ("FETH", 4),
    ("RETH", 16),
    ("AtomicETH", 28),
    ("AETH", 4),
    ("AtomicAckETH", 8),
    ("ImmDt", 4),
    ("IETH", 4),
];

fn defined() -> impl Iterator<Item = (Opcode, &'static OpcodeInfo)> {
    Opcode::all().filter_map(|opcode| Some((opcode, opcode.info()?)))
}

#[test]
fn the_table_matches_the_specification() {
    for (code, name, contents) in TABLE_38 {
        let opcode = Opcode(*code);
        let info = opcode.info().unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(info.name, *name, "{code:#04x}");
        assert_eq!(format!("{opcode}"), *name);
        let mut headers: Vec<&str> = info.extensions.iter().map(|one| one.name).collect();
        headers.extend(info.payload.then_some("PayLd"));
        assert_eq!(headers.join(" "), *contents, "{name}");
    }
}

#[test]
fn nothing_else_is_defined() {
    let expected: Vec<u8> = TABLE_38.iter().map(|row| row.0).collect();
    let found: Vec<u8> = defined().map(|(opcode, _)| opcode.0).collect();
    assert_eq!(found, expected);
    assert_eq!(Opcode::all().count(), 256);
    for opcode in Opcode::all().filter(|opcode| opcode.info().is_none()) {
        // IBA table 38: 110xxxxx and 111xxxxx are for manufacturers.
        let (name, code) = (opcode.name(), opcode.0);
        assert_eq!(name, if code < 0xc0 { "RESERVED" } else { "MANUFACTURER_SPECIFIC" });
        assert_eq!(format!("{opcode}"), format!("{name}_{code:#04x}"));
    }
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = defined().map(|(_, info)| info.name).collect();
    assert_eq!(names.len(), TABLE_38.len());
}

#[test]
fn sizes_match_the_specification() {
    let found: Vec<(&str, usize)> = Extensions::ALL.map(|one| (one.name, one.len)).into();
    assert_eq!(found, SIZES);
    for (_, info) in defined() {
        let len: usize = info.extensions.iter().map(|one| one.len).sum();
        assert_eq!(info.extensions_len, len, "{}", info.name);
        assert_eq!(info.extensions.len(), len, "{}", info.name);
    }
    let most = defined().map(|(_, info)| info.extensions_len).max();
    assert_eq!(most, Some(ExtensionHeaders::MAX_LEN));
}

#[test]
fn header_sizes_match_the_table() {
    fn of<H: Header>() -> (&'static str, usize) {
        (H::NAME, H::LEN)
    }
    let headers = [
        of::<Rdeth>(),
        of::<Deth>(),
        of::<Xrceth>(),
        of::<Feth>(),
        of::<Reth>(),
        of::<AtomicEth>(),
        of::<Aeth>(),
        of::<AtomicAckEth>(),
        of::<ImmDt>(),
        of::<Ieth>(),
    ];
    assert_eq!(headers, SIZES);
    assert_eq!(of::<Bth>(), ("BTH", 12));
}

/// The other columns must agree with the name.
#[test]
fn columns_agree_with_the_name() {
    for (_, info) in defined() {
        let (service, rest) = info.name.split_once('_').unwrap_or((info.name, ""));
        assert_eq!(info.transport.name(), service, "{}", info.name);
        assert_eq!(info.operation, operation_of(rest), "{}", info.name);
        assert_eq!(info.position, position_of(rest), "{}", info.name);
        let response = ["RESPONSE", "ACKNOWLEDGE"].iter().any(|word| rest.contains(word));
        let notification = info.transport == Transport::CongestionNotification;
        assert_eq!(info.request, !response && !notification, "{}", info.name);
        assert_eq!(info.immediate, rest.ends_with("WITH_IMMEDIATE"), "{}", info.name);
        // A receive request is consumed by the end of a SEND and by immediate data (IBA 9.4.1, 9.4.3).
        let send_ends =
            rest.starts_with("SEND") && (rest.contains("LAST") || rest.contains("ONLY"));
        assert_eq!(info.completes, send_ends || info.immediate, "{}", info.name);
    }
}

fn operation_of(name: &str) -> Operation {
    let prefixes = [
        ("SEND", Operation::Send),
        ("RDMA_WRITE", Operation::Write),
        ("RDMA_READ_REQUEST", Operation::ReadRequest),
        ("RDMA_READ_RESPONSE", Operation::ReadResponse),
        ("ACKNOWLEDGE", Operation::Acknowledge),
        ("ATOMIC_ACKNOWLEDGE", Operation::AtomicAcknowledge),
        ("COMPARE_SWAP", Operation::CompareSwap),
        ("FETCH_ADD", Operation::FetchAdd),
        ("RESYNC", Operation::Resync),
        ("FLUSH", Operation::Flush),
        ("ATOMIC_WRITE", Operation::AtomicWrite),
        ("", Operation::CongestionNotification),
    ];
    let found = prefixes.iter().find(|(prefix, _)| name.starts_with(prefix));
    found.map(|(_, operation)| *operation).expect("the last prefix is empty")
}

fn position_of(name: &str) -> Position {
    let words: Vec<&str> = name.split('_').collect();
    let has = |word| words.contains(&word);
    match () {
        () if has("FIRST") => Position::First,
        () if has("MIDDLE") => Position::Middle,
        () if has("LAST") => Position::Last,
        () => Position::Only,
    }
}

#[test]
fn positions_open_and_end_messages() {
    let table = [
        (Position::First, true, false),
        (Position::Middle, false, false),
        (Position::Last, false, true),
        (Position::Only, true, true),
    ];
    for (position, opens, ends) in table {
        assert_eq!((position.opens(), position.ends()), (opens, ends), "{position:?}");
    }
}

#[test]
fn extension_sets_have_union_and_length() {
    let both = Extensions::RETH.with(Extensions::IMMEDIATE);
    assert!(both.contains(Extensions::RETH) && both.contains(Extensions::NONE));
    assert!(!both.contains(Extensions::AETH.with(Extensions::RETH)));
    assert!(Extensions::NONE.is_empty() && !both.is_empty());
    let text: String = format!("{both:?}");
    assert_eq!(text, r#"["RETH", "ImmDt"]"#);
}

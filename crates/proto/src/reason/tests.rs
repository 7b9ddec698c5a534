use std::string::{String, ToString};
use std::vec::Vec;

use ferroce_wire::number::{LKey, PKey, Psn, QKey, Qpn, RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::NakCode;

use super::*;
use crate::memory::{PdId, Sge};

const BASE: u64 = 0x7f00_0000_0000;

fn write(address: u64, length: u32) -> RefusedAccess {
    let range = RemoteRange { key: RKey(0xa7c2_a4c5), address: VirtualAddress(address), length };
    RefusedAccess::remote(range, AccessFlags::REMOTE_WRITE)
}

fn outside(address: u64, length: u32) -> String {
    let fault = KeyFault::Outside { object: Object::Region, start: BASE, size: 65536 };
    Reason::Memory(write(address, length), fault).to_string()
}

#[test]
fn a_refused_access_says_by_how_many_bytes() {
    assert_eq!(
        outside(BASE + 65536 - 100, 4196),
        "refused the peer's RDMA WRITE of 4196 bytes at 0x7f000000ff9c: rkey 0xa7c2a4c5 is an MR of 65536 bytes at \
         0x7f0000000000, the access ends 4096 bytes behind it"
    );
    assert!(outside(BASE - 8, 16).ends_with("the access begins 8 bytes before it"));
    assert!(
        outside(BASE - 8, 65560).ends_with("begins 8 bytes before and ends 16 bytes behind it")
    );
    // At the end of the address space.
    assert!(outside(u64::MAX - 3, 16).contains("bytes behind it"));
}

#[test]
fn a_missing_flag_and_a_local_access_are_named() {
    let missing = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
    let fault = KeyFault::MissingAccess { object: Object::Window, missing };
    let text = Reason::Memory(write(BASE, 8), fault).to_string();
    assert!(text.ends_with("is a memory window without LOCAL_WRITE and REMOTE_WRITE"), "{text}");
    let sge = Sge { key: LKey(7), address: VirtualAddress(BASE), length: 64 };
    let text = Reason::Memory(RefusedAccess::local(sge, true), KeyFault::Unknown).to_string();
    assert_eq!(
        text,
        "refused writing received data of 64 bytes at 0x7f0000000000: lkey 0x7 is unknown"
    );
}

/// One of each, so that a new one has to be added here, too.
fn all() -> Vec<Reason> {
    let (access, opcode) = (write(BASE, 8), Opcode::RC_SEND_ONLY);
    let (psn, missing, qpn) = (Psn(0x3e8), AccessFlags::REMOTE_READ, Qpn(0x12));
    let (object, pd) = (Object::Region, PdId(1));
    let faults = [
        KeyFault::Unknown,
        KeyFault::Deregistered,
        KeyFault::OtherPd { object: pd, queue_pair: pd },
        KeyFault::Outside { object, start: BASE, size: 8 },
        KeyFault::MissingAccess { object, missing },
        KeyFault::Unmapped,
        KeyFault::Misaligned,
        KeyFault::Unbound,
        KeyFault::OtherQueuePair(qpn),
        KeyFault::NoLkey,
        KeyFault::CopyFailed,
    ];
    let mut all: Vec<_> = faults.map(|fault| Reason::Memory(access, fault)).into();
    all.extend([
        Reason::Bind { window: RKey(1), region: LKey(2), denied: Denied::Access },
        Reason::Invalidate { key: RKey(1), denied: Denied::Key },
        Reason::OpcodeSequence(opcode),
        Reason::NotPermitted { opcode, missing },
        Reason::TooManyReads { max: 4 },
        Reason::PayloadOverMtu { payload: 1024, mtu: 256 },
        Reason::PayloadUnderMtu { payload: 100, mtu: 256 },
        Reason::MessageTooLong { message: 200, receive: 100 },
        Reason::LengthMismatch { announced: 8, payload: 9 },
        Reason::OverMaxMessage { length: u32::MAX },
        Reason::MisalignedAtomic { address: 3 },
        Reason::UndefinedFlush,
        Reason::NoXrcQueue(Some(qpn)),
        Reason::PsnOutOfWindow { psn, expected: Psn(0x1388) },
        Reason::NoReceive { queue: Some(qpn), repeated: true },
        Reason::WrongQueueKey { source: qpn, received: QKey(1), expected: QKey(2) },
        Reason::NotAttached,
        Reason::WrongService(opcode),
        Reason::WrongPartition(PKey(1)),
        Reason::UnknownQueuePair(qpn),
        Reason::NotPeer,
        Reason::NotReceiving(State::Init),
        Reason::DatagramTooLong { payload: 64, receive: 64 },
        Reason::PeerRefused { code: NakCode::InvalidRequest, psn, remote: None },
        Reason::RnrExhausted { attempts: 4, psn },
        Reason::NoResponse { attempts: 8, psn, heard: true },
        Reason::PeerExpects { expected: Psn(0x1388), sent: psn },
        Reason::PortUnreachable { psn },
        Reason::PeerEnded,
        Reason::PeerSilent,
        Reason::BadResponse { opcode, psn },
        Reason::PeerDisconnected,
        Reason::PeerCountsMore { acknowledged: Psn(0x1390), sent: psn, mtu: 1024 },
        Reason::CqOverrun { queue: 3, capacity: 1 },
        Reason::PortDown,
        Reason::DeviceFailed,
    ]);
    all
}

#[test]
fn each_reason_has_its_number_and_a_sentence() {
    let mut numbers: Vec<_> = all().iter().map(Reason::number).collect();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "each has its own number");
    numbers.insert(0, 0);
    numbers.sort_unstable();
    let table: Vec<_> = TABLE.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, table);
    for reason in all() {
        let text = reason.to_string();
        assert!(text.len() > 20 && text.len() < 320 && !text.ends_with('.'), "{text}");
    }
}

/// docs/reasons.md has the table.
#[test]
fn the_numbers_are_documented() {
    let page = include_str!("../../../../docs/reasons.md");
    for Entry { number, name, meaning, .. } in TABLE {
        let row = std::format!("| {number} | `{name}` | {meaning} |\n");
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn sentences_say_what_to_check() {
    let psn = Reason::PsnOutOfWindow { psn: Psn(0x3e8), expected: Psn(0x1388) }.to_string();
    assert_eq!(
        psn,
        "request with PSN 0x3e8, expected 0x1388: does rq_psn match the peer's sq_psn?"
    );
    let mtu = Reason::PayloadOverMtu { payload: 1024, mtu: 256 }.to_string();
    assert!(mtu.starts_with("payload of 1024 bytes over the path MTU of 256:"), "{mtu}");
    let retries = Reason::RnrExhausted { attempts: 1, psn: Psn(1) }.to_string();
    assert!(retries.contains("in 1 attempt: raise rnr_retry"), "{retries}");
    let queue = Reason::NoReceive { queue: Some(Qpn(0x12)), repeated: true }.to_string();
    assert_eq!(queue, "SRQ 0x000012 is empty: the sender repeats its message");
    let datagram = Reason::DatagramTooLong { payload: 64, receive: 64 }.to_string();
    assert!(datagram.contains("needs a receive request of 104 bytes"), "{datagram}");
}

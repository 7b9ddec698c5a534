//! Slots, services and mailboxes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::process::{Child, Command, Stdio};

use super::{at, claim, forking, is_quiet, no_forks, pattern, try_claim, wait};
use crate::net::forward_header;
use crate::net::unix_name::Directory;
use crate::{Error, ReceiveBatch, Recipient, RxInfo, Service, Slot};

fn info(source: &str, destination: &str, segment: usize) -> RxInfo {
    RxInfo {
        source: at(source),
        destination: destination.parse().unwrap(),
        interface: Some(7),
        tos: 0b11,
        hop_limit: Some(61),
        length: 0,
        segment,
        truncated: false,
    }
}

#[test]
fn the_lowest_free_slot_is_claimed() {
    let _quiet = no_forks();
    let address = at("127.9.5.1:4791");
    let mut slots: Vec<Slot> = (0..4).map(|_| claim(address)).collect();
    assert_eq!(slots.iter().map(Slot::number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    slots.remove(1);
    assert_eq!(claim(address).number(), 1);
    assert_eq!(slots[0].address(), address);
}

#[test]
fn each_address_has_its_own_slots() {
    let claims = ["127.9.5.2:4791", "127.9.5.2:4792", "[fe80::5:2%1]:4791", "[fe80::5:2%2]:4791"];
    let slots: Vec<Slot> = claims.iter().map(|address| claim(at(address))).collect();
    assert!(slots.iter().all(|slot| slot.number() == 0));
}

#[test]
fn claiming_fails_when_all_slots_are_claimed() {
    let address = at("127.9.5.3:4791");
    let slots: Vec<Slot> = (0..255).map(|_| claim(address)).collect();
    assert_eq!(slots.last().unwrap().number(), 254);
    let error = try_claim(address).unwrap_err();
    assert!(matches!(error, Error::NoFreeSlot { .. }), "{error}");
    assert!(error.to_string().contains("255 processes have it open"), "{error}");
}

#[test]
fn forwarded_datagrams_arrive_unchanged() {
    let cases = [
        ("127.9.5.4:4791", "10.0.0.1:49152", "10.0.0.2"),
        ("[fd00::5:4]:4791", "[fe80::1%3]:49152", "fe80::2"),
    ];
    for (address, source, destination) in cases {
        let (sender, receiver) = (claim(at(address)), claim(at(address)));
        let mut batch = ReceiveBatch::new(4, 65_536);
        assert_eq!(receiver.receive(&mut batch).unwrap(), 0);
        let data = pattern(65_000);
        let sent = info(source, destination, 1024);
        sender.forward(Recipient::Slot(1), &sent, &data).unwrap();
        sender.forward(Recipient::Slot(1), &sent, &data[..100]).unwrap();
        wait(&receiver);
        assert_eq!(receiver.receive(&mut batch).unwrap(), 2);
        let messages: Vec<_> = batch.messages().collect();
        assert!(messages[0].data == data && messages[1].data == &data[..100]);
        assert_eq!(*messages[0].info, RxInfo { length: 65_000, ..sent });
        assert_eq!(messages[0].packets().count(), 64);
        assert_eq!(*messages[1].info, RxInfo { length: 100, segment: 100, ..sent });
        assert_eq!(receiver.rejected(), 0);
    }
}

#[test]
fn a_busy_owner_and_a_missing_owner_are_different_errors() {
    let _quiet = no_forks();
    let address = at("127.9.5.5:4791");
    let (sender, receiver) = (claim(address), claim(address));
    let sent = info("10.0.0.1:1", "10.0.0.2", 10);
    let to = Recipient::Slot(1);
    let taken = (0..100_000).take_while(|_| sender.forward(to, &sent, &[0; 10]).is_ok()).count();
    assert!((1..100_000).contains(&taken));
    assert!(matches!(sender.forward(to, &sent, &[0; 10]), Err(Error::OwnerBusy)));
    drop(receiver);
    assert!(matches!(sender.forward(to, &sent, &[0; 10]), Err(Error::NoOwner)));
    assert!(matches!(sender.forward(Recipient::Service(5), &sent, &[]), Err(Error::NoOwner)));
}

#[test]
fn a_service_has_one_listener() {
    let _quiet = no_forks();
    let address = at("127.9.5.6:4791");
    let id = 0x0000_0000_0106_1234;
    let (slot, listener) = (claim(address), claim(address));
    let service = Service::claim(address, id, listener.number()).unwrap();
    for slot in [slot.number(), listener.number()] {
        let error = Service::claim(address, id, slot).unwrap_err();
        assert!(matches!(error, Error::ServiceTaken { service, .. } if service == id), "{error}");
    }
    let _other = Service::claim(address, id + 1, slot.number()).unwrap();
    let sent = info("10.0.0.1:1", "10.0.0.2", 0);
    slot.forward(Recipient::Service(id), &sent, b"MAD").unwrap();
    wait(&listener);
    let mut batch = ReceiveBatch::new(1, 1000);
    assert_eq!(listener.receive(&mut batch).unwrap(), 1);
    assert_eq!(batch.messages().next().unwrap().data, b"MAD");
    assert!(is_quiet(&slot));
    // A process does not forward to its own service.
    let own = listener.forward(Recipient::Service(id), &sent, b"MAD");
    assert!(matches!(own, Err(Error::NoOwner)));
    drop(service);
    let gone = slot.forward(Recipient::Service(id), &sent, b"MAD");
    assert!(matches!(gone, Err(Error::NoOwner)));
    assert_eq!(Service::claim(address, id, slot.number()).unwrap().id(), id);
}

#[test]
fn concurrent_claims_are_exclusive() {
    let address = at("127.9.5.9:4791");
    let claimed: Vec<(Slot, Option<Service>)> = std::thread::scope(|scope| {
        let claim = |_| {
            scope.spawn(|| {
                let slot = claim(address);
                let service = Service::claim(address, 5, slot.number()).ok();
                (slot, service)
            })
        };
        let claiming: Vec<_> = (0..8).map(claim).collect();
        claiming.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut numbers: Vec<u8> = claimed.iter().map(|(slot, _)| slot.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
    assert_eq!(claimed.iter().filter(|(_, service)| service.is_some()).count(), 1);
}

/// Sends arbitrary bytes to the mailbox of a slot.
fn send_raw(address: SocketAddr, slot: u8, bytes: &[u8]) {
    let directory = Directory::read(address).unwrap();
    let name = &directory.mailbox(slot).unwrap().name;
    let address = UnixAddress::from_abstract_name(name).unwrap();
    let sent = UnixDatagram::unbound().unwrap().send_to_addr(bytes, &address);
    assert_eq!(sent.unwrap(), bytes.len());
}

#[test]
fn malformed_datagrams_are_dropped_and_counted() {
    let address = at("127.9.5.7:4791");
    let slot = claim(address);
    let good = forward_header::encode(&info("10.0.0.1:1", "10.0.0.2", u32::MAX as usize));
    let mut newer = good;
    newer[3] = 2;
    for bytes in [&[][..], b"short", &good[..55], &newer[..]] {
        send_raw(address, 0, bytes);
    }
    // A header alone is an empty packet.
    send_raw(address, 0, &good);
    let mut batch = ReceiveBatch::new(16, 100);
    wait(&slot);
    assert_eq!(slot.receive(&mut batch).unwrap(), 1);
    let message = batch.messages().next().unwrap();
    assert_eq!((message.data.len(), message.packets().count()), (0, 0));
    assert_eq!(slot.rejected(), 4);
    // Longer than the buffers of the batch.
    send_raw(address, 0, &[&good[..], &[0; 101]].concat());
    assert_eq!(slot.receive(&mut batch).unwrap(), 0);
    assert_eq!(slot.rejected(), 5);
}

#[test]
fn any_header_is_parsed_or_dropped() {
    let good = forward_header::encode(&info("[fe80::1%3]:49152", "fe80::2", 100));
    let message = [&good[..], &[0; 250]].concat();
    let read = forward_header::decode(&message).unwrap();
    assert_eq!(read, RxInfo { length: 250, ..info("[fe80::1%3]:49152", "fe80::2", 100) });
    for at in 0..good.len() {
        for value in 0..=255 {
            let mut message = message.clone();
            message[at] = value;
            match forward_header::decode(&message) {
                Some(read) => assert!((1..=250).contains(&read.segment) && read.length == 250),
                None => assert!(at < 4 && value != good[at]),
            }
        }
    }
}

/// Tells the child process of the test below what to do.
const CHILD: &str = "FERROCE_NET_CLAIM";

/// Not a test: the second process of the test below, which claims a slot and keeps it until its input ends.
#[test]
#[ignore = "a child process of another test"]
fn second_process() {
    let Ok(address) = std::env::var(CHILD) else { return };
    let slot = claim(at(&address));
    let mut out = std::io::stdout();
    writeln!(out, "\nslot {}", slot.number()).unwrap();
    out.flush().unwrap();
    let mut batch = ReceiveBatch::new(1, 100);
    wait(&slot);
    slot.receive(&mut batch).unwrap();
    let message = batch.messages().next().unwrap();
    slot.forward(Recipient::Slot(0), message.info, message.data).unwrap();
    // Ends when the parent closes this, or ends.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start(address: &str) -> (Child, u8) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "net::tests::slots::second_process", "--include-ignored", "--nocapture"])
        .env(CHILD, address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = forking(|| command.spawn()).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let slot = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("slot ").map(|number| number.parse().unwrap()));
    (child, slot.unwrap())
}

#[test]
fn processes_have_different_slots_and_can_forward_to_each_other() {
    let address = "127.9.5.8:4791";
    let own = claim(at(address));
    let (mut child, slot) = start(address);
    assert_eq!((own.number(), slot), (0, 1));
    assert_eq!(claim(at(address)).number(), 2);
    let sent = info("10.0.0.1:1", "10.0.0.2", 4);
    own.forward(Recipient::Slot(slot), &sent, b"ping").unwrap();
    wait(&own);
    let mut batch = ReceiveBatch::new(1, 100);
    assert_eq!(own.receive(&mut batch).unwrap(), 1);
    assert_eq!(batch.messages().next().unwrap().data, b"ping");
    // The slot of a killed process is free.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(own.forward(Recipient::Slot(slot), &sent, b"x"), Err(Error::NoOwner)));
    assert_eq!(claim(at(address)).number(), 1);
}

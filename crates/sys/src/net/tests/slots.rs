//! Slots and services: claimed once, free again at the end, and mailboxes in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use super::{at, forking, is_quiet, no_forks, pattern, wait};
use crate::net::unix_name::{self, Directory};
use crate::syscall::{check_length, socket};
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
    let mut slots: Vec<Slot> = (0..4).map(|_| Slot::claim(address).unwrap()).collect();
    assert_eq!(slots.iter().map(Slot::number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    slots.remove(1);
    assert_eq!(Slot::claim(address).unwrap().number(), 1);
    assert_eq!(slots[0].address(), address);
}

#[test]
fn slots_of_other_addresses_are_others() {
    let claims = ["127.9.5.2:4791", "127.9.5.2:4792", "[fe80::5:2%1]:4791", "[fe80::5:2%2]:4791"];
    let slots: Vec<Slot> = claims.iter().map(|address| Slot::claim(at(address)).unwrap()).collect();
    assert!(slots.iter().all(|slot| slot.number() == 0));
}

#[test]
fn slots_come_to_an_end() {
    let address = at("127.9.5.3:4791");
    let slots: Vec<Slot> = (0..255).map(|_| Slot::claim(address).unwrap()).collect();
    assert_eq!(slots.last().unwrap().number(), 254);
    let error = Slot::claim(address).unwrap_err();
    assert!(matches!(error, Error::NoFreeSlot { .. }), "{error}");
}

#[test]
fn forwarded_messages_arrive_as_they_were() {
    let cases = [
        ("127.9.5.4:4791", "10.0.0.1:49152", "10.0.0.2"),
        ("[fd00::5:4]:4791", "[fe80::1%3]:49152", "fe80::2"),
    ];
    for (address, source, destination) in cases {
        let (one, other) = (Slot::claim(at(address)).unwrap(), Slot::claim(at(address)).unwrap());
        let mut batch = ReceiveBatch::new(4, 65_536);
        assert_eq!(other.receive(&mut batch).unwrap(), 0);
        let data = pattern(65_000);
        let sent = info(source, destination, 1024);
        one.forward(Recipient::Slot(1), &sent, &data).unwrap();
        one.forward(Recipient::Slot(1), &sent, &data[..100]).unwrap();
        wait(&other);
        assert_eq!(other.receive(&mut batch).unwrap(), 2);
        let messages: Vec<_> = batch.messages().collect();
        assert!(messages[0].data == data && messages[1].data == &data[..100]);
        assert_eq!(*messages[0].info, RxInfo { length: 65_000, ..sent });
        assert_eq!(messages[0].packets().count(), 64);
        assert_eq!(*messages[1].info, RxInfo { length: 100, segment: 100, ..sent });
        assert_eq!(other.rejected(), 0);
    }
}

#[test]
fn a_busy_owner_and_a_missing_one_are_told_apart() {
    let _quiet = no_forks();
    let address = at("127.9.5.5:4791");
    let (one, other) = (Slot::claim(address).unwrap(), Slot::claim(address).unwrap());
    let sent = info("10.0.0.1:1", "10.0.0.2", 10);
    let to = Recipient::Slot(1);
    let taken = (0..100_000).take_while(|_| one.forward(to, &sent, &[0; 10]).is_ok()).count();
    assert!((1..100_000).contains(&taken));
    assert!(matches!(one.forward(to, &sent, &[0; 10]), Err(Error::OwnerBusy)));
    drop(other);
    assert!(matches!(one.forward(to, &sent, &[0; 10]), Err(Error::NoOwner)));
    assert!(matches!(one.forward(Recipient::Service(5), &sent, &[]), Err(Error::NoOwner)));
}

#[test]
fn a_service_has_one_listener() {
    let _quiet = no_forks();
    let address = at("127.9.5.6:4791");
    let id = 0x0000_0000_0106_1234;
    let (slot, listener) = (Slot::claim(address).unwrap(), Slot::claim(address).unwrap());
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
    // What a process has given up itself is not forwarded to it.
    let own = listener.forward(Recipient::Service(id), &sent, b"MAD");
    assert!(matches!(own, Err(Error::NoOwner)));
    drop(service);
    let gone = slot.forward(Recipient::Service(id), &sent, b"MAD");
    assert!(matches!(gone, Err(Error::NoOwner)));
    assert_eq!(Service::claim(address, id, slot.number()).unwrap().id(), id);
}

#[test]
fn claims_at_the_same_time_are_exclusive() {
    let address = at("127.9.5.9:4791");
    let claimed: Vec<(Slot, Option<Service>)> = std::thread::scope(|scope| {
        let claim = |_| {
            scope.spawn(|| {
                let slot = Slot::claim(address).unwrap();
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

/// Sends bytes to a slot's socket that no forwarder would.
fn send_raw(address: SocketAddr, slot: u8, bytes: &[u8]) {
    use std::os::fd::AsRawFd;
    let sender = socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0).unwrap();
    let directory = Directory::read(address).unwrap();
    let (name, length) = unix_name::raw(&directory.mailbox(slot).unwrap().name);
    // SAFETY: bytes and name are alive through the call, as long as said.
    let sent = check_length(unsafe {
        libc::sendto(
            sender.as_fd().as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
            (&raw const name).cast(),
            length,
        )
    });
    assert_eq!(sent.unwrap(), bytes.len());
}

#[test]
fn what_is_not_understood_is_dropped_and_counted() {
    let address = at("127.9.5.7:4791");
    let slot = Slot::claim(address).unwrap();
    let good =
        crate::net::forward_header::encode(&info("10.0.0.1:1", "10.0.0.2", u32::MAX as usize));
    let mut newer = good;
    newer[3] = 2;
    for bytes in [&[][..], b"short", &good[..55], &newer[..]] {
        send_raw(address, 0, bytes);
    }
    // Nothing but a header is an empty packet.
    send_raw(address, 0, &good);
    let mut batch = ReceiveBatch::new(16, 100);
    wait(&slot);
    assert_eq!(slot.receive(&mut batch).unwrap(), 1);
    let message = batch.messages().next().unwrap();
    assert_eq!((message.data.len(), message.packets().count()), (0, 0));
    assert_eq!(slot.rejected(), 4);
    // Longer than the batch has room for.
    send_raw(address, 0, &[&good[..], &[0; 101]].concat());
    assert_eq!(slot.receive(&mut batch).unwrap(), 0);
    assert_eq!(slot.rejected(), 5);
}

#[test]
fn a_header_of_any_bytes_is_read_or_dropped() {
    let good = crate::net::forward_header::encode(&info("[fe80::1%3]:49152", "fe80::2", 100));
    let message = [&good[..], &[0; 250]].concat();
    let read = crate::net::forward_header::decode(&message).unwrap();
    assert_eq!(read, RxInfo { length: 250, ..info("[fe80::1%3]:49152", "fe80::2", 100) });
    for at in 0..good.len() {
        for value in 0..=255 {
            let mut message = message.clone();
            message[at] = value;
            match crate::net::forward_header::decode(&message) {
                Some(read) => assert!((1..=250).contains(&read.segment) && read.length == 250),
                None => assert!(at < 4 && value != good[at]),
            }
        }
    }
}

/// Where the test below tells its child what to do.
const CHILD: &str = "FERROCE_NET_CLAIM";

/// Not a test by itself: the second process of the test below, which claims a slot and keeps it until told to end.
#[test]
#[ignore = "a child process of another test"]
fn second_process() {
    let Ok(address) = std::env::var(CHILD) else { return };
    let slot = Slot::claim(at(&address)).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "\nslot {}", slot.number()).unwrap();
    out.flush().unwrap();
    let mut batch = ReceiveBatch::new(1, 100);
    wait(&slot);
    slot.receive(&mut batch).unwrap();
    let message = batch.messages().next().unwrap();
    slot.forward(Recipient::Slot(0), message.info, message.data).unwrap();
    // Ends when the parent closes this, or dies.
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
fn processes_have_different_slots_and_reach_each_other() {
    let address = "127.9.5.8:4791";
    let own = Slot::claim(at(address)).unwrap();
    let (mut child, slot) = start(address);
    assert_eq!((own.number(), slot), (0, 1));
    assert_eq!(Slot::claim(at(address)).unwrap().number(), 2);
    let sent = info("10.0.0.1:1", "10.0.0.2", 4);
    own.forward(Recipient::Slot(slot), &sent, b"ping").unwrap();
    wait(&own);
    let mut batch = ReceiveBatch::new(1, 100);
    assert_eq!(own.receive(&mut batch).unwrap(), 1);
    assert_eq!(batch.messages().next().unwrap().data, b"ping");
    // A process that is killed has given its slot back.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(own.forward(Recipient::Slot(slot), &sent, b"x"), Err(Error::NoOwner)));
    assert_eq!(Slot::claim(at(address)).unwrap().number(), 1);
}

//! Rings between processes: offers, wakeups, ends, and other users.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::users::as_user;
use super::{at, wait};
use crate::net::unix_name::Directory;
use crate::{Change, Hub, Incoming, Interest, MAX_RING_SIZE, Outgoing, Poller};

const SIZE: usize = 1 << 16;

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(&fd, Interest::Read);
    poller.wait(Some(0)).unwrap();
    poller.readiness(index).readable
}

/// Two hubs with a ring from the first to the second.
fn connected(address: &str) -> (Hub, Hub, Outgoing, Arc<Incoming>) {
    let (sender, receiver) = (Hub::new().unwrap(), Hub::new().unwrap());
    assert!(receiver.announce(at(address), 5));
    let outgoing = sender.connect(at(address), 5, SIZE).unwrap();
    wait(&receiver);
    let [Change::Accepted(incoming)] = &receiver.run()[..] else { panic!("no ring") };
    (sender, receiver, outgoing, Arc::clone(incoming))
}

fn write(ring: &Outgoing, data: &[u8]) -> bool {
    let mut producer = ring.producer.lock();
    producer.room(data.len()).unwrap().unwrap().copy_from_slice(data);
    producer.commit(data.len());
    producer.publish()
}

fn read(ring: &Incoming) -> Option<Vec<u8>> {
    let mut out = vec![0; 1000];
    let length = ring.consumer.take(&mut out).unwrap()?;
    out.truncate(length);
    Some(out)
}

/// A connection to a name, without a ring.
fn raw_connection(name: &str) -> OwnedFd {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    socket
}

#[test]
fn records_written_before_the_ring_was_accepted_arrive() {
    let (sender, receiver) = (Hub::new().unwrap(), Hub::new().unwrap());
    let address = at("127.9.10.1:4791");
    assert!(sender.connect(address, 5, SIZE).is_none(), "nobody accepts rings");
    assert!(receiver.announce(address, 5));
    assert!(sender.connect(address, 6, SIZE).is_none(), "another slot");
    let outgoing = sender.connect(address, 5, SIZE).unwrap();
    write(&outgoing, b"early");
    wait(&receiver);
    let [Change::Accepted(incoming)] = &receiver.run()[..] else { panic!("no ring") };
    assert_eq!(read(incoming).unwrap(), b"early");
}

#[test]
fn a_sleeping_process_is_woken_once() {
    let (_sender, receiver, outgoing, incoming) = connected("127.9.10.2:4791");
    let rings = [Arc::clone(&incoming)];
    receiver.sleep(&rings, || false);
    assert!(!is_readable(receiver.bells()));
    assert!(write(&outgoing, b"1"), "it sleeps");
    outgoing.wake();
    assert!(!write(&outgoing, b"2"), "it was woken");
    wait(&receiver.bells());
    // It goes to sleep without having taken the records.
    receiver.sleep(&rings, || false);
    assert!(is_readable(receiver.bells()));
    while read(&incoming).is_some() {}
    receiver.sleep(&rings, || false);
    assert!(!is_readable(receiver.bells()));
    receiver.sleep(&rings, || true);
    assert!(is_readable(receiver.bells()));
}

#[test]
fn the_end_of_either_side_is_noticed() {
    let (sender, receiver, outgoing, incoming) = connected("127.9.10.3:4791");
    drop((receiver, incoming));
    wait(&sender);
    assert!(outgoing.has_ended());
    assert!(matches!(sender.run()[..], [Change::Ended(id)] if id == outgoing.id));

    let (sender, receiver, outgoing, incoming) = connected("127.9.10.4:4791");
    write(&outgoing, b"last");
    drop((sender, outgoing));
    wait(&receiver);
    assert!(receiver.run().is_empty());
    assert!(!incoming.has_ended(), "there is a record");
    assert_eq!(read(&incoming).unwrap(), b"last");
    assert!(incoming.has_ended());
}

#[test]
fn another_user_gets_no_ring() {
    let test = "another_user_gets_no_ring";
    let address = at("127.9.10.5:4791");
    let own = Hub::new().unwrap();
    assert!(own.announce(address, 5));
    let refused = as_user(1001, test, || {
        let hub = Hub::new().unwrap();
        // Its names are not those of this user.
        assert!(hub.connect(address, 5, SIZE).is_none());
        assert!(hub.announce(address, 7));
        hub
    });
    let Some(other) = refused else { return };
    assert!(own.connect(address, 7, SIZE).is_none());
    // A connection to the name, which it may have guessed.
    let directory = Directory::read(address).unwrap();
    let name = directory.ring(5).unwrap().name.clone();
    let socket = as_user(1001, test, || raw_connection(&name));
    wait(&own);
    assert!(own.run().is_empty());
    // It was closed.
    assert!(is_readable(socket.unwrap().as_fd()));
    drop(other);
}

#[test]
fn a_message_without_a_ring_is_refused() {
    let address = at("127.9.10.6:4791");
    let hub = Hub::new().unwrap();
    assert!(hub.announce(address, 5));
    let name = Directory::read(address).unwrap().ring(5).unwrap().name.clone();
    for message in [&b"Fr\0\x02"[..], b"Fr\0\x01", b"", b"Fr\0\x02more"] {
        let socket = raw_connection(&name);
        rustix::net::send(&socket, message, rustix::net::SendFlags::empty()).unwrap();
        wait(&hub);
        assert!(hub.run().is_empty());
        assert!(is_readable(socket.as_fd()), "it was closed");
    }
}

/// The memory of a ring is its sender's, but the process that maps it keeps it.
#[test]
fn offered_rings_are_limited_in_size_and_number() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const MOST: usize = 2 * 255;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let address = at("127.9.10.7:4791");
    let (sender, receiver) = (Hub::new().unwrap(), Hub::new().unwrap());
    assert!(receiver.announce(address, 5));
    let large = sender.connect(address, 5, 2 * MAX_RING_SIZE).unwrap();
    wait(&receiver);
    assert!(receiver.run().is_empty(), "a ring of {} bytes", 2 * MAX_RING_SIZE);
    assert!(large.has_ended());
    let mut rings = Vec::new();
    let mut accepted = 0;
    for _ in 0..MOST + 20 {
        rings.push(sender.connect(address, 5, 4096).unwrap());
        wait(&receiver);
        accepted += receiver.run().len();
    }
    assert_eq!(accepted, MOST);
    assert_eq!(rings.iter().filter(|ring| ring.has_ended()).count(), 20);
    // Places become free again.
    drop((rings, sender));
    wait(&receiver);
    receiver.run();
    let again = Hub::new().unwrap().connect(address, 5, MAX_RING_SIZE);
    wait(&receiver);
    assert!(matches!(receiver.run()[..], [Change::Accepted(_)]));
    drop(again);
}

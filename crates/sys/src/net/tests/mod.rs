//! Every test has its own loopback address or network namespace, so that all can run in parallel.

mod batches;
mod control_data;
mod errors;
mod forks;
mod frames;
mod hubs;
mod icmp_errors;
mod interfaces;
mod namespace;
mod neighbours;
mod privilege;
mod processes;
mod slots;
mod steering;
mod users;
mod waiting;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::{Batch, Error, Interest, Options, Poller, ReceiveBatch, RxInfo, Slot, Socket, clock};

/// Only a test that fails waits this long, in nanoseconds.
const TEST_TIMEOUT: u64 = 10_000_000_000;

/// Parses an address with a port.
fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// Opens a socket with all features at a free port.
fn open(ip: &str) -> Socket {
    Socket::open(SocketAddr::new(ip.parse().unwrap(), 0), &Options::default()).unwrap()
}

/// Claims a slot of an address.
fn try_claim(address: SocketAddr) -> Result<Slot, Error> {
    Ok(Slot::claim_all(&[address])?.pop().unwrap())
}

fn claim(address: SocketAddr) -> Slot {
    try_claim(address).unwrap()
}

/// Claims a slot of an address and opens its socket.
fn open_slot(address: SocketAddr, options: &Options) -> (Slot, Socket) {
    Slot::open_all(&[address], options).unwrap().pop().unwrap()
}

/// Waits until a descriptor is readable.
fn wait(what: &impl AsFd) {
    assert!(is_readable(what, clock::now() + TEST_TIMEOUT), "nothing arrived");
}

fn is_readable(what: &impl AsFd, deadline: u64) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(what, Interest::Read);
    poller.wait(Some(deadline)).unwrap();
    poller.readiness(index).readable
}

/// Waits until one of two descriptors is readable, and returns whether it is the first.
fn is_first(first: &impl AsFd, second: &impl AsFd) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(first, Interest::Read);
    poller.watch(second, Interest::Read);
    assert!(poller.wait(Some(clock::now() + TEST_TIMEOUT)).unwrap() == 1);
    poller.readiness(index).readable
}

/// Whether nothing is queued.
fn is_quiet(what: &impl AsFd) -> bool {
    !is_readable(what, 0)
}

/// Receives `count` packets.
fn receive(socket: &Socket, count: usize) -> Vec<(RxInfo, Vec<u8>)> {
    let mut batch = ReceiveBatch::for_socket(socket);
    let mut packets = Vec::new();
    while packets.len() < count {
        wait(socket);
        socket.receive(&mut batch).unwrap();
        for message in batch.messages() {
            packets.extend(message.packets().map(|packet| (*message.info, packet.to_vec())));
        }
    }
    assert_eq!(packets.len(), count);
    packets
}

fn bytes(packets: Vec<(RxInfo, Vec<u8>)>) -> Vec<Vec<u8>> {
    packets.into_iter().map(|(_, packet)| packet).collect()
}

/// A batch with default type of service and hop limit.
fn plain<'a>(destination: SocketAddr, segment: usize, pieces: &'a [IoSlice<'a>]) -> Batch<'a> {
    Batch { destination, tos: 0, hop_limit: None, segment, pieces }
}

/// Sends one packet.
fn send(socket: &Socket, destination: SocketAddr, packet: &[u8]) {
    let pieces = [IoSlice::new(packet)];
    assert_eq!(socket.send(&plain(destination, packet.len().max(1), &pieces)).unwrap(), 1);
}

/// Bytes that differ from each other and from their neighbours.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// If tests are threads of one process, a child that one of them starts has all their sockets open between fork and exec.
/// So a test that closes a socket and checks the effect prevents others from forking meanwhile.
static FORKS: RwLock<()> = RwLock::new(());

fn no_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child process. When this returns, the child has called exec and has none of the sockets.
fn forking<T>(start: impl FnOnce() -> T) -> T {
    let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Reports that a test is skipped.
fn skipped(test: &str, why: &str) {
    ferroce_test_support::skip(format_args!("{test}: {why}"));
}

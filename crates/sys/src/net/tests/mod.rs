//! Every test has a loopback address of its own, or a network namespace, so that all can run at once.

mod errors;
mod forks;
mod frames;
mod interfaces;
mod marks;
mod namespace;
mod neighbours;
mod privilege;
mod processes;
mod reports;
mod segments;
mod slots;
mod steering;
mod users;
mod waiting;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::{Batch, Interest, Options, Poller, ReceiveBatch, RxInfo, Socket, clock};

/// Long enough that only a packet that never comes is waited for so long.
const PATIENCE: u64 = 10_000_000_000;

/// The text as an address with a port.
fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// A socket with everything on, at a port of its own.
fn open(ip: &str) -> Socket {
    Socket::open(SocketAddr::new(ip.parse().unwrap(), 0), &Options::default()).unwrap()
}

/// Waits until there is something to receive.
fn wait(what: &impl AsFd) {
    assert!(is_readable(what, clock::now() + PATIENCE), "nothing came");
}

fn is_readable(what: &impl AsFd, deadline: u64) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(what, Interest::Read);
    poller.wait(Some(deadline)).unwrap();
    poller.readiness(index).readable
}

/// Waits until one of two has something to receive, and says whether it is the first.
fn is_first(first: &impl AsFd, second: &impl AsFd) -> bool {
    let mut poller = Poller::new();
    let index = poller.watch(first, Interest::Read);
    poller.watch(second, Interest::Read);
    assert!(poller.wait(Some(clock::now() + PATIENCE)).unwrap() == 1);
    poller.readiness(index).readable
}

/// Whether nothing waits now.
fn is_quiet(what: &impl AsFd) -> bool {
    !is_readable(what, 0)
}

/// Receives so many packets.
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

/// A batch with neither marks nor hop limit.
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

/// Where tests are threads of one process, a child that one of them starts holds all their sockets open for the moment
/// between fork and exec. So a test that closes a socket and looks at what follows keeps others from forking meanwhile.
static FORKS: RwLock<()> = RwLock::new(());

fn no_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child process. When this returns, it has its own program and none of our sockets.
fn forking<T>(start: impl FnOnce() -> T) -> T {
    let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Says that a test could not be run, in the one place where it shows.
fn skipped(test: &str, why: &str) {
    ferroce_test_support::skip(format_args!("{test}: {why}"));
}

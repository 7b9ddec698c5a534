//! What the engine does to save system calls, under faults and with a peer that is killed: packets that are kept because
//! the send buffer is full, credit that queue pairs share, requests that leave together, ACKs that wait for the program,
//! and threads that receive for themselves.
//!
//! The peer is this test binary, running the ignored test `peer`.

use std::time::{Duration, Instant};

use ferroce::*;

use crate::support::other::Other;
use crate::support::{
    Side, attributes, bring_up, gid_index, open_alone, over_sockets, own_port, pattern, side,
};

const QUEUE_PAIRS: usize = 8;
const MEMORY: usize = 1 << 20;

/// Of each fault about every thirtieth packet. Over IPv6, whose ICRC finds every inverted bit.
const FAULTS: [&str; 4] = ["loss=3%", "corruption=3%", "reordering=3%", "duplication=3%"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// The send buffer is full, so a packet whose PSN is used up is kept.
    Kept,
    /// The queue pairs share the credit for a small receive buffer.
    Credit,
    /// Requests are posted one by one while others are unacknowledged.
    Doorbell,
    /// Both programs poll, and ACKs wait for their next call.
    DeferredAck,
    /// Both programs wait, and receive for themselves.
    Waiting,
}

const ALL: [Path; 5] = [Path::Kept, Path::Credit, Path::Doorbell, Path::DeferredAck, Path::Waiting];

impl Path {
    fn options(self, faults: &str) -> Options {
        let mut options = over_sockets();
        match self {
            Self::Kept => options.sockets.send_buffer = 8 << 10,
            Self::Credit => options.sockets.receive_buffer = 128 << 10,
            _ => {}
        }
        options.sockets.force_buffers = false;
        if !faults.is_empty() {
            options.faults = Some(format!("{faults},seed=11").parse().unwrap());
        }
        options
    }
}

/// The other process, with as many queue pairs.
struct Peer(Other);

const PEER: &str = "FERROCE_PATHS_TEST_PEER";

impl Peer {
    fn start(path: Path, faults: &str) -> Self {
        let place = ALL.iter().position(|known| *known == path).unwrap();
        let arguments = format!("{} {place} {faults}", own_port());
        Self(Other::start("paths::peer", PEER, &arguments))
    }

    fn connect(&mut self, context: &Context, killed: bool) -> Vec<(Side, RemoteAddress)> {
        let end = |_| {
            let numbers = self.0.hear();
            let end = side(context, ServiceType::ReliableConnection, MEMORY);
            bring_up(&end.queue_pair, &patient(context, Qpn(numbers[0] as u32), killed));
            self.0.say(end.queue_pair.number().0);
            let (address, key) = (VirtualAddress(numbers[1]), RKey(numbers[2] as u32));
            (end, RemoteAddress { address, key })
        };
        let ends = (0..QUEUE_PAIRS).map(end).collect();
        self.0.hear();
        ends
    }
}

/// Attributes with a long ACK timeout: with more threads than cores, a process may not run for a while. If it is to be
/// killed, with few retries.
fn patient(context: &Context, peer: Qpn, killed: bool) -> QueuePairAttributes {
    let index = gid_index(context, true).or_else(|| gid_index(context, false)).unwrap();
    QueuePairAttributes {
        timeout: Some(AckTimeout(17)),
        retry_count: Some(if killed { 1 } else { 7 }),
        ..attributes(context, index, peer, 1024)
    }
}

/// Returns each message that arrives.
#[test]
#[ignore = "the other process of tests"]
fn peer() {
    let Ok(arguments) = std::env::var(PEER) else { return };
    let mut arguments = arguments.splitn(3, ' ');
    let port = arguments.next().unwrap().parse().unwrap();
    let path = ALL[arguments.next().unwrap().parse::<usize>().unwrap()];
    let options = Options { port, ..path.options(arguments.next().unwrap_or_default()) };
    let context = Context::open(&Device::named("lo").unwrap(), &options).unwrap();
    let mut input = std::io::stdin().lines().map(Result::unwrap);
    let ends: Vec<_> = (0..QUEUE_PAIRS)
        .map(|_| {
            let end = side(&context, ServiceType::ReliableConnection, MEMORY);
            let remote = end.region.remote(0);
            println!("@{} {} {}", end.queue_pair.number().0, remote.address.0, remote.key.0);
            let number = Qpn(input.next().unwrap().parse().unwrap());
            bring_up(&end.queue_pair, &patient(&context, number, false));
            (0..32).for_each(|slot| end.post_receive(slot, slot * 1024, 1024));
            end
        })
        .collect();
    println!("@1");
    std::thread::scope(|scope| {
        for end in &ends {
            scope.spawn(move || echo(end, path == Path::DeferredAck));
        }
        // Until the other process ends.
        assert!(input.next().is_none());
        std::process::exit(0);
    });
}

fn echo(end: &Side, polls: bool) {
    loop {
        let done = if polls { end.completions.poll_one() } else { end.completions.wait().ok() };
        let Some(done) = done else {
            std::thread::yield_now();
            continue;
        };
        if done.status != Status::Success {
            return;
        }
        // Requests to send have higher IDs.
        if done.id.0 < 32 {
            end.post(32 + done.id.0, Operation::SEND, done.id.0 * 1024, 1024);
        } else {
            end.post_receive(done.id.0 - 32, (done.id.0 - 32) * 1024, 1024);
        }
    }
}

/// One round of requests on a queue pair, after which all bytes are compared. Returns the status of the first that failed.
fn round(path: Path, number: u64, (end, remote): &(Side, RemoteAddress)) -> Result<(), Status> {
    let write = Operation::Write { remote: *remote, immediate: None };
    let read = Operation::Read { remote: *remote };
    let wait = |id: u64| {
        let polls = path == Path::DeferredAck;
        let done = loop {
            let found =
                if polls { end.completions.poll_one() } else { end.completions.wait().ok() };
            if let Some(done) = found {
                break done;
            }
            std::thread::yield_now();
        };
        if done.status == Status::Success {
            assert_eq!(done.id, WorkId(id));
        }
        if done.status == Status::Success { Ok(()) } else { Err(done.status) }
    };
    let length = match path {
        Path::Kept | Path::Credit => 256 << 10,
        Path::Doorbell => 64 * 64,
        Path::DeferredAck | Path::Waiting => 16 * 1024,
    };
    let bytes = pattern(number, length);
    match path {
        Path::Kept | Path::Credit => {
            end.region.write(0, &bytes).unwrap();
            end.post(1, write, 0, length);
            wait(1)?;
        }
        Path::Doorbell => {
            end.region.write(0, &bytes).unwrap();
            for id in 0..64 {
                let address = VirtualAddress(remote.address.0 + id * 64);
                let at = RemoteAddress { address, ..*remote };
                end.post(id, Operation::Write { remote: at, immediate: None }, id * 64, 64);
            }
            (0..64).try_for_each(wait)?;
        }
        Path::DeferredAck | Path::Waiting => {
            for id in 0..16 {
                let part = &bytes[id * 1024..][..1024];
                end.region.write(0, part).unwrap();
                end.post_receive(1, 4096, 1024);
                end.post(2, Operation::SEND, 0, 1024);
                // The reply may come before the ACK.
                let mut left = vec![WorkId(1), WorkId(2)];
                while !left.is_empty() {
                    let soon = Instant::now() + Duration::from_millis(20);
                    let found = match path {
                        Path::Waiting => end.completions.wait_until(soon).unwrap(),
                        _ => std::iter::repeat_with(|| end.completions.poll_one())
                            .find(|found| found.is_some() || Instant::now() > soon)
                            .flatten(),
                    };
                    match found {
                        Some(done) if done.status != Status::Success => return Err(done.status),
                        Some(done) => left.retain(|id| *id != done.id),
                        // Only a request finds out that a peer that owes a reply is gone.
                        None if left == [WorkId(1)] => {
                            left.push(WorkId(3));
                            end.post(3, write, 0, 0);
                        }
                        None => {}
                    }
                }
                assert!(end.bytes(4096, 1024) == part, "message {id}");
            }
            return Ok(());
        }
    }
    end.region.write(0, &vec![0; length]).unwrap();
    end.post(999, read, 0, length);
    wait(999)?;
    assert!(end.bytes(0, length) == bytes, "round {number}");
    Ok(())
}

/// All queue pairs at the same time, each in a thread.
fn rounds(path: Path, ends: &[(Side, RemoteAddress)], count: u64) -> Vec<Result<(), Status>> {
    std::thread::scope(|scope| {
        let run = |end| move || (0..count).try_for_each(|number| round(path, number, end));
        let threads: Vec<_> = ends.iter().map(|end| scope.spawn(run(end))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn survives_faults(path: Path) {
    for faults in FAULTS {
        let context = open_alone(&path.options(faults));
        let mut peer = Peer::start(path, faults);
        let ends = peer.connect(&context, false);
        let results = rounds(path, &ends, 3);
        assert!(results.iter().all(Result::is_ok), "{faults}: {results:?}");
        let counted = context.statistics();
        if faults.starts_with("corruption") {
            assert!(counted.bad_icrc > 0, "{counted:?}");
        }
    }
}

fn notices_a_kill(path: Path) {
    for delay in 0..2 {
        let context = open_alone(&path.options(""));
        let mut peer = Peer::start(path, "");
        let ends = peer.connect(&context, true);
        std::thread::scope(|scope| {
            // Endless, but for the end of the peer.
            let all = scope.spawn(|| rounds(path, &ends, u64::MAX));
            let sent = || context.statistics().packets_out;
            let until = sent() + 200 * (1 + delay);
            while sent() < until {
                std::thread::yield_now();
            }
            peer.0.kill();
            for result in all.join().unwrap() {
                assert!(
                    matches!(result, Err(Status::RetryExceeded | Status::Flushed)),
                    "{path:?}: {result:?}"
                );
            }
        });
    }
}

macro_rules! paths {
    ($($name:ident, $path:ident;)+) => { $(
        mod $name {
            #[test]
            fn survives_faults() {
                super::survives_faults(super::Path::$path);
            }

            #[test]
            fn notices_that_the_peer_was_killed() {
                super::notices_a_kill(super::Path::$path);
            }
        }
    )+ };
}

paths! {
    kept_packets, Kept;
    shared_credit, Credit;
    requests_that_leave_together, Doorbell;
    deferred_acks, DeferredAck;
    threads_that_receive_for_themselves, Waiting;
}

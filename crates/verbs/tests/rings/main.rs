//! Packets through memory that two processes share.
//!
//! A child is this test binary, running the ignored test `child`.

mod datagrams;
#[path = "../support/mod.rs"]
mod support;

use std::io::BufRead;
use std::time::{Duration, Instant};

use ferroce::*;
use ferroce_sys::signal;
use ferroce_trace::analysis::{self, analyze};
use support::other::Other;
use support::{
    Side, attributes, bring_up, connect, gid_index, open, open_alone, over_sockets, own_port,
    pattern, side,
};

const MEMORY: u64 = 4 << 20;

fn shared() -> Options {
    Options { local: Local::Memory, ..Options::default() }
}

fn pair(context: &Context, service: ServiceType, mtu: usize) -> (Side, Side) {
    let (one, other) = (side(context, service, 4 << 20), side(context, service, 4 << 20));
    connect(&one, &other, gid_index(context, false).unwrap(), mtu);
    (one, other)
}

/// Sends, writes and reads messages of many sizes, and compares all bytes.
fn exchange(one: &Side, other: &Side) {
    for (id, length) in [0, 1, 63, 64, 4096, 4097, 65_536, 3_000_001].into_iter().enumerate() {
        let id = id as u64;
        let bytes = pattern(id, length);
        one.region.write(0, &bytes).unwrap();
        other.post_receive(id, 0, length);
        one.post(id, Operation::SEND, 0, length);
        other.expect(id);
        one.expect(id);
        assert!(other.bytes(0, length) == bytes, "SEND of {length} bytes");

        let bytes = pattern(id + 100, length);
        one.region.write(0, &bytes).unwrap();
        let remote = other.region.remote(0);
        one.post(id, Operation::Write { remote, immediate: None }, 0, length);
        one.expect(id);
        assert!(other.bytes(0, length) == bytes, "WRITE of {length} bytes");

        one.region.write(0, &vec![0; length]).unwrap();
        one.post(id, Operation::Read { remote: other.region.remote(0) }, 0, length);
        one.expect(id);
        assert!(one.bytes(0, length) == bytes, "READ of {length} bytes");
    }
}

#[test]
fn messages_go_through_memory() {
    for mtu in [256, 4096] {
        let context = open_alone(&shared());
        let (one, other) = pair(&context, ServiceType::ReliableConnection, mtu);
        assert!(one.queue_pair.shares_memory());
        exchange(&one, &other);
        let add = Operation::FetchAdd { remote: other.region.remote(0), add: 5 };
        other.region.write(0, &7u64.to_ne_bytes()).unwrap();
        one.post(1, add, 0, 8);
        one.expect(1);
        assert_eq!(one.bytes(0, 8), 7u64.to_ne_bytes());
        assert_eq!(other.bytes(0, 8), 12u64.to_ne_bytes());
        let counted = context.statistics();
        assert!(counted.packets_in > 0);
        assert_eq!(counted.local_packets_in, counted.packets_in, "{counted:?}");
        assert_eq!(counted.local_packets_out, counted.packets_out, "{counted:?}");
        assert_eq!(counted.local_ack_timeout_err, 0, "{counted:?}");
    }
}

#[test]
fn unreliable_messages_go_through_memory_without_loss() {
    let context = open_alone(&shared());
    let (one, other) = pair(&context, ServiceType::UnreliableConnection, 4096);
    let length = 100_000;
    for id in 0..200 {
        let bytes = pattern(id, length);
        one.region.write(0, &bytes).unwrap();
        other.post_receive(id, 0, length);
        one.post(id, Operation::SEND, 0, length);
        one.expect(id);
        other.expect(id);
        assert!(other.bytes(0, length) == bytes, "message {id}");
    }
    assert_eq!(context.statistics().local_packets_in, context.statistics().packets_in);
}

#[test]
fn a_process_without_shared_memory_is_reached_by_sockets() {
    let contexts = [open_alone(&shared()), open_alone(&over_sockets())];
    let [one, other] =
        contexts.each_ref().map(|context| side(context, ServiceType::ReliableConnection, 4 << 20));
    connect(&one, &other, gid_index(&contexts[0], false).unwrap(), 4096);
    assert!(!one.queue_pair.shares_memory() && !other.queue_pair.shares_memory());
    exchange(&one, &other);
    for counted in contexts.map(|context| context.statistics()) {
        assert!(counted.packets_in > 0);
        assert_eq!((counted.local_packets_in, counted.local_packets_out), (0, 0), "{counted:?}");
    }
}

#[test]
fn faults_are_recovered() {
    let faults: Faults = "loss=2%,reordering=2%,duplication=2%,seed=3".parse().unwrap();
    let context = open_alone(&Options { faults: Some(faults), ..shared() });
    let (one, other) = pair(&context, ServiceType::ReliableConnection, 1024);
    exchange(&one, &other);
    let counted = context.statistics();
    assert!(counted.packet_seq_err + counted.implied_nak_seq_err > 0, "{counted:?}");
    assert_eq!(counted.bad_icrc, 0, "{counted:?}");
}

/// The ring to a process that has ended is replaced by that to the new owner of its slot before the device thread notices the end.
#[test]
fn requests_to_a_process_fail_when_its_slot_has_another_owner() {
    let theirs = Options { congestion: Some(Congestion::Unlimited), ..shared() };
    let (context, first) = (open_alone(&shared()), open_alone(&theirs));
    let index = gid_index(&context, false).unwrap();
    let new_side = |context: &Context| side(context, ServiceType::ReliableConnection, 4096);
    let (one, old) = (new_side(&context), new_side(&first));
    connect(&one, &old, index, 4096);
    assert!(one.queue_pair.shares_memory());
    let slot = |side: &Side| side.queue_pair.number().0 >> 16;
    let before = slot(&old);
    let paused = context.pause_thread();
    drop((old, first));
    let second = open_alone(&theirs);
    let (other, new) = (new_side(&context), new_side(&second));
    assert_eq!(slot(&new), before, "the slot is not used again");
    connect(&other, &new, index, 4096);
    drop(paused);
    one.post(1, Operation::SEND, 0, 64);
    let failed = one.completions.wait().unwrap();
    assert_eq!((failed.id, failed.status), (WorkId(1), Status::RetryExceeded));
    exchange_one(&other, &new);
}

/// Sends a message.
fn exchange_one(one: &Side, other: &Side) {
    other.post_receive(7, 0, 64);
    one.post(7, Operation::SEND, 0, 64);
    one.expect(7);
    other.expect(7);
}

/// MIDDLE packets are one record in the ring, but counted as what they are.
#[test]
fn packets_in_runs_are_counted_one_by_one() {
    let context = open_alone(&shared());
    let (one, other) = pair(&context, ServiceType::ReliableConnection, 1024);
    one.region.write(0, &pattern(1, 1 << 20)).unwrap();
    let before = context.statistics();
    let write = Operation::Write { remote: other.region.remote(0), immediate: None };
    one.post(1, write, 0, 1 << 20);
    one.expect(1);
    let after = context.statistics();
    assert!(other.bytes(0, 1 << 20) == pattern(1, 1 << 20));
    let packets = after.packets_out - before.packets_out;
    let acks = packets - 1024;
    assert!((1..=64).contains(&acks), "{acks} ACKs");
    // Headers and ICRC of each packet, the RETH of the first, and the AETH of the ACKs.
    let bytes = after.bytes_out - before.bytes_out;
    assert_eq!(bytes, (1 << 20) + packets * 16 + 16 + acks * 4);
}

/// A process that does not know of the capture sends runs.
#[test]
fn a_captured_receiver_sees_each_packet_of_a_run() {
    let name = format!("ferroce-rings-runs-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    let contexts = [open(&shared()), open(&Options { capture: Some(path.clone()), ..shared() })];
    let [one, other] =
        contexts.each_ref().map(|context| side(context, ServiceType::ReliableConnection, 4 << 20));
    connect(&one, &other, gid_index(&contexts[0], false).unwrap(), 1024);
    assert!(one.queue_pair.shares_memory());
    exchange(&one, &other);
    let counted = contexts[1].statistics();
    drop((one, other, contexts));
    let file = std::fs::File::open(&path).unwrap();
    let report = analyze("capture", file, &analysis::Options::default(), &mut |_| {});
    std::fs::remove_file(&path).unwrap();
    assert_eq!((report.problems, report.anomalies), (vec![], vec![]));
    let all = counted.packets_in + counted.packets_out;
    assert_eq!((report.icrc.ok, report.icrc.bad), (all, 0));
}

#[test]
fn captures_have_every_packet_with_its_icrc() {
    let name = format!("ferroce-rings-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    // The analyser knows RoCE by its port.
    let context = open(&Options { capture: Some(path.clone()), ..shared() });
    let (one, other) = pair(&context, ServiceType::ReliableConnection, 4096);
    exchange(&one, &other);
    let counted = context.statistics();
    drop((one, other, context));
    let file = std::fs::File::open(&path).unwrap();
    let report = analyze("capture", file, &analysis::Options::default(), &mut |_| {});
    std::fs::remove_file(&path).unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.anomalies, []);
    // Each packet once, although this process both sent and received it.
    assert_eq!((report.icrc.ok, report.icrc.bad), (counted.packets_out, 0));
    assert_eq!(counted.packets_out, counted.local_packets_out);
}

#[test]
fn a_thousand_queue_pairs_share_one_ring() {
    let context = open_alone(&shared());
    let end = || side(&context, ServiceType::ReliableConnection, 8192);
    let pairs: Vec<_> = (0..500).map(|_| (end(), end())).collect();
    assert_eq!(mappings(), 0);
    for (one, other) in &pairs {
        connect(one, other, gid_index(&context, false).unwrap(), 4096);
    }
    for (number, (one, other)) in pairs.iter().enumerate() {
        let bytes = pattern(number as u64, 5000);
        one.region.write(0, &bytes).unwrap();
        let remote = other.region.remote(0);
        one.post(1, Operation::Write { remote, immediate: None }, 0, 5000);
    }
    for (number, (one, other)) in pairs.iter().enumerate() {
        one.expect(1);
        assert!(other.bytes(0, 5000) == pattern(number as u64, 5000), "pair {number}");
    }
    // Two at each end.
    assert_eq!(mappings(), 4);
}

/// The mappings of rings in this process.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("ferroce-ring")).count()
}

/// Another process with a QP, whose memory this one may use.
struct Process(Other);

const PORT: &str = "FERROCE_RINGS_TEST_PORT";

impl Process {
    fn start() -> Self {
        Self(Other::start("child", PORT, &own_port().to_string()))
    }

    /// Connects a new QP to the one of the process. Its memory is as large as that of the QP.
    fn connect(&mut self, context: &Context) -> (Side, RemoteAddress) {
        self.connect_with(context, PATIENT)
    }

    fn connect_with(&mut self, context: &Context, timeout: AckTimeout) -> (Side, RemoteAddress) {
        let numbers = self.0.hear();
        let end = side(context, ServiceType::ReliableConnection, MEMORY as usize);
        bring_up(&end.queue_pair, &with_timeout(context, Qpn(numbers[0] as u32), timeout));
        self.0.say(end.queue_pair.number().0);
        self.0.hear();
        let (address, key) = (VirtualAddress(numbers[1]), RKey(numbers[2] as u32));
        (end, RemoteAddress { address, key })
    }

    /// Makes it write to the start of the memory of this end until it is killed.
    fn write_to(&mut self, end: &Side) {
        let remote = end.region.remote(0);
        self.0.say(remote.key.0);
        self.0.say((remote.address.0 >> 32) as u32);
        self.0.say(remote.address.0 as u32);
    }

    /// Stops it, and waits until it is stopped.
    fn stop(&self) {
        signal::send(self.0.id(), libc::SIGSTOP);
        let status = format!("/proc/{}/stat", self.0.id());
        while !std::fs::read_to_string(&status).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
    }
}

/// The longest ACK timeout, hours: only its end tells that a peer is gone.
const PATIENT: AckTimeout = AckTimeout(31);

fn with_timeout(context: &Context, peer: Qpn, timeout: AckTimeout) -> QueuePairAttributes {
    let index = gid_index(context, false).unwrap();
    QueuePairAttributes { timeout: Some(timeout), ..attributes(context, index, peer, 4096) }
}

/// Runs in the other process.
#[test]
#[ignore = "the other process of tests"]
fn child() {
    let Ok(port) = std::env::var(PORT) else { return };
    let options = Options { port: port.parse().unwrap(), ..shared() };
    let context = Context::open(&Device::named("lo").unwrap(), &options).unwrap();
    let end = side(&context, ServiceType::ReliableConnection, MEMORY as usize);
    let remote = end.region.remote(0);
    println!("@{} {} {}", end.queue_pair.number().0, remote.address.0, remote.key.0);
    let mut input = std::io::stdin().lock().lines();
    let peer = Qpn(input.next().unwrap().unwrap().parse().unwrap());
    bring_up(&end.queue_pair, &with_timeout(&context, peer, PATIENT));
    println!("@1");
    // Until the other process ends.
    let Some(command) = input.next() else { return };
    // Or: write to its memory, again and again, until this process is killed.
    let key = RKey(command.unwrap().parse().unwrap());
    let mut number = || input.next().unwrap().unwrap().parse::<u64>().unwrap();
    let address = VirtualAddress(number() << 32 | number());
    end.region.write(0, &pattern(1, MEMORY as usize)).unwrap();
    let write = Operation::Write { remote: RemoteAddress { address, key }, immediate: None };
    for id in 0.. {
        end.post(id, write, 0, 200_000);
        end.expect(id);
    }
}

#[test]
fn processes_exchange_messages() {
    let context = open_alone(&shared());
    let mut process = Process::start();
    let (end, remote) = process.connect(&context);
    for id in 0..20 {
        let length = 1 + id as usize * 190_000;
        let bytes = pattern(id, length);
        end.region.write(0, &bytes).unwrap();
        end.post(id, Operation::Write { remote, immediate: None }, 0, length);
        end.expect(id);
        end.region.write(0, &vec![0; length]).unwrap();
        end.post(id, Operation::Read { remote }, 0, length);
        end.expect(id);
        assert!(end.bytes(0, length) == bytes, "message {id}");
    }
    let counted = context.statistics();
    assert_eq!(counted.local_packets_in, counted.packets_in, "{counted:?}");
}

#[test]
fn the_end_of_a_process_is_noticed_at_once() {
    let context = open_alone(&shared());
    for round in 0..20 {
        let mut process = Process::start();
        let (end, remote) = process.connect(&context);
        let write = Operation::Write { remote, immediate: None };
        end.post(1, write, 0, 1 << 20);
        if round % 2 == 0 {
            end.expect(1);
        }
        drop(process);
        // Without the end of the process, this would wait for hours.
        end.post(2, write, 0, 64);
        let mut done = end.completions.wait().unwrap();
        if done.id == WorkId(1) {
            done = end.completions.wait().unwrap();
        }
        assert_eq!(done.id, WorkId(2));
        assert!(matches!(done.status, Status::RetryExceeded | Status::Flushed), "{done:?}");
    }
}

#[test]
fn a_stopped_process_stops_nobody_else() {
    let context = open_alone(&shared());
    let mut processes = [Process::start(), Process::start()];
    let ends = processes.each_mut().map(|process| process.connect(&context));
    let [(stopped, at), (running, remote)] = &ends;
    processes[0].stop();
    let bytes = pattern(1, MEMORY as usize);
    stopped.region.write(0, &bytes).unwrap();
    // More than a ring holds.
    let write = Operation::Write { remote: *at, immediate: None };
    stopped.post(1, write, 0, bytes.len());
    for id in 0..50 {
        let write = Operation::Write { remote: *remote, immediate: None };
        running.post(id, write, 0, 100_000);
        running.expect(id);
    }
    assert!(stopped.completions.poll_one().is_none());
    signal::send(processes[0].0.id(), libc::SIGCONT);
    stopped.expect(1);
    stopped.region.write(0, &vec![0; bytes.len()]).unwrap();
    stopped.post(2, Operation::Read { remote: *at }, 0, bytes.len());
    stopped.expect(2);
    assert!(stopped.bytes(0, bytes.len()) == bytes);
}

/// What a stopped process has not received is not lost, so no retry is used up.
#[test]
fn a_stopped_process_is_waited_for() {
    let context = open_alone(&shared());
    let mut process = Process::start();
    // 1 ms, so the retries would last 8.
    let (end, remote) = process.connect_with(&context, AckTimeout(8));
    process.stop();
    end.region.write(0, &[7; 64]).unwrap();
    end.post(1, Operation::Write { remote, immediate: None }, 0, 64);
    let enough = Instant::now() + Duration::from_millis(100);
    assert!(end.completions.wait_until(enough).unwrap().is_none());
    signal::send(process.0.id(), libc::SIGCONT);
    end.expect(1);
    assert_eq!(context.statistics().local_ack_timeout_err, 0);
}

/// A request to a stopped process: whether it completes after this time, when the process goes on.
fn completes_after_a_stop(options: &Options, timeout: AckTimeout, stop: Duration) -> Status {
    let context = open_alone(options);
    let mut process = Process::start();
    let (end, remote) = process.connect_with(&context, timeout);
    process.stop();
    let bytes = pattern(3, 300_000);
    end.region.write(0, &bytes).unwrap();
    end.post(1, Operation::Write { remote, immediate: None }, 0, bytes.len());
    let early = end.completions.wait_until(Instant::now() + stop).unwrap();
    signal::send(process.0.id(), libc::SIGCONT);
    let status = early.map_or_else(|| end.completions.wait().unwrap().status, |done| done.status);
    if status == Status::Success {
        end.region.write(0, &vec![0; bytes.len()]).unwrap();
        end.post(2, Operation::Read { remote }, 0, bytes.len());
        end.expect(2);
        assert!(end.bytes(0, bytes.len()) == bytes, "bytes are wrong");
    }
    status
}

/// Over sockets, only the peer can tell. Through shared memory its end is noticed at once.
#[test]
fn an_idle_queue_pair_notices_a_silent_peer_by_keepalives() {
    let context =
        open_alone(&Options { keepalive: Some(Duration::from_millis(20)), ..over_sockets() });
    let mut process = Process::start();
    // 268 ms: the peer may be slow on a busy machine.
    let (end, _) = process.connect_with(&context, AckTimeout(16));
    end.post_receive(7, 0, 64);
    let answered = context.statistics().packets_in + 5;
    while context.statistics().packets_in < answered {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(end.queue_pair.state(), State::ReadyToSend);
    assert!(context.try_event().unwrap().is_none());
    process.stop();
    let done = end.completions.wait().unwrap();
    assert_eq!((done.id, done.status), (WorkId(7), Status::Flushed));
    assert_eq!(end.queue_pair.state(), State::Error);
    let event = context.wait_event(None).unwrap().unwrap();
    assert!(matches!(event.kind, EventKind::QueuePairFatal), "{event:?}");
    signal::send(process.0.id(), libc::SIGCONT);
}

/// In its own process, as nextest runs it: the child has only the thread that forked.
#[test]
fn a_forked_child_does_not_have_the_memory() {
    let context = open_alone(&shared());
    let (one, other) = pair(&context, ServiceType::ReliableConnection, 4096);
    exchange(&one, &other);
    // SAFETY: the child polls, which takes no lock that another thread could hold for long, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let found = mappings() > 0 || one.completions.poll_one().is_some();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(found)) };
    }
    exchange(&one, &other);
    let mut status = -1;
    // SAFETY: waits for our own child, with a pointer to a local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child failed");
}

/// A program that ends after its last receive owes no ACK: its peer would fail.
#[test]
fn what_was_received_is_acknowledged() {
    let context = open_alone(&shared());
    let (one, other) = pair(&context, ServiceType::ReliableConnection, 4096);
    for id in 0..200 {
        other.post_receive(id, 0, 64);
        let before = context.statistics().local_packets_out;
        one.post(id, Operation::SEND, 0, 64);
        let done = loop {
            if let Some(done) = other.completions.poll_one() {
                break done;
            }
        };
        assert_eq!((done.id, done.status), (WorkId(id), Status::Success));
        let sent = context.statistics().local_packets_out - before;
        assert_eq!(sent, 2, "message {id} and its ACK");
        one.expect(id);
    }
}

/// The device thread goes to sleep while another thread finds the ring full, and the other way round.
#[test]
fn a_full_ring_stops_neither_side() {
    let context = open_alone(&shared());
    let mut process = Process::start();
    let (end, remote) = process.connect(&context);
    for round in 0..40 {
        // Each more than a ring holds; the thread that posts does not poll until all are posted.
        for id in 0..8 {
            end.post(id, Operation::Write { remote, immediate: None }, 0, MEMORY as usize / 2);
        }
        for id in 0..8 {
            let done = if round % 2 == 0 { Some(end.completions.wait().unwrap()) } else { None };
            let done = done.unwrap_or_else(|| {
                loop {
                    if let Some(done) = end.completions.poll_one() {
                        break done;
                    }
                }
            });
            assert_eq!((done.id, done.status), (WorkId(id), Status::Success));
        }
    }
}

/// Sockets that a device opens besides the first to send from, and keeps: one for each of its first queue pairs.
const SENDERS: usize = 15;

/// Kills a process at any point of a transfer, in one direction and in the other.
fn kill_at_any_point(rounds: u64) {
    let context = open_alone(&shared());
    let bytes = pattern(1, 200_000);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut before = 0;
    for round in 0..rounds {
        let mut process = Process::start();
        let (end, remote) = process.connect(&context);
        end.region.write(0, &bytes).unwrap();
        if round % 2 == 0 {
            let write = Operation::Write { remote, immediate: None };
            let (count, successes) = (16, random(16));
            (0..count).for_each(|id| end.post(id, write, 0, bytes.len()));
            for id in 0..successes {
                end.expect(id);
            }
            (0..random(20_000)).for_each(|_| std::hint::spin_loop());
            process.0.kill();
            // Without the end of the process, this would wait for hours.
            for id in successes..count {
                let done = end.completions.wait().unwrap();
                assert_eq!(done.id, WorkId(id));
                let failed = matches!(done.status, Status::RetryExceeded | Status::Flushed);
                assert!(failed || done.status == Status::Success, "{done:?}");
            }
        } else {
            process.write_to(&end);
            let at_first = context.statistics().local_packets_in;
            let enough = at_first + 1 + random(200);
            while context.statistics().local_packets_in < enough {
                assert!(end.completions.poll_one().is_none());
            }
            process.0.kill();
            assert!(end.bytes(0, bytes.len()) == bytes, "round {round}");
        }
        drop((process, end));
        if round == 0 {
            wait_for_no_rings();
            before = descriptors();
        }
    }
    wait_for_no_rings();
    let deadline = Instant::now() + Duration::from_secs(20);
    while descriptors() > before + SENDERS {
        let left = descriptors();
        assert!(Instant::now() < deadline, "{left} descriptors are left, at first {before}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the rings of processes that have ended are no longer mapped: the device thread does that.
fn wait_for_no_rings() {
    let deadline = Instant::now() + Duration::from_secs(20);
    while mappings() > 0 {
        assert!(Instant::now() < deadline, "{} mappings are left", mappings());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The open descriptors of this process, without that of the directory itself.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

#[test]
fn processes_killed_at_any_point_leave_nothing() {
    kill_at_any_point(20);
}

mod full {
    #[test]
    fn a_thousand_processes_killed_at_any_point_leave_nothing() {
        super::kill_at_any_point(1000);
    }

    /// Through shared memory the sender waits; over sockets the retry settings decide.
    #[test]
    fn a_process_stopped_for_half_a_minute_goes_on_or_fails_as_set() {
        use super::{AckTimeout, Status, completes_after_a_stop, over_sockets, shared};
        let half = std::time::Duration::from_secs(30);
        // 67 ms and 8.6 s, eight times each.
        let (short, long) = (AckTimeout(14), AckTimeout(21));
        assert_eq!(completes_after_a_stop(&shared(), short, half), Status::Success);
        assert_eq!(completes_after_a_stop(&over_sockets(), long, half), Status::Success);
        assert_eq!(completes_after_a_stop(&over_sockets(), short, half), Status::RetryExceeded);
    }
}

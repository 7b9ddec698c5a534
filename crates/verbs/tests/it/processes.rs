//! Many processes on one address: each with its own queue pairs, behind one UDP port.
//!
//! A child is this test binary, running the ignored test `child`.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Side, attributes, bring_up, open, options, pattern, side};
use ferroce::*;

const LENGTH: usize = 50_000;

struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--ignored", "--nocapture"])
            .env("FERROCE_TEST_CHILD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    /// Reads the next line of the protocol, marked by '@'.
    fn line(&mut self) -> String {
        let mut lines = self.output.by_ref().map(Result::unwrap);
        let line = lines.find_map(|line| Some(line.split_once('@')?.1.to_owned()));
        line.expect("the child ended without output")
    }

    fn say(&mut self, text: &str) {
        writeln!(self.input, "{text}").unwrap();
    }

    fn end(mut self) {
        self.say("quit");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Attributes with long timeouts: with more processes than cores, a process may not run for long.
fn long_timeouts(context: &Context, peer: Qpn) -> QueuePairAttributes {
    QueuePairAttributes { timeout: Some(AckTimeout(17)), ..attributes(context, 0, peer, 4096) }
}

/// Connects a new QP to that of a process, and sends it the address to WRITE to.
fn connect_process(context: &Context, process: &mut Process, region: &Side, at: u64) -> QueuePair {
    let number: u32 = process.line().parse().unwrap();
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &region.completions);
    let queue_pair = region.pd.queue_pair(&options).unwrap();
    bring_up(&queue_pair, &long_timeouts(context, Qpn(number)));
    let remote = region.region.remote(at);
    process.say(&format!("{} {} {}", queue_pair.number().0, remote.address.0, remote.key.0));
    queue_pair
}

#[test]
#[ignore = "run by the other tests, as another process"]
fn child() {
    if std::env::var_os("FERROCE_TEST_CHILD").is_none() {
        return;
    }
    let context = open(&options());
    let own = side(&context, ServiceType::ReliableConnection, 2 * LENGTH);
    println!("@{}", own.queue_pair.number().0);
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let line = lines.next().unwrap();
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    bring_up(&own.queue_pair, &long_timeouts(&context, Qpn(numbers[0] as u32)));
    let remote =
        RemoteAddress { address: VirtualAddress(numbers[1]), key: RKey(numbers[2] as u32) };
    println!("@connected");
    for line in lines {
        match line.as_str() {
            "write" => {
                let bytes = pattern(numbers[0], LENGTH);
                own.region.write(0, &bytes).unwrap();
                own.post(1, Operation::Write { remote, immediate: None }, 0, LENGTH);
                own.expect(1);
                own.post(2, Operation::Read { remote }, LENGTH as u64, LENGTH);
                own.expect(2);
                assert_eq!(own.bytes(LENGTH, LENGTH), bytes);
                println!("@written");
            }
            _ => return,
        }
    }
}

fn crowd(count: usize) {
    let context = open(&options());
    let own = side(&context, ServiceType::ReliableConnection, count * LENGTH);
    let mut processes: Vec<_> = (0..count).map(|_| Process::start()).collect();
    let queue_pairs: Vec<_> = processes
        .iter_mut()
        .enumerate()
        .map(|(index, process)| connect_process(&context, process, &own, (index * LENGTH) as u64))
        .collect();
    processes.iter_mut().for_each(|process| assert_eq!(process.line(), "connected"));
    processes.iter_mut().for_each(|process| process.say("write"));
    for (index, (process, queue_pair)) in processes.iter_mut().zip(&queue_pairs).enumerate() {
        assert_eq!(process.line(), "written");
        let expected = pattern(u64::from(queue_pair.number().0), LENGTH);
        assert_eq!(own.bytes(index * LENGTH, LENGTH), expected, "process {index}");
    }
    // Every second process ends: the kernel's order of sockets differs from that of slots then.
    let mut stay = Vec::new();
    for (index, process) in processes.into_iter().enumerate() {
        if index % 2 == 0 { process.end() } else { stay.push((index, process)) }
    }
    own.region.write(0, &vec![0; count * LENGTH]).unwrap();
    stay.iter_mut().for_each(|(_, process)| process.say("write"));
    for (index, mut process) in stay {
        assert_eq!(process.line(), "written");
        let expected = pattern(u64::from(queue_pairs[index].number().0), LENGTH);
        assert_eq!(
            own.bytes(index * LENGTH, LENGTH),
            expected,
            "process {index}, after others left"
        );
        process.end();
    }
}

#[test]
fn two_processes_share_an_address() {
    crowd(2);
}

#[test]
fn eight_processes_share_an_address() {
    crowd(8);
}

#[test]
fn sixty_four_processes_share_an_address() {
    crowd(64);
}

#[test]
fn requests_to_a_killed_process_exceed_their_retries_and_its_slot_is_freed() {
    let context = open(&options());
    let own = side(&context, ServiceType::ReliableConnection, LENGTH);
    let mut process = Process::start();
    let queue_pair = connect_process(&context, &mut process, &own, 0);
    assert_eq!(process.line(), "connected");
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    let data = own.data(0, LENGTH);
    let requests = (0..3).map(|id| SendRequest::new(WorkId(id), Operation::SEND, data.clone()));
    let posted = queue_pair.post_sends(requests);
    assert!(posted.result.is_ok() && posted.count == 3);
    let ended: Vec<_> = (0..3).map(|_| own.completions.wait().unwrap().status).collect();
    assert_eq!(ended, [Status::RetryExceeded, Status::Flushed, Status::Flushed]);
    assert_eq!(queue_pair.state(), State::Error);
    // Its slot is free.
    let mut next = Process::start();
    let _queue_pair = connect_process(&context, &mut next, &own, 0);
    assert_eq!(next.line(), "connected");
    next.say("write");
    assert_eq!(next.line(), "written");
    next.end();
}

#[test]
fn closing_a_device_leaks_no_descriptors_and_threads() {
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = (open_files(), threads());
    for _ in 0..20 {
        let context = open(&options());
        let own = side(&context, ServiceType::ReliableConnection, LENGTH);
        assert_eq!(own.queue_pair.state(), State::Reset);
    }
    // The kernel may still list a thread that was joined.
    let deadline = Instant::now() + Duration::from_secs(20);
    while threads() > before.1 {
        assert!(Instant::now() < deadline, "{} threads are left", threads());
        std::thread::yield_now();
    }
    assert_eq!((open_files(), threads()), before);
}

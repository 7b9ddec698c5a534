//! `ferroce stat`: what processes publish, compared with what they did.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ferroce::*;
use ferroce_stat::snapshot::{Device as Published, Direction, QueuePair as PublishedPair};
use ferroce_stat::{Filter, read_all};
use ferroce_test_support::skip;
use ferroce_trace::analysis::report::FileReport;
use serde_json::Value;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, success};
use crate::support::server::Server;

fn ferroce(arguments: &[&str]) -> Output {
    Command::new(FERROCE).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&success(&ferroce(arguments))).unwrap()
}

/// What the process with this ID publishes, as `ferroce stat --json` shows it.
fn process(pid: u32) -> Value {
    json(&["stat", "--json", "--pid", &pid.to_string()])["processes"][0].clone()
}

fn server() -> Server {
    Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", "127.0.0.1:0"]))
}

/// Waits until the condition holds.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Two connected queue pairs of this process, with a CQ and an MR.
struct Pair {
    context: Context,
    cq: CompletionQueue,
    mr: MemoryRegion,
    one: QueuePair,
    other: QueuePair,
}

const HALF: u64 = 1 << 20;

impl Pair {
    fn new(options: &Options) -> Self {
        let context = Context::open(&Device::named("lo").unwrap(), options).unwrap();
        let pd = context.protection_domain();
        let mr = pd.allocate(2 * HALF as usize, ACCESS).unwrap();
        let channel = CompletionChannel::new().unwrap();
        let cq = context.completion_queue(256, Some(&channel)).unwrap();
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
        let (one, other) = (pd.queue_pair(&options).unwrap(), pd.queue_pair(&options).unwrap());
        let gid = context.device().gids()[0].gid;
        one.connect_to(0, gid, other.number()).unwrap();
        other.connect_to(0, gid, one.number()).unwrap();
        Self { context, cq, mr, one, other }
    }

    /// Posts a request and waits for its completion.
    fn run(&self, operation: Operation, length: u32) -> WorkCompletion {
        let data = Data::SgList(self.mr.sge(0, length).into());
        self.one.post_send(SendRequest::new(WorkId(1), operation, data)).unwrap();
        loop {
            let done = self.cq.wait().unwrap();
            if done.id == WorkId(1) {
                return done;
            }
        }
    }

    /// Every operation, several times, and of several packets.
    fn traffic(&self) {
        for round in 0..5 {
            let sg_list = self.mr.sge(HALF, 300_000).into();
            self.other.post_receive(ReceiveRequest { id: WorkId(2), sg_list }).unwrap();
            let remote = self.mr.remote(HALF);
            for (operation, length) in [
                (Operation::SEND, 10_000 * (round + 1)),
                (Operation::Write { remote, immediate: None }, 300_000),
                (Operation::Read { remote }, 200_001),
                (Operation::FetchAdd { remote, add: 1 }, 8),
            ] {
                assert_eq!(self.run(operation, length).status, Status::Success);
            }
        }
    }

    /// What is published of the device and of both queue pairs.
    fn published(&self) -> (Published, [PublishedPair; 2]) {
        let filter = Filter { pid: Some(std::process::id()), ..Filter::default() };
        let processes = read_all(&filter).processes;
        let [process] = &processes[..] else { panic!("{processes:?}") };
        assert_eq!(process.inconsistent, 0);
        let device = process.devices[0].clone();
        let find = |number: Qpn| {
            let found = device.queue_pairs.iter().find(|pair| pair.number == number.0);
            found.unwrap().clone()
        };
        let pairs = [find(self.one.number()), find(self.other.number())];
        (device, pairs)
    }
}

/// The packets of one direction that are requests or READ responses, as the operations of the capture.
fn opcodes(report: &FileReport, parts: &[&str]) -> u64 {
    let matches = |name: &str| parts.iter().any(|part| name.contains(part));
    report.opcodes.iter().filter(|(name, _)| matches(name)).map(|(_, count)| count).sum()
}

fn total(direction: &[&Direction], value: fn(&Direction) -> u64) -> u64 {
    direction.iter().map(|direction| value(direction)).sum()
}

/// Runs traffic with a capture, and compares what is published with the capture.
fn reconcile(name: &str, local: Local, faults: Option<&str>) {
    let scratch = Scratch::new(name);
    let faults: Option<Faults> = faults.map(|faults| faults.parse().unwrap());
    let capture = Some(scratch.path("run.pcapng"));
    let options = Options { local, capture, faults, ..Options::default() };
    let pair = Pair::new(&options);
    pair.traffic();
    // Until then, ACKs of the last requests may be on their way.
    wait_until("the capture holds what was counted", || {
        let status = pair.context.flush_capture().unwrap();
        status.dropped == 0 && status.written == pair.context.statistics().packets_out
    });
    let (device, [one, other]) = pair.published();
    let statistics = pair.context.statistics();
    let report = scratch.report("run.pcapng");
    assert_eq!((report.icrc.bad, &report.problems[..]), (0, &[][..]));

    // The device: this process sends to itself, so that the capture has each packet once, as sent.
    let counters = &device.counters;
    assert_eq!(counters.get("packets_out"), report.packets);
    assert_eq!(counters.iter().collect::<Vec<_>>(), statistics.iter().collect::<Vec<_>>());
    // The queue pairs: everything is theirs.
    let [conversation] = &report.conversations[..] else { panic!("{:?}", report.conversations) };
    let (from_one, from_other) = if conversation.a.qpn == Some(pair.one.number().0) {
        (&conversation.a_to_b, &conversation.b_to_a)
    } else {
        (&conversation.b_to_a, &conversation.a_to_b)
    };
    for (published, captured) in [(&one, from_one), (&other, from_other)] {
        assert_eq!(published.tx.packets, captured.packets);
        assert_eq!(published.tx.bytes, captured.payload);
    }
    let sent = [&one.tx, &other.tx];
    for (count, parts) in [
        (total(&sent, |way| way.operations.send.packets), &["_SEND_"][..]),
        (total(&sent, |way| way.operations.write.packets), &["_WRITE_"]),
        (total(&sent, |way| way.operations.read.packets), &["_READ_"]),
        (total(&sent, |way| way.operations.atomic.packets), &["_FETCH_ADD", "_ATOMIC_"]),
    ] {
        assert_eq!(count, opcodes(&report, parts), "{parts:?}: {:?}", report.opcodes);
    }
    // What was sent was received, or lost on purpose.
    let lost = counters.get("faults_injected");
    assert_eq!(one.rx.packets + other.rx.packets + lost, one.tx.packets + other.tx.packets);
    assert_eq!(counters.get("packets_in") + lost, counters.get("packets_out"));
    // Recovery.
    let of = |kind: &str| report.anomaly_counts.get(kind).copied().unwrap_or(0);
    assert_eq!(
        one.counters.get("retrans_pkts"),
        of("retransmission") + of("probe") + of("duplicate")
    );
    assert_eq!(other.naks_sent.get("psn_sequence"), of("nak_sequence"));
    assert_eq!(counters.get("retrans_pkts"), one.counters.get("retrans_pkts"));
    if faults.is_some() {
        assert!(lost > 0 && one.counters.get("retrans_pkts") > 0, "{counters:?}");
    } else {
        assert_eq!(lost, 0);
    }
    // Over sockets, a busy machine may be so late that packets are sent again.
    if faults.is_none() && local != Local::Sockets {
        assert_eq!((one.counters.sum(), other.counters.sum()), (0, 0));
        assert_eq!(one.tx.operations.write.bytes, 5 * 300_000);
        assert_eq!(one.tx.operations.write.messages, 5);
        assert_eq!(one.rx.operations.read.bytes, 5 * 200_001);
        assert_eq!(one.tx.operations.atomic.messages, 5);
        assert_eq!(other.rx.operations.send.messages, 5);
    }
    // The requests.
    assert_eq!((one.send_posted, one.send_completions, one.send_outstanding), (20, 20, 0));
    assert_eq!((other.recv_completions, other.recv_outstanding), (5, 0));
    assert_eq!((one.in_flight_packets, one.in_flight_bytes), (0, 0));
    assert_eq!(one.latency.count(), 20, "one request at a time: each is measured");
    assert_eq!((one.state, one.service, one.last_error), ("RTS", "RC", None));
    assert_eq!(one.remote_number, Some(other.number));
    let link = if local == Local::Sockets { "sockets" } else { "shared memory" };
    assert_eq!((one.link, other.link), (link, link));
    let [cq] = &device.completion_queues[..] else { panic!("{:?}", device.completion_queues) };
    assert_eq!((cq.completions, cq.overruns, cq.capacity), (25, 0, 256));
    assert_eq!((device.pds, device.memory_bytes), (1, 2 * HALF));
}

#[test]
fn what_is_published_agrees_with_the_capture_over_sockets() {
    reconcile("stat-sockets", Local::Sockets, None);
}

#[test]
fn what_is_published_agrees_with_the_capture_over_shared_memory() {
    reconcile("stat-memory", Local::default(), None);
}

#[test]
fn what_is_published_agrees_with_the_capture_of_lossy_traffic() {
    reconcile("stat-lossy", Local::Sockets, Some("loss=3%,seed=7"));
}

#[test]
fn objects_come_and_go() {
    let pair = Pair::new(&Options::default());
    let first = pair.published().0;
    assert_eq!((first.queue_pairs.len(), first.memory_regions.len(), first.pds), (2, 1, 1));
    assert_eq!(first.memory_regions[0].access.len(), 4);
    let pd = pair.context.protection_domain();
    let region = pd.allocate(4096, AccessFlags::LOCAL_WRITE).unwrap();
    let window = pd.window(WindowKind::Type1).unwrap();
    let shared = pd.shared_receive_queue(32).unwrap();
    let options = QueuePairOptions::new(ServiceType::UnreliableDatagram, &pair.cq);
    let datagrams = pd.queue_pair(&options).unwrap();
    let sg_list = region.sge(0, 64).into();
    shared.post(ReceiveRequest { id: WorkId(1), sg_list }).unwrap();
    let more = pair.published().0;
    assert_eq!((more.queue_pairs.len(), more.memory_regions.len(), more.pds), (3, 2, 2));
    assert_eq!((more.memory_windows, more.memory_bytes), (1, 2 * HALF + 4096));
    let [srq] = &more.shared_receive_queues[..] else { panic!("{more:?}") };
    assert_eq!((srq.capacity, srq.outstanding, srq.posted), (32, 1, 1));
    let ud = more.queue_pairs.iter().find(|one| one.service == "UD").unwrap();
    assert_eq!((ud.state, ud.link, ud.remote_address), ("RESET", "none", None));
    drop((datagrams, shared, window, region, pd));
    let last = pair.published().0;
    assert_eq!((last.queue_pairs.len(), last.memory_regions.len(), last.pds), (2, 1, 1));
    assert_eq!((last.memory_windows, last.shared_receive_queues.len()), (0, 0));

    // An error: the peer's memory is not registered.
    let remote = RemoteAddress { address: VirtualAddress(0), key: RKey(1) };
    let done = pair.run(Operation::Write { remote, immediate: None }, 8);
    assert_eq!(done.status, Status::RemoteAccess);
    let (_, [one, other]) = pair.published();
    assert_eq!((one.state, one.last_error), ("ERR", Some("REM_ACCESS_ERR")));
    assert_eq!(one.naks_received.get("remote_access"), 1);
    assert_eq!(other.naks_sent.get("remote_access"), 1);

    let pid = std::process::id();
    let Pair { context, cq, mr, one, other } = pair;
    drop((context, cq, mr, one, other));
    let error = failure(&ferroce(&["stat", "--pid", &pid.to_string()]));
    assert!(error.contains("has no device open"), "{error}");
}

fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_stopped_process_is_shown_and_a_killed_one_is_not() {
    let scratch = Scratch::new("stat-stopped");
    let mut server = server();
    let pid = server.child.id();
    success(&scratch.ferroce(&["client", &server.address, "--size", "100K"]));
    let running = process(pid);
    assert_eq!(running["pid"], pid);
    assert_eq!(running["name"], "ferroce");
    assert!(running["command"].as_str().unwrap().contains(" server --json "), "{running}");
    signal("-STOP", pid);
    wait_until("stopped", || process(pid)["state"] == "T");
    let stopped = process(pid);
    assert_eq!(stopped["devices"][0]["counters"], running["devices"][0]["counters"]);
    assert_eq!(stopped["inconsistent"], 0);
    let text = success(&ferroce(&["stat", "--pid", &pid.to_string()]));
    assert!(text.contains("stopped") && text.contains("ferroce_lo"), "{text}");
    signal("-KILL", pid);
    server.child.wait().unwrap();
    let error = failure(&ferroce(&["stat", "--pid", &pid.to_string()]));
    assert!(error.contains(&format!("there is no process {pid}")), "{error}");
    let all = json(&["stat", "--json"]);
    let pids = all["processes"].as_array().unwrap().iter().map(|process| &process["pid"]);
    assert!(pids.clone().all(|other| *other != pid), "{all}");
}

#[test]
fn every_view_is_printed() {
    let pair = Pair::new(&Options::default());
    pair.traffic();
    let pid = std::process::id().to_string();
    let view =
        |arguments: &[&str]| success(&ferroce(&[&["stat", "--pid", &pid], arguments].concat()));
    let summary = view(&[]);
    for part in [
        "ferroce_lo  127.0.0.1  active  MTU 4096",
        "2 QPs (2 RTS), 1 CQ, 1 MR of 2.10 MB, 1 PD",
        "through shared memory",
        "(20 samples)",
        "events     none",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let pairs = view(&["qp"]);
    let peer = format!("127.0.0.1 {:#08x}", pair.other.number().0);
    assert!(pairs.contains("RTS") && pairs.contains(&peer), "{pairs}");
    let details = view(&["qp", "--verbose"]);
    assert!(details.contains("received write") && details.contains("20 posted"), "{details}");
    let others = view(&["dev", "cq", "mr", "srq", "--device", "ferroce_lo"]);
    for part in ["packets_in", "socket_drops", "overruns", "remote_write", "SRQ"] {
        assert!(others.contains(part), "{part}: {others}");
    }
    // 100 bytes where 8 are left.
    let remote = pair.mr.remote(2 * HALF - 8);
    let refused = pair.run(Operation::Write { remote, immediate: None }, 100);
    assert_eq!(refused.status, Status::RemoteAccess);
    let errors = view(&["qp"]);
    let text =
        format!("QP {:#08x} last error: refused the peer's RDMA WRITE", pair.other.number().0);
    assert!(errors.contains(&text) && errors.contains("ends 92 bytes behind it"), "{errors}");
    let summary = view(&[]);
    assert!(summary.contains("last error") && summary.contains("(vendor_err 60, "), "{summary}");
    let watched = view(&["--watch", "20ms", "--count", "2"]);
    assert!(watched.contains("bit/s") && watched.lines().count() >= 4, "{watched}");
    let lines = view(&["--watch", "20ms", "--count", "2", "--json"]);
    let line: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["schema"], "ferroce-stat/1");
    assert_eq!(line["rates"][0]["device"], "ferroce_lo");
    let error = failure(&ferroce(&["stat", "--pid", &pid, "--device", "ferroce_none"]));
    assert!(error.contains("has no device ferroce_none open"), "{error}");
}

/// Processes that open a device and end: each is listed as long as it has the device, and never a wrong one.
#[test]
fn two_hundred_processes_come_and_go() {
    let mut servers: Vec<Server> = Vec::new();
    let listed = || -> Vec<u32> {
        let snapshot = read_all(&Filter::default());
        snapshot.processes.iter().map(|process| process.pid).collect()
    };
    let mut ended = Vec::new();
    for round in 0..200 {
        servers.push(server());
        if servers.len() > 8 {
            let gone = servers.remove(round % servers.len());
            ended.push(gone.child.id());
            drop(gone);
        }
        let found = listed();
        let missing = servers.iter().find(|server| !found.contains(&server.child.id()));
        assert!(missing.is_none(), "round {round}");
        let alive: Vec<u32> = servers.iter().map(|server| server.child.id()).collect();
        let late = ended.iter().find(|pid| found.contains(pid) && !alive.contains(pid));
        assert!(late.is_none(), "round {round}");
    }
}

#[test]
fn other_users_see_nothing() {
    let scratch = Scratch::new("stat-user");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    if !scratch.run("setpriv", &[&nobody[..], &["true"]].concat()).status.success() {
        return skip("not allowed to become another user");
    }
    // The user `nobody` may not have access to cargo's target directory.
    std::fs::copy(FERROCE, scratch.path("ferroce")).unwrap();
    let path = scratch.path("ferroce");
    let server = server();
    let pid = server.child.id().to_string();
    assert!(success(&ferroce(&["stat"])).contains(&format!("{pid} ferroce")));
    let as_nobody = |arguments: &[&str]| {
        scratch.run("setpriv", &[&nobody[..], &[path.to_str().unwrap()], arguments].concat())
    };
    let all: Value = serde_json::from_str(&success(&as_nobody(&["stat", "--json"]))).unwrap();
    assert_eq!(all["processes"], Value::Array(Vec::new()));
    let error = failure(&as_nobody(&["stat", "--pid", &pid]));
    assert!(error.contains("belongs to another user"), "{error}");
}

//! `ferroce workload`: runs every workload with small sizes, over all links, and ends some of its processes. Speed is never
//! judged.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, has_ipv6, success};
use serde_json::Value;

/// Every workload with small parameters, its ranks, and the operations that its result must have.
const SMALL: [(&str, &[&str], u64, u64); 8] = [
    ("rendezvous", &["-n", "50"], 4, 50),
    ("parameter-server", &["-n", "15", "--ranks", "3"], 3, 15),
    ("inference-batching", &["-n", "60", "--size", "3001", "--depth", "3"], 4, 180),
    // Not a power of two, and vectors that are no multiple of the ranks: 3 sizes by 2 algorithms.
    ("allreduce", &["-n", "2", "--size", "8008", "--ranks", "5"], 5, 12),
    ("kv", &["-n", "80", "--size", "999"], 4, 240),
    ("nvmeof", &["-n", "90", "--size", "1001", "--depth", "5"], 3, 180),
    ("mpi", &["-n", "6", "--size", "1000", "--ranks", "3"], 3, 6),
    ("mr-cache", &["-n", "70", "--size", "5001", "--depth", "4"], 2, 140),
];

/// A busy machine may stop a rank for seconds.
const PATIENT: [&str; 3] = ["--json", "--timeout", "60s"];

fn small(name: &str) -> (Vec<&'static str>, u64, u64) {
    let (name, more, ranks, operations) = *SMALL.iter().find(|one| one.0 == name).unwrap();
    ([&["workload", name], more, &PATIENT].concat(), ranks, operations)
}

/// Checks what every result has, and returns the methods.
fn check(json: &Value, ranks: u64, operations: u64) -> Vec<&str> {
    assert_eq!(json["ranks"], ranks, "{json}");
    let methods = json["methods"].as_array().unwrap();
    for row in methods {
        assert_eq!(row["operations"], operations, "{row}");
        let number = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
        assert!(number("seconds") > 0.0 && number("bytes") > 0.0, "{row}");
        assert!(number("verified") > 0.0, "{row}");
        let rate = number("operations") / number("seconds");
        assert!((number("operations_per_second") / rate - 1.0).abs() < 1e-6, "{row}");
        let keys = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"];
        let values = keys.map(|key| row["latency"][key].as_u64().unwrap());
        assert!(values.is_sorted() && values[0] > 0, "{row}");
        assert!(row["latency"]["samples"].as_u64().unwrap() >= operations, "{row}");
        let cpu = row["cpu_seconds_by_rank"].as_array().unwrap();
        assert_eq!(cpu.len() as u64, ranks, "{row}");
    }
    methods.iter().map(|row| row["method"].as_str().unwrap()).collect()
}

/// Runs a workload over all links, then over sockets with losses, and returns the first result.
fn passes(name: &str) -> Value {
    let scratch = Scratch::new(&format!("workload-{name}"));
    let (arguments, ranks, operations) = small(name);
    let run = |more: &[(&str, &str)]| -> Value {
        let mut command = scratch.command(FERROCE, &arguments);
        let output = command.envs(more.iter().copied()).output().unwrap();
        serde_json::from_str(&success(&output)).unwrap()
    };
    let json = run(&[("FERROCE_LOCAL", "memory")]);
    let all = ["rdma_shared_memory", "rdma_wire", "tcp"];
    assert_eq!(check(&json, ranks, operations), all);
    let faults = ("FERROCE_FAULTS", "loss=1%,seed=7");
    let lossy = run(&[("FERROCE_LOCAL", "sockets"), faults]);
    assert_eq!(check(&lossy, ranks, operations), ["rdma_wire", "tcp"]);
    json
}

/// A figure of a workload, which must be the same by all methods.
fn detail<'a>(json: &'a Value, name: &str) -> &'a Value {
    let methods = json["methods"].as_array().unwrap();
    let values: Vec<_> = methods.iter().map(|row| &row["details"][name]).collect();
    assert!(!values[0].is_null(), "no {name} in {json}");
    assert!(values.iter().all(|value| *value == values[0]), "{name} differs in {json}");
    values[0]
}

#[test]
fn rendezvous_passes() {
    let json = passes("rendezvous");
    for row in json["methods"].as_array().unwrap() {
        // Each of 4 ranks checked the signals of 3 others, and saw one rank come last.
        assert_eq!(row["verified"], 50 * 4 * 3, "{row}");
        let last = (0..4).map(|rank| row["details"][format!("last_rank_{rank}")].as_u64().unwrap());
        assert_eq!(last.sum::<u64>(), 50 * 4, "{row}");
    }
}

#[test]
fn parameter_server_trains_as_one_process_does() {
    let json = passes("parameter-server");
    assert_eq!(detail(&json, "difference_to_one_process"), 0.0);
    let (first, last) = (detail(&json, "first_loss"), detail(&json, "last_loss"));
    assert!(last.as_f64() < first.as_f64(), "{json}");
}

#[test]
fn inference_batching_loses_nothing_while_the_queue_is_full() {
    let json = passes("inference-batching");
    for row in json["methods"].as_array().unwrap() {
        let of = |name: &str| row["details"][name].as_u64().unwrap();
        // 3 clients with 3 credits each; the server and the clients checked 180 requests.
        assert_eq!((of("queue_capacity"), row["verified"].as_u64()), (9, Some(360)), "{row}");
        assert!(of("longest_queue") <= 9 && of("waits_for_a_credit") == 3 * 57, "{row}");
    }
}

#[test]
fn allreduce_passes() {
    let json = passes("allreduce");
    // Sizes of 8008 / 256, 8008 / 16 and 8008 bytes in elements of 8, on 5 ranks.
    let elements = (3 + 62 + 1001) * 2 * 2 * 5;
    for row in json["methods"].as_array().unwrap() {
        assert_eq!(row["verified"], elements, "{row}");
        assert_eq!(row["details"].as_object().unwrap().len(), 7, "{row}");
    }
    assert_eq!(detail(&json, "checksum").as_str().unwrap().len(), 16);
}

#[test]
fn kv_passes() {
    let json = passes("kv");
    let sum = ["gets", "puts", "increments"].map(|name| detail(&json, name).as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), 240, "{json}");
    assert!(sum.iter().all(|count| *count > 0), "{json}");
}

#[test]
fn nvmeof_passes() {
    let json = passes("nvmeof");
    assert_eq!(detail(&json, "commands_served"), 180);
}

#[test]
fn mpi_passes() {
    let json = passes("mpi");
    for row in json["methods"].as_array().unwrap() {
        assert_eq!(row["verified"], 3 * 3 * 125, "{row}");
    }
}

#[test]
fn mr_cache_passes() {
    let json = passes("mr-cache");
    let rows = json["methods"].as_array().unwrap();
    for row in &rows[..2] {
        let of = |name: &str| row["details"][name].as_u64().unwrap();
        assert_eq!(of("registrations_without_cache"), 70, "{row}");
        assert_eq!(of("registrations_with_cache") + of("cache_hits"), 70, "{row}");
        assert!(of("cache_hits") > 0, "{row}");
    }
    assert_eq!(rows[2]["details"]["registrations_without_cache"], 0);
}

#[test]
fn the_table_names_all_links() {
    let scratch = Scratch::new("workload-table");
    let arguments = ["workload", "rendezvous", "-n", "20", "--timeout", "60s"];
    let mut command = scratch.command(FERROCE, &arguments);
    let out = success(&command.env_remove("FERROCE_LOCAL").output().unwrap());
    for words in [
        "rendezvous: 4 ranks on this host, 20 epochs",
        "RDMA (shared memory)",
        "RDMA (wire)",
        "TCP",
        "epochs/s",
        "CPU s",
        "verified  720 signals, all correct",
        "last rank 3",
    ] {
        assert!(out.contains(words), "no {words:?} in\n{out}");
    }
    let some = [&arguments[..], &["--method", "tcp,wire", "--json"]].concat();
    let json: Value = serde_json::from_str(&success(&scratch.ferroce(&some))).unwrap();
    assert_eq!(check(&json, 4, 20), ["tcp", "rdma_wire"]);
}

#[test]
fn a_rank_that_comes_late_is_named() {
    let scratch = Scratch::new("workload-late");
    let some = ["workload", "rendezvous", "-n", "8", "--method", "wire", "--delay", "2:30ms"];
    let out = success(&scratch.ferroce(&[&some[..], &PATIENT].concat()));
    let json: Value = serde_json::from_str(&out).unwrap();
    let last = |rank: usize| {
        let details = &json["methods"][0]["details"];
        details[format!("last_rank_{rank}")].as_u64().unwrap()
    };
    assert!([0, 1, 3].iter().all(|rank| last(*rank) < last(2)), "{json}");
    let late = ["workload", "rendezvous", "--delay", "2:10min", "--timeout", "2s"];
    let complaint = failure(&scratch.ferroce(&late));
    assert!(complaint.contains("rank 2 is late: no signal within 2 s"), "{complaint}");
}

#[test]
fn ipv6_works() {
    if has_ipv6() {
        let scratch = Scratch::new("workload-ipv6");
        let (arguments, ranks, operations) = small("kv");
        let more = ["--address", "::1", "--method", "wire,tcp"];
        let out = success(&scratch.ferroce(&[&arguments[..], &more].concat()));
        let json = serde_json::from_str(&out).unwrap();
        assert_eq!(check(&json, ranks, operations), ["rdma_wire", "tcp"]);
    }
}

/// A workload that runs until one of its processes is ended.
struct Endless {
    child: Child,
    errors: BufReader<ChildStderr>,
    pids: Vec<u32>,
}

impl Endless {
    /// Starts it, and waits until all ranks work.
    fn start(name: &str, ranks: usize, method: &str, timeout: &str) -> Self {
        let mut command = Command::new(FERROCE);
        let ranks_option = ranks.to_string();
        command.args(["workload", name, "-n", "2147483647", "--ranks", &ranks_option]);
        command.args(["--method", method, "--timeout", timeout, "--verbose"]);
        if ["inference-batching", "allreduce", "mpi", "mr-cache"].contains(&name) {
            command.args(["--size", "4096"]);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut running = Self { child, errors, pids: Vec::new() };
        loop {
            let mut line = String::new();
            assert_ne!(running.errors.read_line(&mut line).unwrap(), 0, "it ended");
            if line.trim_end().ends_with(": running") {
                break;
            }
            let pid = line.split("(process ").nth(1).unwrap();
            let pid = pid.split([' ', ')']).next().unwrap();
            running.pids.push(pid.parse().unwrap_or_else(|_| panic!("{line}")));
        }
        assert_eq!(running.pids.len(), ranks);
        running
    }

    fn signal(&self, signal: &str, pid: u32) {
        let pid = pid.to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits until it and all its ranks, which share its standard error, have ended.
    fn end(mut self) -> Output {
        let mut stderr = Vec::new();
        self.errors.read_to_end(&mut stderr).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output { stderr, ..output }
    }
}

fn kill(name: &str, ranks: usize, method: &str, rank: usize) {
    let running = Endless::start(name, ranks, method, "60s");
    let pid = running.pids[rank];
    running.signal("-KILL", pid);
    let complaint = failure(&running.end());
    let wanted = format!("rank {rank} (process {pid}) was killed by signal 9");
    assert!(complaint.contains(&wanted), "{name}, {method}: {complaint}");
    assert!(complaint.contains(" ended"), "{name}, {method}: {complaint}");
}

#[test]
fn a_killed_rank_is_named_whatever_the_link() {
    for method in ["shared-memory", "wire", "tcp"] {
        kill("rendezvous", 4, method, 2);
        kill("rendezvous", 3, method, 0);
    }
}

#[test]
fn a_killed_rank_of_any_workload_is_named() {
    for (name, ..) in SMALL {
        for rank in [0, 1] {
            kill(name, 2, "wire", rank);
        }
    }
}

#[test]
fn a_stopped_rank_is_named() {
    let running = Endless::start("rendezvous", 3, "shared-memory", "3s");
    let pid = running.pids[1];
    running.signal("-STOP", pid);
    let complaint = failure(&running.end());
    let wanted = format!("rank 1 (process {pid}) does not respond");
    assert!(complaint.contains(&wanted), "{complaint}");
    assert!(complaint.contains("ranks 0 and 2 ended"), "{complaint}");
}

#[test]
fn ranks_end_with_the_command() {
    for signal in ["-INT", "-KILL"] {
        let running = Endless::start("rendezvous", 3, "wire", "60s");
        running.signal(signal, running.child.id());
        // Returns only when no rank holds the pipe any more.
        assert_eq!(running.end().status.code(), None);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let scratch = Scratch::new("workload-refused");
    for (arguments, why) in [
        (&[][..], "required"),
        (&["juggling"], "invalid value 'juggling'"),
        (&["rendezvous", "--ranks", "1"], "2 to 64 ranks"),
        (&["rendezvous", "--ranks", "65"], "2 to 64 ranks"),
        (&["rendezvous", "-n", "0"], "--count must be from 1"),
        (&["rendezvous", "--size", "8"], "--size does not apply to rendezvous"),
        (&["kv", "--depth", "8"], "--depth does not apply to kv"),
        (&["kv", "--delay", "1:1ms"], "--delay does not apply to kv"),
        (&["rendezvous", "--delay", "4:1ms"], "there is no rank 4, the last is 3"),
        (&["rendezvous", "--delay", "4"], "expected RANK:DURATION"),
        (&["rendezvous", "--timeout", "0s"], "greater than zero"),
        (&["nvmeof", "--depth", "33"], "the queue depth of nvmeof may be 1 to 32"),
        (&["nvmeof", "--size", "2M"], "may be 1 to 1048576"),
        (&["inference-batching", "--size", "16M", "--depth", "32"], "1024 MiB is the limit"),
        (&["rendezvous", "--method", "carrier-pigeon"], "invalid value 'carrier-pigeon'"),
        (&["rendezvous", "--capture", "no/such.pcapng"], "no is not a directory"),
        (&["rendezvous", "--address", "192.0.2.77"], "192.0.2.77"),
    ] {
        let complaint = failure(&scratch.ferroce(&[&["workload"], arguments].concat()));
        assert!(complaint.contains(why), "{arguments:?}: {complaint}");
    }
}

#[test]
fn captures_are_written_by_rank() {
    let scratch = Scratch::new("workload-capture");
    let some = ["workload", "rendezvous", "-n", "10", "--ranks", "3", "--method", "wire"];
    for (file, files) in
        [("a.pcapng", &["a.pcapng"][..]), ("b%r.pcapng", &["b0.pcapng", "b1.pcapng", "b2.pcapng"])]
    {
        let out = success(&scratch.ferroce(&[&some[..], &PATIENT, &["--capture", file]].concat()));
        let json: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["captures"], Value::from(files), "{json}");
        for file in files {
            let report = scratch.report(file);
            // Each rank has 2 peers: 10 signals each way, and acknowledgements.
            assert!(report.roce_packets >= 40, "{file}: {report:?}");
            assert_eq!(report.icrc.ok, report.roce_packets, "{file}: {report:?}");
        }
    }
    assert_eq!(scratch.files().len(), 4);
}

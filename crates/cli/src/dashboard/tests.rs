//! Sampling and metrics of snapshots that are made up.

use std::collections::HashMap;

use ferroce_stat::histogram::{BUCKETS, bucket};
use ferroce_stat::layout::{DEVICE_COUNTERS, NAKS, TRANSPORT_COUNTERS};
use ferroce_stat::snapshot::{
    CompletionQueue, Counters, Device, Direction, Latency, MemoryRegion, Process, QueuePair,
    Reason, Snapshot, Traffic,
};

use super::anomalies::Severity;
use super::metrics;
use super::sampler::Sampler;
use super::view::{MAX_ROWS, View};

const SECOND: u64 = 1_000_000_000;

fn counters(names: &'static [&'static str], set: &[(&str, u64)]) -> Counters {
    let value =
        |name: &&str| set.iter().find(|(own, _)| own == name).map_or(0, |(_, value)| *value);
    Counters::new(names, names.iter().map(value).collect())
}

fn qp(number: u32, age: f64, bytes: u64) -> QueuePair {
    let mut tx = Direction { packets: bytes / 1000, bytes, ..Direction::default() };
    tx.operations.write = Traffic { packets: bytes / 1000, bytes, messages: bytes / 1000 };
    QueuePair {
        number,
        service: "RC",
        state: "RTS",
        remote_number: Some(7),
        remote_address: Some("127.0.0.1".parse().unwrap()),
        link: "sockets",
        path_mtu: 4096,
        max_send_wr: 16,
        max_recv_wr: 16,
        shared_receive_queue: None,
        send_cq: 1,
        recv_cq: 1,
        shard: 0,
        age_seconds: age,
        idle_seconds: None,
        sq_psn: 0,
        rq_psn: 0,
        send_outstanding: 2,
        recv_outstanding: 0,
        in_flight_packets: 1,
        in_flight_bytes: 1000,
        send_posted: 0,
        send_completions: 0,
        recv_completions: 0,
        completion_errors: 0,
        last_error: None,
        last_reason: None,
        tx,
        rx: Direction::default(),
        counters: counters(&TRANSPORT_COUNTERS, &[]),
        naks_received: counters(&NAKS, &[]),
        naks_sent: counters(&NAKS, &[]),
        latency: Latency { sum_ns: 0, buckets: vec![0; BUCKETS] },
    }
}

fn device(set: &[(&str, u64)], queue_pairs: Vec<QueuePair>) -> Device {
    Device {
        name: "ferroce_lo".to_owned(),
        address: Some("127.0.0.1".parse().unwrap()),
        active: true,
        mtu: 4096,
        pds: 1,
        memory_windows: 0,
        memory_bytes: 4096,
        last_reason: None,
        counters: counters(DEVICE_COUNTERS, set),
        queue_pairs,
        completion_queues: vec![CompletionQueue {
            id: 1,
            capacity: 64,
            pending: 3,
            completions: 100,
            overruns: 0,
        }],
        memory_regions: vec![MemoryRegion { pd: 1, length: 4096, access: vec!["local_write"] }],
        shared_receive_queues: Vec::new(),
    }
}

fn process(pid: u32, age: f64, devices: Vec<Device>) -> Process {
    Process {
        pid,
        name: format!("p{pid}"),
        command: format!("./p{pid} --x"),
        uid: 0,
        network_namespace: 1,
        state: 'S',
        age_seconds: age,
        library: "0.1.0".to_owned(),
        unknown_format: false,
        unpublished: 0,
        inconsistent: 0,
        socket_drops: 0,
        last_reason: None,
        devices,
    }
}

fn at(seconds: u64, processes: Vec<Process>) -> Snapshot {
    Snapshot { time_ns: seconds * SECOND, processes }
}

fn update(sampler: &mut Sampler, snapshot: Snapshot) -> View {
    let now = snapshot.time_ns / 1_000_000;
    sampler.update(snapshot, now)
}

#[test]
fn rates_are_increases_per_second() {
    let mut sampler = Sampler::default();
    let snapshot = |seconds: u64, bytes: u64| {
        let device = device(
            &[("bytes_out", bytes), ("packets_out", bytes / 100)],
            vec![qp(1, seconds as f64, bytes)],
        );
        at(seconds, vec![process(10, 100.0 + seconds as f64, vec![device])])
    };
    // Counts from before the dashboard started are not a rate.
    let view = update(&mut sampler, snapshot(100, 1_000_000));
    assert_eq!((view.totals.tx, view.qps[0].tx, view.sequence), (0.0, 0.0, 1));
    assert_eq!((view.counts.processes, view.counts.qps, view.counts.memory), (1, 1, 4096));
    let view = update(&mut sampler, snapshot(102, 3_000_000));
    assert_eq!(view.totals.tx, 8_000_000.0);
    assert_eq!((view.totals.tx_packets, view.totals.messages), (10_000.0, 1000.0));
    assert_eq!((view.qps[0].tx, view.qps[0].messages), (8_000_000.0, 1000.0));
    assert_eq!((view.processes[0].tx, view.devices[0].tx), (8_000_000.0, 8_000_000.0));
    // The same moment twice: no division by zero.
    let view = update(&mut sampler, snapshot(102, 3_000_000));
    assert_eq!(view.totals.tx, 0.0);
}

#[test]
fn a_new_process_counts_from_zero_and_an_unknown_one_does_not() {
    let mut sampler = Sampler::default();
    update(&mut sampler, at(100, vec![]));
    let bytes = |bytes| vec![device(&[("bytes_out", bytes)], vec![])];
    let view = update(
        &mut sampler,
        at(101, vec![process(1, 0.5, bytes(1000)), process(2, 90.0, bytes(5_000_000))]),
    );
    let rates: HashMap<_, _> = view.processes.iter().map(|row| (row.pid, row.tx)).collect();
    assert_eq!((rates[&1], rates[&2]), (8000.0, 0.0));
    // Afterwards both have rates.
    let view = update(
        &mut sampler,
        at(102, vec![process(1, 1.5, bytes(1000)), process(2, 91.0, bytes(5_000_125))]),
    );
    assert_eq!(view.totals.tx, 1000.0);
}

#[test]
fn a_number_that_is_used_again_is_another_object() {
    let mut sampler = Sampler::default();
    let old = device(&[("bytes_out", 9_000)], vec![qp(1, 50.0, 9_000)]);
    update(&mut sampler, at(100, vec![process(1, 60.0, vec![old])]));
    // The PID and the QPN are those of before; both are younger.
    let new = device(&[("bytes_out", 10_000)], vec![qp(1, 0.1, 10_000)]);
    let view = update(&mut sampler, at(101, vec![process(1, 0.2, vec![new.clone()])]));
    assert_eq!((view.totals.tx, view.qps[0].tx), (80_000.0, 80_000.0));
    // In the same process, too. A device whose counter decreased was opened again.
    let again = device(&[("bytes_out", 1)], vec![qp(1, 0.1, 500)]);
    let view = update(&mut sampler, at(102, vec![process(1, 1.2, vec![again])]));
    assert_eq!((view.totals.tx, view.qps[0].tx), (8.0, 4000.0));
}

#[test]
fn processes_that_come_and_go_leave_nothing_behind() {
    let mut sampler = Sampler::default();
    update(&mut sampler, at(100, vec![]));
    let many = |first: u32, seconds: u64| {
        let one =
            |pid| process(pid, 0.5, vec![device(&[("bytes_out", 1000)], vec![qp(pid, 0.5, 1000)])]);
        at(seconds, (first..first + 200).map(one).collect())
    };
    for round in 1..=5u32 {
        let view = update(&mut sampler, many(round * 200, 100 + u64::from(round)));
        assert_eq!((view.counts.processes, view.processes.len(), view.qps.len()), (200, 200, 200));
        assert_eq!(view.totals.tx, 200.0 * 8000.0);
        assert!(
            view.processes.iter().all(|row| (round * 200..round * 200 + 200).contains(&row.pid))
        );
        assert!(view.anomalies.is_empty());
    }
    let view = update(&mut sampler, at(106, vec![]));
    assert_eq!((view.counts.processes, view.processes.len(), view.totals.tx), (0, 0, 0.0));
}

#[test]
fn a_device_opened_twice_is_two_rows() {
    let mut sampler = Sampler::default();
    let two = |age, first, second| {
        let devices =
            [first, second].map(|bytes| device(&[("bytes_out", bytes)], vec![qp(1, age, bytes)]));
        vec![process(1, age, devices.into())]
    };
    update(&mut sampler, at(100, two(50.0, 0, 0)));
    let view = update(&mut sampler, at(101, two(51.0, 100, 2000)));
    let rates: Vec<_> = view.qps.iter().map(|row| (row.key.as_str(), row.tx)).collect();
    assert_eq!(rates, [("1/ferroce_lo/1", 800.0), ("1/ferroce_lo.1/1", 16_000.0)]);
    let found = super::detail::QpDetail::find(sampler.last().unwrap(), "1/ferroce_lo.1/1");
    assert!(found.is_some());
    for wrong in [
        "",
        "/",
        "1/ferroce_lo",
        "1/ferroce_lo/2",
        "2/ferroce_lo/1",
        "1/ferroce_lo.2/1",
        "x/ferroce_lo/1",
    ] {
        assert!(super::detail::QpDetail::find(sampler.last().unwrap(), wrong).is_none(), "{wrong}");
    }
}

#[test]
fn latencies_are_those_of_the_interval() {
    let mut sampler = Sampler::default();
    let snapshot = |seconds: u64, slow: u64, fast: u64| {
        let mut one = qp(1, seconds as f64, 0);
        one.latency.buckets[bucket(1 << 20)] = slow;
        one.latency.buckets[bucket(1 << 10)] = fast;
        at(seconds, vec![process(1, 100.0 + seconds as f64, vec![device(&[], vec![one])])])
    };
    let view = update(&mut sampler, snapshot(10, 1000, 0));
    assert_eq!(view.totals.p50, None);
    let view = update(&mut sampler, snapshot(11, 1000, 50));
    assert!(
        view.totals.p99.is_some_and(|nanos| (1024..=1280).contains(&nanos)),
        "{:?}",
        view.totals
    );
    assert_eq!(view.qps[0].p50, view.totals.p50);
    assert_eq!(update(&mut sampler, snapshot(12, 1000, 50)).totals.p50, None);
}

#[test]
fn counters_that_should_not_increase_are_anomalies() {
    let mut sampler = Sampler::default();
    let snapshot = |seconds: u64, count: u64, error: Option<&'static str>| {
        let mut one = qp(0x10002, seconds as f64, 0);
        one.counters = counters(
            &TRANSPORT_COUNTERS,
            &[("retrans_pkts", count), ("local_ack_timeout_err", count / 4)],
        );
        one.naks_received = counters(&NAKS, &[("remote_access", count / 4), ("rnr", count)]);
        (one.completion_errors, one.last_error) = (count, error);
        let device = device(&[("retrans_pkts", count), ("bad_icrc", count / 2)], vec![one]);
        at(seconds, vec![process(1, 100.0 + seconds as f64, vec![device])])
    };
    // What was there before is not new.
    assert!(update(&mut sampler, snapshot(10, 40, None)).anomalies.is_empty());
    let view = update(&mut sampler, snapshot(11, 44, Some("WR_FLUSH_ERR")));
    let mut found: Vec<_> =
        view.anomalies.iter().map(|one| (one.counter, one.count, one.qpn)).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("bad_icrc", 2, None),
            ("local_ack_timeout_err", 1, Some(0x10002)),
            ("remote_access", 1, Some(0x10002)),
            ("retrans_pkts", 4, Some(0x10002)),
        ]
    );
    assert_eq!((view.totals.faults.retransmits, view.totals.faults.corrupt), (4.0, 2.0));
    let view = update(&mut sampler, snapshot(12, 44, None));
    assert_eq!((view.anomalies.len(), view.totals.faults.sum()), (4, 0.0), "nothing more");
    // Flushed requests are the end of a connection, other errors are not.
    let view = update(&mut sampler, snapshot(13, 45, Some("RETRY_EXC_ERR")));
    let error = view.anomalies.iter().find(|one| one.counter == "completion_errors").unwrap();
    assert_eq!(
        (error.severity, error.title.as_str()),
        (Severity::Error, "Completion with an error: RETRY_EXC_ERR")
    );
}

/// What belongs to no QP has no place of its own.
#[test]
fn reasons_of_devices_and_processes_are_anomalies() {
    let mut sampler = Sampler::default();
    let snapshot = |seconds: u64, calls: u64, packets: u64| {
        let reason = |count: u64, text: &str| {
            let text = text.to_owned();
            (count > 0).then_some(Reason { number: 0, text, age_seconds: 0.0, count })
        };
        let mut device = device(&[], Vec::new());
        device.last_reason = reason(packets, "dropped a packet for QP 0x000007");
        let mut process = process(1, 100.0 + seconds as f64, vec![device]);
        process.last_reason = reason(calls, "modify_qp: sgid_index 17: the table has 1 entry");
        at(seconds, vec![process])
    };
    assert!(update(&mut sampler, snapshot(10, 3, 0)).anomalies.is_empty());
    let view = update(&mut sampler, snapshot(11, 4, 2));
    let found: Vec<_> = view.anomalies.iter().map(|one| (one.title.as_str(), one.count)).collect();
    let call = ("Call failed: modify_qp: sgid_index 17: the table has 1 entry", 1);
    let packet = ("Refused: dropped a packet for QP 0x000007", 2);
    assert!(found.len() == 2 && found.contains(&call) && found.contains(&packet), "{found:?}");
}

#[test]
fn the_busiest_rows_are_sent_if_there_are_too_many() {
    let mut sampler = Sampler::default();
    let snapshot = |seconds: u64, bytes: u64| {
        let qps = (0..3000)
            .map(|number| qp(number, seconds as f64, if number == 2500 { bytes } else { 0 }))
            .collect();
        at(seconds, vec![process(1, 100.0 + seconds as f64, vec![device(&[], qps)])])
    };
    update(&mut sampler, snapshot(10, 0));
    let view = update(&mut sampler, snapshot(11, 1000));
    assert_eq!((view.qps.len(), view.counts.qps, view.qps[0].qpn), (MAX_ROWS, 3000, 2500));
}

/// Parses the text as OpenMetrics requires, and returns the samples by family.
fn parse(text: &str) -> HashMap<String, Vec<(String, f64)>> {
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let mut families: HashMap<String, Vec<(String, f64)>> = HashMap::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            (family, kind) = (name.to_owned(), of.to_owned());
            // Samples of one family are together.
            assert!(families.insert(family.clone(), Vec::new()).is_none(), "{line}");
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').unwrap();
            assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.starts_with(&format!("{family} ")), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let suffix = name
                .strip_prefix(family.as_str())
                .unwrap_or_else(|| panic!("{line} is not of {family}"));
            let allowed: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_count", "_sum"],
                other => panic!("{other}"),
            };
            assert!(allowed.contains(&suffix), "{line}");
            families.get_mut(&family).unwrap().push((series.to_owned(), value.parse().unwrap()));
        }
    }
    families
}

#[test]
fn metrics_follow_openmetrics() {
    let mut one = qp(0x10002, 1.0, 5000);
    one.latency.buckets[bucket(1 << 10)] = 3;
    one.latency.buckets[BUCKETS - 1] = 1;
    one.latency.sum_ns = 4_500;
    let mut named =
        process(10, 1.0, vec![device(&[("bytes_out", 77), ("send_errno", 11)], vec![one])]);
    named.name = "a\"b\\c\nd".to_owned();
    let text = metrics::text(&at(1, vec![named]));
    let families = parse(&text);
    assert!(text.contains(r#"process="a\"b\\c\nd""#), "{text}");
    let value = |family: &str, part: &str| {
        let samples = &families[family];
        samples.iter().find(|(series, _)| series.contains(part)).map(|(_, value)| *value)
    };
    assert_eq!(value("ferroce_device_bytes_out", "pid=\"10\""), Some(77.0));
    assert!(!families.contains_key("ferroce_device_send_errno"));
    assert_eq!(
        value("ferroce_qp_payload_bytes", "direction=\"tx\",operation=\"write\""),
        Some(5000.0)
    );
    assert_eq!(value("ferroce_device_queue_pairs", "state=\"RTS\""), Some(1.0));
    assert_eq!(value("ferroce_qp_packets", "qpn=\"0x010002\""), Some(0.0));
    let buckets: Vec<f64> = families["ferroce_qp_latency_seconds"]
        .iter()
        .filter(|(name, _)| name.contains("_bucket"))
        .map(|one| one.1)
        .collect();
    assert!(buckets.is_sorted() && buckets.last() == Some(&4.0), "{buckets:?}");
    assert_eq!(value("ferroce_qp_latency_seconds", "_count"), Some(4.0));
    assert_eq!(value("ferroce_qp_latency_seconds", "_sum"), Some(0.000_004_5));
    assert!(parse(&metrics::text(&Snapshot::default()))["ferroce_processes"][0].1 == 0.0);
}

#[test]
fn metrics_of_very_many_queue_pairs_are_bounded() {
    let qps = (0..3000).map(|number| qp(number, 1.0, 0)).collect();
    let families = parse(&metrics::text(&at(1, vec![process(1, 1.0, vec![device(&[], qps)])])));
    assert_eq!(families["ferroce_qps_not_exported"][0].1, 2000.0);
    assert_eq!(families["ferroce_qp_completion_errors"].len(), 1000);
}

/// The Grafana dashboard asks only for metrics that exist.
#[test]
fn the_grafana_dashboard_names_metrics_that_exist() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/grafana/ferroce.json")).unwrap();
    let text = metrics::text(&at(1, vec![process(1, 1.0, vec![device(&[], vec![qp(1, 1.0, 1)])])]));
    let families = parse(&text);
    let series: Vec<&str> =
        families.values().flatten().map(|(series, _)| series.split('{').next().unwrap()).collect();
    let mut found = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for name in
                expression.split(|c| !is_word(c)).filter(|word| word.starts_with("ferroce_"))
            {
                found += 1;
                assert!(series.contains(&name), "{name} in {expression}");
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let query =
            variable["query"]["query"].as_str().or(variable["query"].as_str()).unwrap_or_default();
        if let Some(name) =
            query.strip_prefix("label_values(").and_then(|rest| rest.split(['{', ',']).next())
        {
            found += 1;
            assert!(series.contains(&name), "{query}");
        }
    }
    assert!(found > 10, "{found}");
}

use ferroce_stat::layout::{DEVICE_COUNTERS, NAKS, TRANSPORT_COUNTERS};
use ferroce_stat::snapshot::{
    CompletionQueue, Counters, Device, Direction, MemoryRegion, Operations, Process, QueuePair,
    Snapshot, Traffic,
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, View};
use super::frame;
use super::keys::{Next, press};

fn pair(number: u32, state: &'static str, bytes: u64) -> QueuePair {
    let write = Traffic { packets: bytes / 1000, bytes, messages: bytes / 10_000 };
    let operations = Operations { write, ..Operations::default() };
    let mut counted = vec![0; TRANSPORT_COUNTERS.len()];
    counted[7] = 3;
    let mut pair = QueuePair {
        number,
        service: "RC",
        state,
        remote_number: Some(number + 0x100),
        remote_address: Some("192.0.2.2".parse().unwrap()),
        link: "sockets",
        path_mtu: 1024,
        max_send_wr: 64,
        send_outstanding: 5,
        tx: Direction { packets: write.packets, bytes, operations },
        counters: Counters::new(&TRANSPORT_COUNTERS, counted),
        naks_received: Counters::new(&NAKS, vec![1, 0, 0, 0, 0]),
        ..QueuePair::default()
    };
    pair.latency.buckets = vec![0; ferroce_stat::histogram::BUCKETS];
    pair.latency.buckets[ferroce_stat::histogram::bucket(5_000)] = 10 + bytes / 10_000;
    pair
}

fn process(pid: u32, name: &str, pairs: Vec<QueuePair>) -> Process {
    let bytes = pairs.iter().map(|pair| pair.tx.bytes).sum();
    let mut counted = vec![0; DEVICE_COUNTERS.len()];
    counted[3] = bytes;
    let device = Device {
        name: "ferroce_eth0".to_owned(),
        active: true,
        counters: Counters::new(DEVICE_COUNTERS, counted),
        queue_pairs: pairs,
        completion_queues: vec![CompletionQueue {
            id: 4,
            capacity: 128,
            pending: 7,
            completions: 1234,
            overruns: 0,
        }],
        memory_regions: vec![MemoryRegion { pd: 1, length: 65_536, access: vec!["remote_read"] }],
        memory_bytes: 65_536,
        ..Device::default()
    };
    Process { pid, name: name.to_owned(), state: 'S', devices: vec![device], ..Process::default() }
}

/// All objects are as much older as time has passed.
fn aged(mut snapshot: Snapshot) -> Snapshot {
    let age = 100.0 + snapshot.time_ns as f64 / 1e9;
    for process in &mut snapshot.processes {
        process.age_seconds = age;
        let pairs = process.devices.iter_mut().flat_map(|device| &mut device.queue_pairs);
        pairs.for_each(|pair| pair.age_seconds = age);
    }
    snapshot
}

/// Two processes; between the snapshots of two seconds, the second sends ten times as much as the first.
fn app() -> App {
    let snapshot = |time_ns, factor: u64| {
        let processes = vec![
            process(100, "ib_write_bw", vec![pair(0x11, "RTS", factor * 1_000_000)]),
            process(
                200,
                "ml_train",
                vec![pair(0x21, "RTS", factor * 10_000_000), pair(0x22, "ERR", 0)],
            ),
        ];
        aged(Snapshot { time_ns, processes })
    };
    let mut app = App::new(snapshot(0, 1));
    app.update(snapshot(2_000_000_000, 2));
    app
}

fn text(app: &App, width: u16, height: u16) -> String {
    frame(app, width, height).unwrap().join("\n")
}

fn type_keys(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        assert_eq!(press(app, KeyEvent::new(code, KeyModifiers::NONE)), Next::Continue);
    }
}

#[test]
fn devices_are_shown_with_their_rates() {
    let app = app();
    let shown = text(&app, 160, 14);
    for part in [
        "2 processes, 3 QPs, 2 CQs, 2 MRs",
        "sent      44.0 Mbit/s",
        "100 ib_write_bw",
        "4.00 Mbit/s",
        "40.0 Mbit/s",
        "active",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    // A narrow terminal shows what fits, and any size is drawn without a panic.
    for (width, height) in [(80, 24), (40, 10), (10, 3), (1, 1), (300, 100)] {
        let _ = text(&app, width, height);
    }
    assert!(text(&app, 80, 24).contains("ml_train"));
}

#[test]
fn queue_pairs_are_sorted_by_traffic_and_searched() {
    let mut app = app();
    type_keys(&mut app, "2");
    let shown = text(&app, 160, 14);
    let positions = ["0x000021", "0x000011", "0x000022"].map(|qpn| shown.find(qpn).unwrap());
    assert!(positions.is_sorted(), "{shown}");
    assert!(shown.contains("192.0.2.2 0x000121") && shown.contains("ERR"), "{shown}");
    type_keys(&mut app, "r");
    let shown = text(&app, 160, 14);
    assert!(shown.find("0x000011").unwrap() < shown.find("0x000021").unwrap(), "{shown}");
    // By the next column, and back.
    type_keys(&mut app, "s");
    assert_eq!(app.order(), (9, true));
    type_keys(&mut app, "S");
    assert_eq!(app.order(), (8, true));
    type_keys(&mut app, "/IB_w");
    assert!(app.searching && text(&app, 160, 14).contains("/IB_w█"));
    type_keys(&mut app, "\n");
    let shown = text(&app, 160, 14);
    assert!(shown.contains("0x000011") && !shown.contains("0x000021"), "{shown}");
    type_keys(&mut app, "/x\n");
    assert!(text(&app, 160, 14).contains("no row contains the text"));
    type_keys(&mut app, "\x1b");
    assert!(text(&app, 160, 14).contains("0x000021"));
}

#[test]
fn a_device_opens_its_queue_pairs_and_a_queue_pair_its_details() {
    let mut app = app();
    type_keys(&mut app, "↓\n");
    let shown = text(&app, 160, 14);
    assert!(shown.contains("of ferroce_eth0 of process 200"), "{shown}");
    assert!(shown.contains("0x000021") && !shown.contains("0x000011"), "{shown}");
    type_keys(&mut app, "\n");
    let shown = text(&app, 160, 40);
    for part in [
        "QP 0x000021 of ferroce_eth0 of process 200 ml_train",
        "RC RTS  peer 192.0.2.2 0x000121  by sockets  path MTU 1024",
        "5 of 64 outstanding",
        "20,000 packets        2,000 messages    20.0 MB",
        "retrans_pkts                3",
        "rnr                         1",
        "p50 ",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    for (width, height) in [(80, 24), (20, 5), (1, 1)] {
        let _ = text(&app, width, height);
    }
    // The process ends while its queue pair is shown.
    app.update(Snapshot { time_ns: 3_000_000_000, processes: Vec::new() });
    assert!(text(&app, 160, 40).contains("this queue pair is gone"));
    type_keys(&mut app, "\x1b\x1b");
    assert_eq!((app.view, &app.detail), (View::Devices, &None));
    assert!(text(&app, 160, 40).contains("no process has a device open"));
}

#[test]
fn the_other_views_and_the_keys() {
    let mut app = app();
    type_keys(&mut app, "3");
    assert!(text(&app, 120, 14).contains("1,234"));
    type_keys(&mut app, "4");
    assert!(text(&app, 120, 14).contains("remote_read"));
    type_keys(&mut app, "?");
    assert!(text(&app, 120, 30).contains("sort by the next"));
    type_keys(&mut app, "x 1");
    assert!(text(&app, 120, 14).contains("paused"));
    let before = app.snapshot.time_ns;
    app.update(Snapshot::default());
    assert_eq!(app.snapshot.time_ns, before, "paused");
    // The chosen row is followed when the order changes.
    type_keys(&mut app, " 1↓");
    assert_eq!(app.selected.as_ref().unwrap().pid, 200);
    type_keys(&mut app, "r");
    let rows = app.rows();
    assert_eq!((rows[0].key.pid, app.position(&rows)), (200, 0));
    let quit = |app: &mut App, code, modifiers| press(app, KeyEvent::new(code, modifiers));
    assert_eq!(quit(&mut app, KeyCode::Char('q'), KeyModifiers::NONE), Next::Quit);
    assert_eq!(quit(&mut app, KeyCode::Char('c'), KeyModifiers::CONTROL), Next::Quit);
}

/// Numbers that do not fit are rounded, never cut.
#[test]
fn large_numbers_are_rounded_to_the_column() {
    let mut snapshot = app().snapshot;
    let device = &mut snapshot.processes[0].devices[0];
    let count = |name: &&str| if *name == "retrans_pkts" { 12_126_736 } else { 987_654_321 };
    device.counters = Counters::new(DEVICE_COUNTERS, DEVICE_COUNTERS.iter().map(count).collect());
    device.queue_pairs[0].counters =
        Counters::new(&TRANSPORT_COUNTERS, TRANSPORT_COUNTERS.iter().map(count).collect());
    device.completion_queues[0].completions = u64::MAX;
    snapshot.processes[0].name = "a_very_long_name_of_a_program".to_owned();
    let mut app = App::new(snapshot);
    for (view, parts) in [
        ("1", &["a_very_long_nam… ", " 12.1M ", " 1.98G ", " 4.94G "][..]),
        ("2", &["a_very_long…", " 12.1M "]),
        ("3", &[" 18.4E "]),
    ] {
        type_keys(&mut app, view);
        let shown = text(&app, 200, 14);
        for part in parts {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
    }
    for view in View::ALL {
        for (name, width, _) in super::rows::columns(view) {
            assert!(name.len() < usize::from(*width), "{name}: no room for the arrow");
        }
    }
}

/// A process that opened a device twice: each has its own rates and queue pairs.
#[test]
fn a_device_opened_twice_is_two_devices() {
    let snapshot = |time_ns, first: u64, second: u64| {
        let mut one = process(100, "twice", vec![pair(0x11, "RTS", first)]);
        one.devices.extend(process(100, "twice", vec![pair(0x21, "RTS", second)]).devices);
        aged(Snapshot { time_ns, processes: vec![one] })
    };
    let mut app = App::new(snapshot(0, 1_000_000, 1_000_000));
    app.update(snapshot(1_000_000_000, 2_000_000, 11_000_000));
    let shown = text(&app, 200, 14);
    assert!(shown.contains("8.00 Mbit/s") && shown.contains("80.0 Mbit/s"), "{shown}");
    type_keys(&mut app, "↓\n");
    let shown = text(&app, 200, 14);
    assert!(shown.contains("0x000021") && !shown.contains("0x000011"), "{shown}");
    assert!(shown.contains("of ferroce_eth0.1 of process 100"), "{shown}");
}

//! Events per second of real time: an event is a frame sent, forwarded or delivered, or a timeout.
//!
//! `cargo bench -p ferroce-sim --bench events`

use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use ferroce_proto::time::Instant;
use ferroce_sim::{
    Capture, Destination, EventLog, Fabric, Host, LinkConfig, Outcome, Scenario, Settings, Vantage,
};

fn main() {
    divan::main();
}

/// Frames that one run delivers, independent of the number of hosts.
const FRAMES: u32 = 200_000;

/// Sends a frame to its peer whenever one comes back, and has a deadline that every frame moves.
struct PingPong {
    frame: Vec<u8>,
    to_send: u32,
    remaining: u32,
    deadline: Option<Instant>,
}

impl Host for PingPong {
    fn handle_frame(&mut self, _now: Instant, _frame: &[u8]) {
        self.deadline = None;
        self.to_send += u32::from(self.remaining > 0);
    }

    fn handle_timeout(&mut self, _now: Instant) {
        self.deadline = None;
        self.to_send += u32::from(self.remaining > 0);
    }

    fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        self.to_send = self.to_send.checked_sub(1)?;
        self.remaining = self.remaining.saturating_sub(1);
        self.deadline = Some(now + Duration::from_millis(1));
        frame.extend_from_slice(&self.frame);
        Some(Destination::Header)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.deadline
    }
}

/// Returns an IPv4 frame to this host; its payload does not matter here.
fn frame(to: u32, payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 58 + payload];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x02]);
    frame[30..34].copy_from_slice(&(0x0a00_0000 | to).to_be_bytes());
    frame
}

fn run<T: EventLog>(settings: Settings, hosts: u32, payload: usize, event_log: T) -> u64 {
    let mut fabric = Fabric::with_event_log(1, settings, event_log);
    for host in 0..hosts {
        let to_send = 4;
        let remaining = FRAMES / hosts;
        let frame = frame(host ^ 1, payload);
        let address = std::net::Ipv4Addr::from(0x0a00_0000 | host).into();
        let host = PingPong { frame, to_send, remaining, deadline: None };
        fabric.add_host(host, &[address]).unwrap();
    }
    assert_eq!(fabric.run(), Outcome::Idle);
    assert!(fabric.totals().are_conserved());
    fabric.events()
}

/// The number of events is known only after a run; runs of a seed are equal, so one run counts them.
fn bench(bencher: Bencher<'_, '_>, settings: &Settings, hosts: u32, payload: usize) {
    let events = run(settings.clone(), hosts, payload, ());
    bencher
        .counter(ItemsCount::new(events))
        .bench_local(|| run(settings.clone(), hosts, payload, ()));
}

#[divan::bench(args = [2, 200, 5_000], sample_count = 5, sample_size = 1)]
fn clean_64_bytes(bencher: Bencher<'_, '_>, hosts: u32) {
    bench(bencher, &Scenario::Clean.settings(1, hosts), hosts, 64);
}

#[divan::bench(args = [2, 200, 5_000], sample_count = 5, sample_size = 1)]
fn clean_4096_bytes(bencher: Bencher<'_, '_>, hosts: u32) {
    bench(bencher, &Scenario::Clean.settings(1, hosts), hosts, 4096);
}

/// All faults of a link combined.
#[divan::bench(args = [2, 200], sample_count = 5, sample_size = 1)]
fn faulty_64_bytes(bencher: Bencher<'_, '_>, hosts: u32) {
    let mut settings = Scenario::lossy(0.01).settings(1, hosts);
    let part = |scenario: Scenario| scenario.settings(1, hosts);
    settings.uplink = LinkConfig {
        burst: part(Scenario::Bursty).uplink.burst,
        reordering: part(Scenario::Reordering).uplink.reordering,
        corruption: part(Scenario::Corrupting).uplink.corruption,
        jitter: Duration::from_micros(1),
        ..settings.uplink
    };
    settings.downlink = part(Scenario::Congested).downlink;
    bench(bencher, &settings, hosts, 64);
}

#[divan::bench(args = [64, 4096], sample_count = 5, sample_size = 1)]
fn captured(bencher: Bencher<'_, '_>, payload: usize) {
    let settings = Scenario::Clean.settings(1, 2);
    let capture = || Capture::new(std::io::sink(), Vantage::Everything, "").unwrap();
    let events = run(settings.clone(), 2, payload, capture());
    bencher
        .counter(ItemsCount::new(events))
        .bench_local(|| run(settings.clone(), 2, payload, capture()));
}

//! Hosts that share an address, and notifications between them.

use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::ethernet::Ethernet;
use ferroce_wire::ip::{Ipv4, Udp};

use super::toys::{NOT_ECT, at, roce, v4};
use crate::{Destination, Fabric, Host, HostId, Outcome, Probability, Settings, WhilePaused};

/// A process that sends frames to these QPNs of host 9, and notifies others.
#[derive(Debug, Default)]
struct Process {
    sends: Vec<u32>,
    notifies: Vec<(HostId, Duration)>,
    received: Vec<u32>,
    notified: Vec<Instant>,
}

/// Where a frame has its destination QPN.
const NUMBER: usize = Ethernet::LEN + Ipv4::LEN + Udp::LEN + 5;

impl Host for Process {
    fn handle_frame(&mut self, _: Instant, frame: &[u8]) {
        let [high, middle, low] = *frame[NUMBER..].first_chunk().unwrap();
        self.received.push(u32::from_be_bytes([0, high, middle, low]));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, _: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        let number = self.sends.pop()?;
        frame.extend(roce(v4(1), v4(9), NOT_ECT, &[0; 8]));
        frame[NUMBER..NUMBER + 3].copy_from_slice(&number.to_be_bytes()[1..]);
        Some(Destination::Header)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }

    fn handle_notification(&mut self, now: Instant) {
        self.notified.push(now);
    }

    fn poll_notification(&mut self) -> Option<(HostId, Duration)> {
        self.notifies.pop()
    }
}

/// A sender, and a machine of two processes with slots 1 and 2.
fn fabric(sends: Vec<u32>, missteering: Probability) -> Fabric<Process> {
    let mut fabric = Fabric::new(3, Settings { missteering, ..Settings::default() });
    let sender = Process { sends, ..Process::default() };
    assert_eq!(fabric.add_host(sender, &[v4(1)]), Ok(HostId(0)));
    for slot in [1, 2] {
        assert!(fabric.add_process(Process::default(), v4(9), slot).is_ok());
    }
    fabric
}

fn received(fabric: &Fabric<Process>) -> [usize; 2] {
    [1, 2].map(|host| fabric.host(HostId(host)).unwrap().received.len())
}

#[test]
fn a_frame_goes_to_the_process_of_its_queue_pair() {
    let numbers = [0x01_0011, 0x02_0011, 0x02_0012];
    let mut fabric = fabric(numbers.into(), Probability::NEVER);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(HostId(1)).unwrap().received, [numbers[0]]);
    assert_eq!(fabric.host(HostId(2)).unwrap().received, [numbers[2], numbers[1]]);
}

#[test]
fn a_share_of_the_frames_goes_to_any_process() {
    let mut fabric = fabric(vec![0x01_0011; 1000], Probability::percent(20));
    assert_eq!(fabric.run(), Outcome::Idle);
    let [right, wrong] = received(&fabric);
    // Half of those that are steered at random.
    assert!(right + wrong == 1000 && (60..140).contains(&wrong), "{right} {wrong}");
}

#[test]
fn frames_to_a_process_that_is_down_or_of_no_slot_go_to_the_others() {
    let mut fabric = fabric(vec![0x01_0011, 1, 0x07_0000], Probability::NEVER);
    fabric.crash(HostId(1));
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(HostId(2)).unwrap().received.len(), 3);
}

#[test]
fn an_address_is_of_one_host_or_of_one_machine() {
    let mut fabric = fabric(Vec::new(), Probability::NEVER);
    assert!(fabric.add_host(Process::default(), &[v4(9)]).is_err());
    assert!(fabric.add_process(Process::default(), v4(1), 1).is_err());
}

#[test]
fn a_notification_waits_for_a_host_that_is_paused() {
    let mut fabric = fabric(Vec::new(), Probability::NEVER);
    fabric.pause(HostId(1), WhilePaused::Drop);
    fabric.with_host(HostId(0), |host, _| {
        host.notifies = [1, 1, 2].map(|to| (HostId(to), Duration::from_nanos(5))).into();
    });
    let _ = fabric.run_to(at(100));
    let notified = |fabric: &Fabric<Process>| {
        [1, 2].map(|host| fabric.host(HostId(host)).unwrap().notified.clone())
    };
    assert_eq!(notified(&fabric), [vec![], vec![at(5)]]);
    fabric.resume(HostId(1), WhilePaused::Drop);
    assert_eq!(notified(&fabric), [vec![at(100)], vec![at(5)]]);
    // What replaces a host that crashed was not notified.
    fabric.notify(HostId(2));
    fabric.crash(HostId(2));
    let _ = fabric.run_to(at(200));
    fabric.restart(HostId(2), Process::default());
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(notified(&fabric)[1], []);
}

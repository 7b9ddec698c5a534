//! Routing by address, by host number, to groups, and of unroutable frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ferroce_proto::time::Instant;

use super::toys::{NOT_ECT, RECEIVER, SENDER, Station, at, pair, roce, v4, v6};
use crate::{AddressInUse, Destination, DropCause, Fabric, Host, HostId, Outcome, Settings};

fn one_frame(destination: Destination, frame: Vec<u8>) -> Station {
    Station { to_send: [(destination, frame)].into(), ..Station::default() }
}

#[test]
fn unknown_addresses_and_garbage_are_unroutable() {
    let mut fabric = Fabric::new(1, Settings::default());
    let frames = [
        roce(v4(1), v4(9), NOT_ECT, &[0; 4]),
        roce(v6(1), v6(9), NOT_ECT, &[0; 4]),
        vec![],
        vec![0xff; 9],
        vec![0x81; 300],
    ];
    for frame in frames {
        fabric.add_host(one_frame(Destination::Header, frame), &[]).unwrap();
    }
    let nobody = one_frame(Destination::Host(HostId(77)), vec![1]);
    fabric.add_host(nobody, &[]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.totals().dropped.of(DropCause::Unroutable), 6);
    assert!(fabric.totals().are_conserved());
    assert_eq!(fabric.host_statistics(HostId(0)).unwrap().dropped.total(), 1);
}

#[test]
fn frames_addressed_by_host_number_may_have_any_bytes() {
    let mut fabric = Fabric::new(1, Settings::default());
    let receiver = fabric.add_host(Station::default(), &[]).unwrap();
    fabric.add_host(one_frame(Destination::Host(receiver), vec![1, 2, 3]), &[]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(receiver).unwrap().received, [(at(0), vec![1, 2, 3])]);
}

#[test]
fn an_address_belongs_to_one_host() {
    let mut fabric = Fabric::new(1, Settings::default());
    let host = fabric.add_host(Station::default(), &[v4(1)]).unwrap();
    let mapped: IpAddr = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
    let error = fabric.add_host(Station::default(), &[v4(2), mapped]).unwrap_err();
    assert_eq!(error, AddressInUse { address: mapped, host });
    assert_eq!(error.to_string(), "::ffff:10.0.0.1 is already the address of host0");
    // The rejected host left no state behind.
    assert_eq!(fabric.add_host(Station::default(), &[v4(2)]), Ok(HostId(1)));
    assert_eq!(fabric.host_count(), 2);
}

#[test]
fn multicast_members_receive_copies() {
    for group in [IpAddr::from([239, 1, 1, 1]), Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into()] {
        let source = if group.is_ipv4() { v4(3) } else { v6(3) };
        let mut fabric = Fabric::new(1, Settings::default());
        for _ in 0..3 {
            fabric.add_host(Station::default(), &[]).unwrap();
        }
        let frame = roce(source, group, NOT_ECT, &[0; 4]);
        let sender = fabric.add_host(one_frame(Destination::Header, frame.clone()), &[]).unwrap();
        for member in [HostId(0), HostId(1), HostId(2), HostId(50), sender] {
            fabric.join(group, member);
        }
        fabric.leave(group, HostId(1));
        assert_eq!(fabric.run(), Outcome::Idle);
        let received: Vec<_> = fabric.hosts().map(|(_, host)| host.received.len()).collect();
        assert_eq!(received, [1, 0, 1, 0]);
        assert_eq!((fabric.totals().replicated, fabric.totals().delivered), (1, 2));
        assert!(fabric.totals().are_conserved());
        // A group without other members is unroutable.
        fabric.leave(group, HostId(0));
        fabric.leave(group, HostId(2));
        let again = (Destination::Header, frame);
        fabric.with_host(sender, |host, _| host.to_send.push_back(again)).unwrap();
        assert_eq!(fabric.run(), Outcome::Idle);
        assert_eq!(fabric.totals().dropped.of(DropCause::Unroutable), 1);
    }
}

#[test]
fn a_host_can_send_to_itself() {
    let mut fabric = Fabric::new(1, Settings::default());
    let frame = roce(v4(5), v4(5), NOT_ECT, &[0; 4]);
    let host = fabric.add_host(one_frame(Destination::Header, frame), &[v4(5)]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(host).unwrap().received.len(), 1);
}

#[test]
fn a_fabric_may_have_hosts_of_different_types() {
    /// Sends every frame back.
    struct Echo(Vec<Vec<u8>>);
    impl Host for Echo {
        fn handle_frame(&mut self, _now: Instant, frame: &[u8]) {
            self.0.push(frame.to_vec());
        }
        fn handle_timeout(&mut self, _now: Instant) {}
        fn poll_transmit(&mut self, _now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
            assert!(frame.is_empty());
            frame.extend(self.0.pop()?);
            Some(Destination::Host(SENDER))
        }
        fn poll_timeout(&mut self) -> Option<Instant> {
            None
        }
    }
    let mut fabric: Fabric<Box<dyn Host>> = Fabric::new(1, Settings::default());
    fabric.add_host(Box::new(Echo(Vec::new())), &[v4(0)]).unwrap();
    let station = Station::sending(v4(1), v4(0), NOT_ECT, 3, 8);
    fabric.add_host(Box::new(station), &[v4(1)]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host_statistics(SENDER).unwrap().delivered, 3);
}

#[test]
fn runs_to_a_time_and_respects_moved_deadlines() {
    let mut fabric = pair(1, Settings::default(), NOT_ECT, 1);
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(at(500))).unwrap();
    assert_eq!(fabric.run_to(at(499)), Outcome::TimeReached);
    assert_eq!((fabric.now(), fabric.host(RECEIVER).unwrap().woken.len()), (at(499), 0));
    assert_eq!(fabric.run_to(at(500)), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().woken, [at(500)]);
    // One deadline is moved to a later time, and one is cancelled.
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(at(600))).unwrap();
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(at(900))).unwrap();
    fabric.with_host(SENDER, |host, _| host.wake_at = Some(at(700))).unwrap();
    fabric.with_host(SENDER, |host, _| host.wake_at = None).unwrap();
    let events = fabric.events();
    assert_eq!(fabric.run_until(|fabric| fabric.now() > at(500)), Outcome::Done);
    assert_eq!((fabric.now(), fabric.events()), (at(900), events + 1));
    assert_eq!(fabric.host(RECEIVER).unwrap().woken, [at(500), at(900)]);
    // A deadline in the past expires immediately.
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(at(1))).unwrap();
    assert_eq!(fabric.step(), None);
    assert_eq!(fabric.step(), Some(Outcome::Idle));
    assert_eq!(fabric.host(RECEIVER).unwrap().woken.last(), Some(&at(900)));
    assert_eq!(fabric.run_for(std::time::Duration::from_nanos(100)), Outcome::Idle);
    assert_eq!(fabric.now(), at(1000));
    assert_eq!(fabric.with_host(HostId(9), |_, _| ()), None);
}

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;
use proptest::prelude::*;

use super::*;
use crate::credit::probe::Message;
use crate::testing::{QueuePair, queue_pairs};

const QUEUE_PAIRS: usize = 5;

const RECEIVER: Receiver = Receiver { host: IpAddr::V4(Ipv4Addr::LOCALHOST), slot: 2 };

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

fn windows() -> Windows<Rc<QueuePair>, ()> {
    Windows::new(10_000, 1)
}

/// Sends until the window is full. Returns the number of packets and the numbers of the probes.
fn fill(windows: &mut Windows<Rc<QueuePair>, ()>, now: Instant) -> (usize, Vec<u32>) {
    let (mut packets, mut probes) = (0, Vec::new());
    while !windows.is_closed(RECEIVER, 0) && packets < 100 {
        packets += 1;
        let probe = windows.sent(RECEIVER, (), 1_232, now);
        probes.extend(probe.map(|probe| number(&probe)));
    }
    (packets, probes)
}

fn number((_, packet): &ProbePacket<()>) -> u32 {
    // Parsed as received: with an ICRC at the end.
    let bytes = [&packet[..], &[0; 4]].concat();
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.bth.destination, Qpn(0x02_0003));
    match Message::parse(&packet) {
        Some(Message::Probe { number, sender: Qpn(0x01_0003) }) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_acknowledged_probe_opens_the_window_up_to_it() {
    let mut windows = windows();
    // Each packet costs 2,000 bytes: the probe is sent at half of the window.
    assert_eq!(fill(&mut windows, at(0)), (5, vec![0]));
    assert!(
        windows.handle_probe_ack(RECEIVER, 7, at(1), &mut Schedule::default()).is_none(),
        "no such probe"
    );
    assert!(windows.is_closed(RECEIVER, 0));
    assert!(
        windows.handle_probe_ack(RECEIVER, 0, at(1), &mut Schedule::default()).is_none(),
        "less than half a window is in flight"
    );
    assert_eq!(fill(&mut windows, at(1)), (3, vec![1]));
}

#[test]
fn connections_leave_half_of_the_window() {
    let mut windows = windows();
    for (others, packets) in [(1_999, 5), (2_000, 4), (4_000, 3), (1 << 20, 3)] {
        windows.windows.clear();
        let mut sent = 0;
        while !windows.is_closed(RECEIVER, others) {
            let probe = windows.sent(RECEIVER, (), 1_232, at(0));
            sent += 1;
            assert_eq!(probe.is_some(), sent == 3, "the window opens again");
        }
        assert_eq!(sent, packets, "{others} bytes of others");
    }
}

#[test]
fn a_probe_is_repeated_and_then_given_up() {
    let mut windows = windows();
    let mut now = 0;
    for round in 0..MAX_UNANSWERED {
        assert!(!fill(&mut windows, at(now)).1.is_empty());
        let mut sent = Vec::new();
        while windows.is_closed(RECEIVER, 0) {
            assert_eq!(windows.next_timer(), Some(at(now + 5)));
            now += 5;
            windows.expire(at(now), &mut Schedule::default(), |probe| sent.push(number(&probe)));
        }
        assert_eq!(sent.len(), MAX_PROBES as usize - 1, "round {round}");
    }
    // The receiver is considered gone, so nothing is throttled. A late acknowledgement is still accepted.
    assert_eq!(fill(&mut windows, at(now)).0, 100);
    let last = windows.windows[&RECEIVER].probe.unwrap().number;
    let probe = windows.handle_probe_ack(RECEIVER, last, at(now), &mut Schedule::default());
    assert!(probe.is_some() && windows.is_closed(RECEIVER, 0));
}

#[test]
fn queue_pairs_that_could_send_nothing_are_resumed_first() {
    let all = queue_pairs(4);
    let (mut windows, mut schedule) = (windows(), Schedule::default());
    fill(&mut windows, at(0));
    let mut waits = [None; 4];
    for (number, sent) in [(0, true), (1, false), (2, true), (3, false)] {
        assert!(windows.must_wait(RECEIVER, 0, &all[number], &mut waits[number], sent));
        assert!(windows.must_wait(RECEIVER, 0, &all[number], &mut waits[number], sent));
    }
    windows.leave(&all[1], &mut waits[1]);
    assert!(windows.must_wait(RECEIVER, 0, &all[1], &mut waits[1], false));
    windows.handle_probe_ack(RECEIVER, 0, at(1), &mut schedule);
    let resumed = std::iter::from_fn(|| schedule.pop()).map(|one| one.number().0);
    assert_eq!(resumed.collect::<Vec<_>>(), [3, 1, 0, 2]);
}

#[test]
fn malformed_probes_are_ignored() {
    let parse = |bytes: &[u8]| Message::parse(&Packet::parse(bytes).unwrap());
    let mut bytes = [&probe::probe(1, RECEIVER, 1)[..], &[0; 4]].concat();
    let sender = Qpn(0x01_0003);
    assert!(probe::is_for(sender) && !probe::is_for(Qpn(0x01_0004)));
    assert_eq!(parse(&bytes), Some(Message::Probe { number: 1, sender }));
    let ack = [&probe::ack(1, sender, RECEIVER.slot)[..], &[0; 4]].concat();
    assert_eq!(parse(&ack), Some(Message::Ack { number: 1, sender: Qpn(0x02_0003) }));
    bytes[15] ^= 1;
    assert_eq!(parse(&bytes), None, "another queue key");
    bytes[15] ^= 1;
    bytes[23] ^= 1;
    assert_eq!(parse(&bytes), None, "another type");
    let bytes = [&probe::probe(1, RECEIVER, 1)[..24], &[0; 4]].concat();
    assert_eq!(parse(&bytes), None, "too short");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A QP sends to a receiver until it has to wait, while RC has this much in flight.
    Send { pair: usize, slot: u8, others: usize },
    /// The outstanding probe of a receiver is acknowledged.
    Acknowledge { slot: u8 },
    /// The QP is destroyed.
    Leave { pair: usize },
    /// So many milliseconds pass.
    Pass { milliseconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..3_u8;
    let send = (0..QUEUE_PAIRS, slot.clone(), prop_oneof![Just(0), 0..20_000_usize]);
    let step = prop_oneof![
        6 => send.prop_map(|(pair, slot, others)| Step::Send { pair, slot, others }),
        2 => slot.prop_map(|slot| Step::Acknowledge { slot }),
        1 => (0..QUEUE_PAIRS).prop_map(|pair| Step::Leave { pair }),
        1 => (1..40_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Also one that was reset, and sends to another receiver, while it waited. Receivers may never answer.
    #[test]
    fn every_queue_pair_that_waits_is_resumed(steps in steps()) {
        let queue_pairs = queue_pairs(QUEUE_PAIRS);
        let mut schedule = Schedule::default();
        let mut windows = windows();
        let mut waits = [None; QUEUE_PAIRS];
        let mut waiting = [None; QUEUE_PAIRS];
        let mut now = 0;
        let receiver = |slot| Receiver { slot, ..RECEIVER };
        let end = std::iter::repeat_n(Step::Pass { milliseconds: 5 }, 3 * MAX_PROBES as usize);
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Send { pair, slot, others } => {
                    let (to, mut sent) = (receiver(slot), false);
                    waiting[pair] = loop {
                        if windows.must_wait(to, others, &queue_pairs[pair], &mut waits[pair], sent) {
                            break Some((to, others));
                        }
                        windows.sent(to, (), 1_232, at(now));
                        if sent && windows.windows[&to].unanswered >= MAX_UNANSWERED {
                            break None; // Nothing is throttled.
                        }
                        sent = true;
                    };
                }
                Step::Acknowledge { slot } => {
                    let to = receiver(slot);
                    let probe = windows.windows.get(&to).and_then(|flow| flow.probe);
                    if let Some(probe) = probe {
                        windows.handle_probe_ack(to, probe.number, at(now), &mut schedule);
                    }
                }
                Step::Leave { pair } => {
                    windows.leave(&queue_pairs[pair], &mut waits[pair]);
                    waiting[pair] = None;
                }
                Step::Pass { milliseconds } => {
                    now += milliseconds;
                    windows.expire(at(now), &mut schedule, |_| ());
                }
            }
            windows.check_invariants();
            // It may be resumed although the window is closed again.
            while let Some(queue_pair) = schedule.pop() {
                let pair = queue_pair.number().0 as usize;
                waiting[pair] = waiting[pair].filter(|&(to, others)| {
                    windows.must_wait(to, others, &queue_pairs[pair], &mut waits[pair], false)
                });
            }
        }
        prop_assert_eq!(waiting, [None; QUEUE_PAIRS]);
        prop_assert_eq!(windows.waiting(), 0);
    }
}

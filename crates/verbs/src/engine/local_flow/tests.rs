//! The windows of UC and UD by themselves: without sockets, and with the QPs of an open device that the engine does not drive.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::engine::flow::tests::{QUEUE_PAIRS, cores};

const PROCESS: Receiver = Receiver { host: IpAddr::V4(Ipv4Addr::LOCALHOST), slot: 2 };
const ROUTE: Route = Route {
    link: 0,
    sender: 0,
    flow_label: 0,
    destination: SocketAddr::new(PROCESS.host, 4791),
    traffic_class: 0,
    hop_limit: None,
};

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

fn local_flow() -> LocalFlow {
    LocalFlow { window: 10_000, slot: 1, flows: HashMap::new() }
}

/// Sends until the window is full. Returns the number of packets and the numbers of the probes.
fn fill(local_flow: &mut LocalFlow, now: Instant) -> (usize, Vec<u32>) {
    let (mut packets, mut probes) = (0, Vec::new());
    while !local_flow.is_closed(PROCESS, 0) && packets < 100 {
        packets += 1;
        let probe = local_flow.sent(PROCESS, ROUTE, 1_232, now);
        probes.extend(probe.map(|probe| number(&probe)));
    }
    (packets, probes)
}

fn number((_, packet): &ProbePacket) -> u32 {
    // Parsed as received: with an ICRC at the end.
    let bytes = [&packet[..], &[0; 4]].concat();
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.bth.destination, Qpn(0x02_0003));
    let (kind, number, sender) = parse(&packet).unwrap();
    assert_eq!((kind, sender), (PROBE, Qpn(0x01_0003)));
    number
}

#[test]
fn an_acknowledged_probe_opens_the_window_up_to_it() {
    let mut local_flow = local_flow();
    // Each packet costs 2,000 bytes: the probe is sent at half of the window.
    assert_eq!(fill(&mut local_flow, at(0)), (5, vec![0]));
    assert!(local_flow.handle_probe_ack(PROCESS, 7, at(1), &mut |_| ()).is_none(), "no such probe");
    assert!(local_flow.is_closed(PROCESS, 0));
    assert!(
        local_flow.handle_probe_ack(PROCESS, 0, at(1), &mut |_| ()).is_none(),
        "less than half a window is in flight"
    );
    assert_eq!(fill(&mut local_flow, at(1)), (3, vec![1]));
}

#[test]
fn connections_leave_half_of_the_window() {
    let mut local_flow = local_flow();
    for (others, packets) in [(1_999, 5), (2_000, 4), (4_000, 3), (1 << 20, 3)] {
        local_flow.flows.clear();
        let mut sent = 0;
        while !local_flow.is_closed(PROCESS, others) {
            let probe = local_flow.sent(PROCESS, ROUTE, 1_232, at(0));
            sent += 1;
            assert_eq!(probe.is_some(), sent == 3, "the window opens again");
        }
        assert_eq!(sent, packets, "{others} bytes of others");
    }
}

#[test]
fn a_probe_is_repeated_and_then_given_up() {
    let mut local_flow = local_flow();
    let mut now = 0;
    for round in 0..MAX_UNANSWERED {
        assert!(!fill(&mut local_flow, at(now)).1.is_empty());
        let mut sent = Vec::new();
        while local_flow.is_closed(PROCESS, 0) {
            assert_eq!(local_flow.next_timer(), Some(at(now + 5)));
            now += 5;
            local_flow.expire(at(now), |_| (), |probe| sent.push(number(&probe)));
        }
        assert_eq!(sent.len(), MAX_PROBES as usize - 1, "round {round}");
    }
    // The receiver is considered gone, so nothing is throttled. A late acknowledgement is still accepted.
    assert_eq!(fill(&mut local_flow, at(now)).0, 100);
    let last = local_flow.flows[&PROCESS].probe.unwrap().number;
    let probe = local_flow.handle_probe_ack(PROCESS, last, at(now), &mut |_| ());
    assert!(probe.is_some() && local_flow.is_closed(PROCESS, 0));
}

#[test]
fn malformed_probes_are_ignored() {
    let mut bytes = [&packet(PROBE, 1, probe_number(PROCESS), 1)[..], &[0; 4]].concat();
    assert!(parse(&Packet::parse(&bytes).unwrap()).is_some());
    bytes[15] ^= 1;
    assert!(parse(&Packet::parse(&bytes).unwrap()).is_none(), "another queue key");
    let bytes = [&packet(PROBE, 1, probe_number(PROCESS), 1)[..24], &[0; 4]].concat();
    assert!(parse(&Packet::parse(&bytes).unwrap()).is_none(), "too short");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A QP sends to a receiver until it has to wait, while RC has this much in flight.
    Send { pair: usize, slot: u8, others: usize },
    /// The outstanding probe of a receiver is acknowledged.
    Acknowledge { slot: u8 },
    /// So many milliseconds pass.
    Pass { milliseconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..3_u8;
    let send = (0..QUEUE_PAIRS, slot.clone(), prop_oneof![Just(0), 0..20_000_usize]);
    let step = prop_oneof![
        6 => send.prop_map(|(pair, slot, others)| Step::Send { pair, slot, others }),
        2 => slot.prop_map(|slot| Step::Acknowledge { slot }),
        1 => (1..40_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Also one that was reset, and sends to another receiver, while it waited. Receivers may never answer.
    #[test]
    fn every_queue_pair_that_waits_is_resumed(steps in steps()) {
        let cores = cores();
        let mut local_flow = local_flow();
        let mut throttled = [None; QUEUE_PAIRS];
        let mut waiting = [None; QUEUE_PAIRS];
        let mut now = 0;
        let index = |core: &Arc<Core>| cores.iter().position(|one| Arc::ptr_eq(one, core)).unwrap();
        let receiver = |slot| Receiver { slot, ..PROCESS };
        let end = std::iter::repeat_n(Step::Pass { milliseconds: 5 }, 3 * MAX_PROBES as usize);
        for step in steps.into_iter().chain(end) {
            let mut resumed = Vec::new();
            let mut resume = |core: &Arc<Core>| resumed.push(index(core));
            match step {
                Step::Send { pair, slot, others } => {
                    let (to, mut sent) = (receiver(slot), false);
                    waiting[pair] = loop {
                        if local_flow.must_wait(to, others, &cores[pair], &mut throttled[pair], sent) {
                            break Some((to, others));
                        }
                        local_flow.sent(to, ROUTE, 1_232, at(now));
                        if sent && local_flow.flows[&to].unanswered >= MAX_UNANSWERED {
                            break None; // Nothing is throttled.
                        }
                        sent = true;
                    };
                }
                Step::Acknowledge { slot } => {
                    let to = receiver(slot);
                    let probe = local_flow.flows.get(&to).and_then(|flow| flow.probe);
                    if let Some(probe) = probe {
                        local_flow.handle_probe_ack(to, probe.number, at(now), &mut resume);
                    }
                }
                Step::Pass { milliseconds } => {
                    now += milliseconds;
                    local_flow.expire(at(now), resume, |_| ());
                }
            }
            // Its turn: it may be resumed for the receiver before, and the window may be closed again.
            for pair in resumed {
                waiting[pair] = waiting[pair].filter(|&(to, others)| {
                    local_flow.must_wait(to, others, &cores[pair], &mut throttled[pair], false)
                });
            }
        }
        prop_assert_eq!(waiting, [None; QUEUE_PAIRS]);
        for flow in local_flow.flows.values() {
            prop_assert!(flow.waiting.is_empty(), "{:?}", flow);
        }
    }
}

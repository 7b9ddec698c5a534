//! ECN marks, CNPs, and their effect on the requester (IBA A17.9).

use core::time::Duration;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::transport::Bth;

use super::helpers::{REMOTE_OFFSET, deliver, opcodes, read, remote, request, statuses, write};
use super::pair::{Faults, Pair};
use crate::budget::Pending;
use crate::congestion::{Congestion, DcqcnParameters, NotificationPacer, cost};
use crate::qp::Fault;
use crate::work::{Operation, SendRequest, Status};

fn dcqcn(seed: u64, faults: Faults) -> Pair {
    Pair::with(seed, faults, 1024, |config| {
        config.congestion = Congestion::Dcqcn(DcqcnParameters {
            line_rate: 1_000_000_000,
            ..DcqcnParameters::default()
        });
    })
}

#[test]
fn sends_cnps_for_marks_at_a_limited_rate() {
    let mut pair = dcqcn(1, Faults::default());
    pair.marking = true;
    pair.hosts[0].qp.post_send(write(1, 64 * 1024)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    let notifications = opcodes(&pair, 1).into_iter().filter(|one| *one == Opcode::CNP).count();
    let most = pair.now.as_nanos() / NotificationPacer::INTERVAL.as_nanos() as u64 + 1;
    assert!((1..=most as usize).contains(&notifications), "{notifications}, at most {most}");
    let (_, bytes) = pair.log.iter().find(|(_, bytes)| bytes[0] == Opcode::CNP.0).unwrap();
    let packet = Packet::parse(bytes).unwrap();
    assert!(packet.bth.becn);
    assert_eq!((packet.bth.psn.0, packet.payload), (0, &[0; 16][..]));
}

#[test]
fn cnps_reduce_the_requesters_rate() {
    let time = |marking| {
        let mut pair = dcqcn(1, Faults::default());
        pair.marking = marking;
        pair.hosts[0].qp.post_send(write(1, 512 * 1024)).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
        let now = pair.now;
        (now, pair.hosts[0].qp.rate(now).unwrap())
    };
    let ((free, full), (slowed, cut)) = (time(false), time(true));
    assert!(slowed.as_nanos() > 2 * free.as_nanos(), "{free} and {slowed}");
    assert!(cut < full / 2, "{cut} of {full} bit/s");
}

/// Duration of a request on a link that marks nothing, and on one that marks everything.
fn times(congestion: Congestion, post: SendRequest) -> [u64; 2] {
    [false, true].map(|marking| {
        let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
            config.congestion = congestion;
            config.timeout = Some(Duration::from_millis(100));
        });
        pair.marking = marking;
        pair.hosts[0].qp.post_send(post.clone()).unwrap();
        pair.run();
        assert_eq!(statuses(&pair), [(1, Status::Success)]);
        let sent = pair.log.iter().filter(|(_, bytes)| bytes[0] != Opcode::CNP.0).count();
        let counters = pair.hosts[0].qp.take_counters();
        assert_eq!(counters.local_ack_timeout_err, 0, "{sent} packets");
        pair.now.as_nanos()
    })
}

#[test]
fn cnps_reduce_the_window() {
    // No timer expires: ACKs open a window that a CNP closed.
    for window in [8, 64] {
        let [free, marked] = times(Congestion::Window(window * cost(1024, 1)), write(1, 600_000));
        assert!(marked > free * 3 / 2, "{window} packets: {free} and {marked} ns");
    }
}

#[test]
fn cnps_reduce_the_rate_of_read_responses() {
    let dcqcn = DcqcnParameters { line_rate: 1_000_000_000, ..DcqcnParameters::default() };
    let congestion = Congestion::Dcqcn(DcqcnParameters { window: 64 * cost(1024, 1), ..dcqcn });
    let [free, marked] = times(congestion, read(1, 500_000));
    assert!(marked > 2 * free, "{free} and {marked} ns");
}

/// Marks only packets from the responder, so that requests are not slowed down.
#[test]
fn a_window_paces_read_responses_after_a_cnp() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        config.congestion = Congestion::Window(usize::MAX / 2);
        config.timeout = None;
    });
    pair.hosts[0].qp.post_send(read(1, 500_000)).unwrap();
    pair.drain();
    assert!(pair.step(), "the request arrives");
    let bth = Bth { opcode: Opcode::CNP, becn: true, ..Bth::default() };
    deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 16]);
    let responder = &mut pair.hosts[1];
    let mut sent = 0;
    while responder.poll(pair.now).is_some() {
        sent += 1;
    }
    assert!((1..100).contains(&sent), "{sent} of 489 packets at once");
    assert!(responder.qp.poll_timeout().unwrap() > pair.now);
}

#[test]
fn a_nak_does_not_wait_behind_paced_responses() {
    let mut pair = Pair::with(1, Faults::default(), 1024, |config| {
        config.congestion = Congestion::Window(usize::MAX / 2);
        config.timeout = None;
    });
    pair.hosts[0].qp.post_send(read(1, 500_000)).unwrap();
    pair.drain();
    assert!(pair.step(), "the request arrives");
    let bth = Bth { opcode: Opcode::CNP, becn: true, ..Bth::default() };
    deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 16]);
    while pair.hosts[1].poll(pair.now).is_some() {}
    assert_eq!(pair.hosts[1].qp.pending(), Pending::Nothing, "the responses are paced");
    // A MIDDLE without a message in progress.
    let psn = pair.hosts[1].qp.progress().receive_psn;
    let bth = Bth { opcode: Opcode::RC_SEND_MIDDLE, psn, ..Bth::default() };
    deliver(&mut pair, 1, bth, ExtensionHeaders::default(), &[0; 1024]);
    let responder = &pair.hosts[1].qp;
    assert_eq!(responder.fault(), Some(Fault::Responder));
    assert_eq!(responder.pending(), Pending::Urgent);
}

#[test]
fn pacing_loses_no_packets() {
    for seed in 0..100 {
        let mut pair = dcqcn(seed, Faults::of(seed));
        pair.marking = seed % 2 == 0;
        pair.hosts[0].qp.post_send(write(1, 50_000)).unwrap();
        pair.hosts[0].qp.post_send(read(2, 50_000)).unwrap();
        pair.run();
        let ended = statuses(&pair);
        assert_eq!(ended.len(), 2);
        if pair.hosts[0].qp.fault().is_none() {
            assert_eq!(
                pair.hosts[1].memory.part(REMOTE_OFFSET, 50_000),
                pair.hosts[0].memory.part(0, 50_000)
            );
        }
    }
}

#[test]
fn a_long_read_is_split_into_chunks() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
    });
    pair.hosts[0].qp.post_send(read(1, 256 * 10 + 1)).unwrap();
    pair.drain();
    assert_eq!(opcodes(&pair, 0).len(), 2, "two pieces fill the window");
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    assert_eq!(pair.hosts[0].memory.part(0, 2561), pair.hosts[1].memory.part(REMOTE_OFFSET, 2561));
    let asked = pair.log.iter().filter(|(side, _)| *side == 0).map(|(_, bytes)| {
        let reth = Packet::parse(bytes).unwrap().extensions.reth.unwrap();
        (reth.address.0 - remote(REMOTE_OFFSET).address.0, reth.length)
    });
    assert!(asked.eq([(0, 1024), (1024, 1024), (2048, 513)]));
}

#[test]
fn max_rd_atomic_of_one_allows_a_long_read_after_an_atomic() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
        config.max_rd_atomic = 1;
        config.max_dest_rd_atomic = 1;
    });
    let add = Operation::FetchAdd { remote: remote(REMOTE_OFFSET), add: 1 };
    pair.hosts[0].qp.post_send(request(1, add, 8)).unwrap();
    pair.hosts[0].qp.post_send(read(2, 5000)).unwrap();
    pair.run();
    assert_eq!(statuses(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert!(pair.now.as_nanos() < Duration::from_micros(450).as_nanos() as u64, "no timer ran out");
}

//! Two flows through one queue that marks packets.

use std::collections::VecDeque;
use std::vec;

use super::*;

const PACKET: usize = 1000;
/// 100 ns: 125 bytes of a 10 Gbit/s link.
const TICK: u64 = 100;
const BYTES_PER_TICK: usize = 125;
/// Delay of a CNP to its sender, in ticks.
const CNP_DELAY: u64 = 50;

/// Bytes of each flow in the second half, and the longest queue then.
fn share(starts: [u64; 2], ticks: u64) -> ([usize; 2], usize) {
    let parameters = DcqcnParameters { line_rate: 10_000_000_000, ..paced() };
    let mut flows = starts.map(|start| Dcqcn::new(parameters, Instant::from_nanos(start * TICK)));
    let mut pacers = [NotificationPacer::default(); 2];
    let mut queue: VecDeque<(usize, bool)> = VecDeque::new();
    let mut notifications = VecDeque::from(vec![]);
    let (mut credit, mut through, mut longest, mut seed) = (0, [0; 2], 0, 7u64);
    for tick in 0..ticks {
        let now = Instant::from_nanos(tick * TICK);
        while notifications.front().is_some_and(|&(due, _)| due <= tick) {
            let Some((_, flow)) = notifications.pop_front() else { break };
            let flow: &mut Dcqcn = &mut flows[flow];
            flow.on_cnp(now);
        }
        for (number, flow) in flows.iter_mut().enumerate() {
            // A port does not exceed its line rate.
            if tick >= starts[number] && tick % 8 == 0 && flow.may_send(now, PACKET).is_ok() {
                flow.on_sent(now, PACKET);
                // Marks by the length of the queue, as DCQCN 3.1 (CP algorithm) with Kmin 5 KB, Kmax 200 KB, Pmax 1
                // %.
                let length = queue.len() * PACKET;
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let chance = match length {
                    ..5_000 => 0,
                    5_000..200_000 => (length - 5_000) as u64 * 10_000 / 195_000,
                    _ => 1_000_000,
                };
                queue.push_back((number, (seed >> 33) % 1_000_000 < chance));
            }
        }
        credit = (credit + BYTES_PER_TICK).min(PACKET + BYTES_PER_TICK);
        if credit >= PACKET {
            if let Some((number, marked)) = queue.pop_front() {
                credit -= PACKET;
                flows[number].on_ack(now, PACKET);
                let ecn = if marked { Ecn::CONGESTION_EXPERIENCED } else { Ecn(2) };
                if pacers[number].handle_packet(now, ecn) {
                    notifications.push_back((tick + CNP_DELAY, number));
                }
                if tick > ticks / 2 {
                    through[number] += PACKET;
                }
            }
        }
        if tick > ticks / 2 {
            longest = longest.max(queue.len() * PACKET);
        }
    }
    (through, longest)
}

#[test]
fn two_flows_converge_to_equal_shares() {
    for starts in [[0, 0], [0, 200_000], [100_000, 0]] {
        let ticks = 4_000_000;
        let (through, longest) = share(starts, ticks);
        let (less, more) = (through[0].min(through[1]), through[0].max(through[1]));
        assert!(less * 10 >= more * 8, "{starts:?}: {through:?}");
        // The link is also used. Without control the queue would grow at 10 Gbit/s: 250 MB by now.
        let capacity = BYTES_PER_TICK * (ticks / 2) as usize;
        assert!((less + more) * 100 >= capacity * 90, "{starts:?}: {through:?} of {capacity}");
        assert!(longest < 1_000_000, "{starts:?}: {longest}");
    }
}

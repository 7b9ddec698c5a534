//! The last packets of each queue pair.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use ferroce::live::RecordHeader;
use ferroce_trace::dissect;
use ferroce_wire::frame::Frame;
use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::syndrome::SyndromeKind;
use serde::Serialize;

use super::view::PacketView;
use super::{Episode, QpAddress, Recent};

/// The bytes kept of a packet: all headers of every operation.
pub(super) const SNAP_LEN: usize = 128;

/// The packets kept of a QPN.
const LAST: usize = 64;

/// The packets of an episode before and after the one that makes it an episode, and in all.
const BEFORE: usize = 6;
const AFTER: usize = 6;
const LONGEST: usize = 40;

/// The episodes kept of a QPN.
const EPISODES: usize = 4;

/// The QPNs with packets. The one that was silent for the longest time makes room for another.
const MAX_NUMBERS: usize = 2048;

/// A PSN further back than any window belongs to a new connection.
const FURTHEST_BACK: i32 = 1 << 16;

/// Why a packet is worth a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// The requester sent it again, after a loss or a timeout.
    Retransmission,
    Nak,
    /// A congestion mark or a notification of one.
    Congestion,
}

impl Reason {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Retransmission => "retransmission",
            Self::Nak => "NAK",
            Self::Congestion => "congestion",
        }
    }

    fn of(frame: &Frame<'_>) -> Option<Self> {
        let packet = frame.packet.as_ref()?;
        let operation = packet.bth.opcode.info()?.operation;
        if operation == Operation::CongestionNotification || dissect::is_congestion_marked(frame) {
            return Some(Self::Congestion);
        }
        let syndrome = packet.extensions.aeth?.syndrome.kind();
        matches!(syndrome, SyndromeKind::Nak(_) | SyndromeKind::RnrNak(_)).then_some(Self::Nak)
    }
}

/// A packet, cut after its headers.
#[derive(Debug)]
pub(super) struct Kept {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// The length on the wire.
    pub(super) original: usize,
    pub(super) frame: Box<[u8]>,
    pub(super) reason: Option<Reason>,
    /// The process and its QP, if it was recorded by the sender.
    sender: Option<(u32, u32)>,
    /// The process that received it, if it was recorded by the receiver.
    receiver: Option<u32>,
    destination: u32,
    addresses: (IpAddr, IpAddr),
}

#[derive(Debug, Default)]
struct Passage {
    packets: Vec<Arc<Kept>>,
    /// How many more belong to it.
    missing: usize,
}

/// The packets from and to one QPN; those of two devices may have the same.
#[derive(Debug, Default)]
struct History {
    last: VecDeque<Arc<Kept>>,
    episodes: VecDeque<Passage>,
    /// The process and the PSN of the newest request that was sent.
    newest: Option<(u32, Psn)>,
}

impl History {
    fn push(&mut self, kept: &Arc<Kept>) {
        let open = self.episodes.back_mut().filter(|episode| episode.missing > 0);
        match (open, kept.reason) {
            (Some(episode), reason) => {
                episode.packets.push(Arc::clone(kept));
                episode.missing -= 1;
                if reason.is_some() {
                    episode.missing = AFTER.min(LONGEST.saturating_sub(episode.packets.len()));
                }
            }
            (None, Some(_)) => {
                let before = self.last.iter().skip(self.last.len().saturating_sub(BEFORE));
                let packets = before.chain([kept]).cloned().collect();
                if self.episodes.len() == EPISODES {
                    self.episodes.pop_front();
                }
                self.episodes.push_back(Passage { packets, missing: AFTER });
            }
            (None, None) => {}
        }
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(Arc::clone(kept));
    }

    /// Whether the PSN of a request has been used before (IBA 9.7.2: new requests have increasing PSNs).
    fn is_repeated(&mut self, pid: u32, psn: Psn) -> bool {
        let repeated = self.newest.is_some_and(|(process, newest)| {
            process == pid && (-FURTHEST_BACK..=0).contains(&psn.distance(newest))
        });
        if !repeated {
            self.newest = Some((pid, psn));
        }
        repeated
    }
}

/// The histories by QPN.
#[derive(Debug, Default)]
pub(super) struct Histories(HashMap<u32, History>);

impl Histories {
    /// Adds a packet that the process `pid` has recorded.
    pub(super) fn record(&mut self, pid: u32, header: &RecordHeader, bytes: &[u8]) {
        let original = header.original as usize;
        let frame = Frame::ethernet(bytes, original);
        let (Some(packet), Some(addresses)) = (&frame.packet, frame.addresses()) else { return };
        let sender = (!header.received).then_some((pid, header.queue_pair));
        let mut reason = Reason::of(&frame);
        let is_request = packet.bth.opcode.info().is_some_and(|info| info.request);
        // A datagram's PSN belongs to nobody: one QP sends to many.
        let has_sequence = packet.extensions.deth.is_none();
        if let Some((pid, number)) = sender.filter(|_| is_request && has_sequence) {
            if self.history(number).is_repeated(pid, packet.bth.psn) {
                reason = reason.or(Some(Reason::Retransmission));
            }
        }
        let destination = packet.bth.destination.0;
        let kept = Arc::new(Kept {
            time: header.time,
            original,
            frame: bytes[..bytes.len().min(SNAP_LEN)].into(),
            reason,
            sender,
            receiver: header.received.then_some(pid),
            destination,
            addresses,
        });
        self.history(destination).push(&kept);
        if let Some((_, number)) = sender.filter(|(_, number)| *number != destination) {
            self.history(number).push(&kept);
        }
    }

    fn history(&mut self, number: u32) -> &mut History {
        if self.0.len() >= MAX_NUMBERS && !self.0.contains_key(&number) {
            let time = |history: &History| history.last.back().map_or(0, |kept| kept.time);
            let silent = self.0.iter().min_by_key(|(_, history)| time(history));
            if let Some(number) = silent.map(|(number, _)| *number) {
                self.0.remove(&number);
            }
        }
        self.0.entry(number).or_default()
    }

    /// The packets of a queue pair.
    pub(super) fn of(&self, qp: &QpAddress) -> Recent {
        let Some(history) = self.0.get(&qp.number) else { return Recent::default() };
        let is_own = |kept: &Kept| kept.sender == Some((qp.pid, qp.number));
        let sent_from: Vec<IpAddr> =
            history.last.iter().filter(|kept| is_own(kept)).map(|kept| kept.addresses.0).collect();
        // Whether it was sent; `None` if it belongs to a QP of the same number.
        let direction = |kept: &Kept| {
            if is_own(kept) {
                return Some(true);
            }
            let to = Some(kept.addresses.1);
            let is_here = kept.receiver.map_or_else(
                || to == qp.address || sent_from.iter().any(|from| Some(*from) == to),
                |receiver| receiver == qp.pid,
            );
            (kept.destination == qp.number && is_here).then_some(false)
        };
        let views = |packets: &mut dyn Iterator<Item = &Arc<Kept>>| {
            let mut before = None;
            let mut views = Vec::new();
            for kept in packets {
                if let Some(sent) = direction(kept) {
                    views.push(PacketView::new(kept, sent, before));
                    before = Some(kept.time);
                }
            }
            views
        };
        let episodes = history.episodes.iter().filter_map(|episode| {
            let packets = views(&mut episode.packets.iter());
            let reason = packets.iter().find_map(|packet| packet.reason)?;
            Some(Episode { reason, packets })
        });
        let episodes = episodes.collect();
        Recent { packets: views(&mut history.last.iter()), episodes, dropped: 0 }
    }
}

#[cfg(test)]
mod tests;

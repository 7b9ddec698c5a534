//! One direction of a link at work.
//!
//! All that becomes of a frame is decided when it is given to the link, so that one event takes it to the other end.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::ip::Ecn;

use crate::header;
use crate::probability::Probability;
use crate::random::Random;
use crate::settings::{Corruption, LinkConfig};
use crate::statistics::{DropCause, LinkStatistics};
use crate::trace::Faults;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped(DropCause),
    Arrives {
        at: Instant,
        /// When a copy arrives, if there is one.
        copy: Option<Instant>,
    },
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    config: LinkConfig,
    random: Streams,
    /// The state of [`LinkConfig::burst`].
    bad: bool,
    /// Frames that have not left, by when they will have, with their bytes.
    waiting: VecDeque<(Instant, usize)>,
    backlog: usize,
    /// When the last of them will have left, and picoseconds past it: at 100 Gbit/s a small frame takes 7 ns, and
    /// rounding each to whole ones would be a tenth of the bandwidth.
    free: (Instant, u64),
    /// The latest arrival so far of frames that keep their order.
    in_order: Instant,
    /// The latest arrival so far.
    latest: Instant,
    /// What the link did to the last frame, kept for its allocation.
    faults: Faults,
    pub(crate) statistics: LinkStatistics,
}

/// A stream for each kind of decision: which frames are lost does not depend on whether others are duplicated.
#[derive(Debug)]
struct Streams {
    marking: Random,
    jitter: Random,
    loss: Random,
    burst: Random,
    corruption: Random,
    duplication: Random,
    reordering: Random,
}

impl Link {
    pub(crate) fn new(config: LinkConfig, random: &Random) -> Self {
        Self {
            config,
            random: Streams {
                marking: random.stream("marking"),
                jitter: random.stream("jitter"),
                loss: random.stream("loss"),
                burst: random.stream("burst"),
                corruption: random.stream("corruption"),
                duplication: random.stream("duplication"),
                reordering: random.stream("reordering"),
            },
            bad: false,
            waiting: VecDeque::new(),
            backlog: 0,
            free: (Instant::ZERO, 0),
            in_order: Instant::ZERO,
            latest: Instant::ZERO,
            faults: Faults::default(),
            statistics: LinkStatistics::default(),
        }
    }

    /// From now on; what is under way stays as it was decided.
    pub(crate) fn configure(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// Bytes that have not left at `now`.
    pub(crate) fn backlog(&mut self, now: Instant) -> usize {
        while let Some(&(left, bytes)) = self.waiting.front() {
            if left > now {
                break;
            }
            self.waiting.pop_front();
            self.backlog -= bytes;
        }
        self.backlog
    }

    /// When the next frame will have left.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.waiting.front().map(|(left, _)| *left)
    }

    /// Decides what becomes of a frame. What the link does to its bytes is returned, and done by [`apply`].
    pub(crate) fn pass(&mut self, now: Instant, frame: &[u8]) -> (Fate, &Faults) {
        self.faults.clear();
        self.statistics.frames += 1;
        self.statistics.bytes += frame.len() as u64;
        let fate = match self.queue(now, frame).and_then(|left| self.wire(left, frame)) {
            Ok((at, copy)) => Fate::Arrives { at, copy },
            Err(cause) => {
                self.statistics.dropped.add(cause);
                Fate::Dropped(cause)
            }
        };
        (fate, &self.faults)
    }

    /// Waits behind the frames before it: when it has left.
    fn queue(&mut self, now: Instant, frame: &[u8]) -> Result<Instant, DropCause> {
        let backlog = self.backlog(now);
        let with_it = backlog + frame.len();
        if self.config.queue_limit.is_some_and(|limit| with_it > limit) {
            return Err(DropCause::QueueFull);
        }
        if let Some(marking) = self.config.marking {
            // Drawn for every frame that could be marked, so that one stream serves one question.
            let likely = marking.probability(backlog);
            if likely > Probability::NEVER && self.random.marking.chance(likely) {
                // RFC 3168 section 5: only what says that it understands, and once is enough.
                let capable = header::ecn(frame).is_some_and(|ecn| matches!(ecn, Ecn(1 | 2)));
                self.faults.marked = capable;
                self.statistics.marked += u64::from(capable);
            }
        }
        let bytes = frame.len() as u64 + u64::from(self.config.overhead);
        let picoseconds = self.config.bandwidth.picoseconds(bytes);
        if picoseconds == 0 {
            // No bandwidth to wait for, unless for frames from before a change of it.
            return Ok(now.max(self.free.0));
        }
        let (start, past) = if self.free.0 >= now { self.free } else { (now, 0) };
        let end = past.saturating_add(picoseconds);
        self.free = (start + Duration::from_nanos(end / 1000), end % 1000);
        // The last bit has left when the nanosecond is over.
        let left = self.free.0 + Duration::from_nanos(u64::from(self.free.1 > 0));
        self.waiting.push_back((left, frame.len()));
        self.backlog = with_it;
        self.statistics.peak_backlog = self.statistics.peak_backlog.max(with_it);
        Ok(left)
    }

    /// Crosses the wire: when it arrives, and its copy.
    fn wire(
        &mut self,
        left: Instant,
        frame: &[u8],
    ) -> Result<(Instant, Option<Instant>), DropCause> {
        if let Some(burst) = self.config.burst {
            let change = if self.bad { burst.end } else { burst.begin };
            self.bad ^= self.random.burst.chance(change);
            let loss = if self.bad { burst.loss_when_bad } else { burst.loss_when_good };
            if self.random.burst.chance(loss) {
                return Err(DropCause::Burst);
            }
        }
        if self.random.loss.chance(self.config.loss) {
            return Err(DropCause::Lost);
        }
        if let Some(corruption) = self.config.corruption {
            self.corrupt(corruption, frame.len());
        }
        let mut extra = Duration::ZERO;
        if let Some(way) = self.config.reordering {
            if self.random.reordering.chance(way.probability) {
                extra = self.random.reordering.duration(way.least..=way.most);
                self.statistics.delayed += 1;
                self.faults.delayed = extra;
            }
        }
        let at = self.arrival(left, extra);
        let copy = self.random.duplication.chance(self.config.duplication).then(|| {
            self.statistics.duplicated += 1;
            self.faults.duplicated = true;
            self.arrival(left, Duration::ZERO)
        });
        Ok((at, copy))
    }

    /// When a frame arrives that has left at `left` and takes `extra` longer.
    fn arrival(&mut self, left: Instant, extra: Duration) -> Instant {
        let mut at = left + self.config.latency;
        if !self.config.jitter.is_zero() {
            at = at + self.random.jitter.duration(Duration::ZERO..=self.config.jitter);
        }
        if !self.config.jitter_reorders {
            at = at.max(self.in_order);
            self.in_order = at;
        }
        // The longer way is not part of the order: those behind do not wait for it.
        at = at + extra;
        self.statistics.reordered += u64::from(at < self.latest);
        self.latest = self.latest.max(at);
        at
    }

    fn corrupt(&mut self, corruption: Corruption, len: usize) {
        let random = &mut self.random.corruption;
        let bits = u32::try_from(len.saturating_mul(8)).unwrap_or(u32::MAX);
        if bits == 0 || !random.chance(corruption.probability) {
            return;
        }
        // At most half of them, so that drawing a bit that has not flipped yet does not take long.
        let most = corruption.most_bits.clamp(1, bits / 2);
        let count = random.between(1..=u64::from(most)) as usize;
        while self.faults.flipped.len() < count {
            let bit = random.below(u64::from(bits)) as u32;
            if !self.faults.flipped.contains(&bit) {
                self.faults.flipped.push(bit);
            }
        }
        self.statistics.corrupted += 1;
    }
}

/// Does to the bytes what was decided: first the queue's mark, then the wire's damage.
pub(crate) fn apply(faults: &Faults, frame: &mut [u8]) {
    if faults.marked {
        header::mark_congestion(frame);
    }
    for &bit in &faults.flipped {
        if let Some(byte) = frame.get_mut(bit as usize / 8) {
            *byte ^= 0x80 >> (bit % 8);
        }
    }
}

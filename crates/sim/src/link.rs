//! One direction of a link: queue, serialisation and faults.
//!
//! The fate of a frame is decided when it enters the link, so that one event carries it to the other end.

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::ip::Ecn;

use crate::event_log::Faults;
use crate::header;
use crate::probability::Probability;
use crate::random::Random;
use crate::settings::{Corruption, LinkConfig};
use crate::statistics::{DropCause, LinkStatistics};

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Dropped(DropCause),
    Arrives {
        at: Instant,
        /// When the duplicate arrives, if there is one.
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
    /// Frames in the queue: when each will have been sent, and its bytes.
    waiting: VecDeque<(Instant, usize)>,
    backlog: usize,
    /// When the last of them will have been sent, and picoseconds past that: a small frame takes 7 ns at 100 Gbit/s,
    /// and rounding each to whole nanoseconds would lose a tenth of the bandwidth.
    free: (Instant, u64),
    /// The latest arrival so far of frames that keep their order.
    in_order: Instant,
    /// The latest arrival so far.
    latest: Instant,
    /// The faults of the last frame, kept to reuse the allocation.
    faults: Faults,
    pub(crate) statistics: LinkStatistics,
}

/// A random stream per kind of decision: which frames are lost does not depend on whether others are duplicated.
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

    /// Replaces the configuration. Frames in flight keep the fate that was decided.
    pub(crate) fn configure(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// Returns the bytes queued at `now`.
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

    /// Returns when the next frame will have been sent.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.waiting.front().map(|(left, _)| *left)
    }

    /// Decides the fate of a frame. [`apply`] applies the returned faults to its bytes.
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

    /// Queues a frame, and returns when it will have been sent.
    fn queue(&mut self, now: Instant, frame: &[u8]) -> Result<Instant, DropCause> {
        let backlog = self.backlog(now);
        let with_frame = backlog + frame.len();
        if self.config.queue_limit.is_some_and(|limit| with_frame > limit) {
            return Err(DropCause::QueueFull);
        }
        if let Some(marking) = self.config.marking {
            // Drawn for every frame that could be marked, so that this stream is used for nothing else.
            let likely = marking.probability(backlog);
            if likely > Probability::NEVER && self.random.marking.chance(likely) {
                // RFC 3168, section 5: only ECN-capable frames that are not marked yet.
                let capable = header::ecn(frame).is_some_and(|ecn| matches!(ecn, Ecn(1 | 2)));
                self.faults.marked = capable;
                self.statistics.marked += u64::from(capable);
            }
        }
        let bytes = frame.len() as u64 + u64::from(self.config.overhead);
        let picoseconds = self.config.bandwidth.picoseconds(bytes);
        if picoseconds == 0 {
            // Unlimited bandwidth: wait only for frames queued before the configuration changed.
            return Ok(now.max(self.free.0));
        }
        let (start, past) = if self.free.0 >= now { self.free } else { (now, 0) };
        let end = past.saturating_add(picoseconds);
        self.free = (start + Duration::from_nanos(end / 1000), end % 1000);
        // The last bit has been sent when the nanosecond is over.
        let left = self.free.0 + Duration::from_nanos(u64::from(self.free.1 > 0));
        self.waiting.push_back((left, frame.len()));
        self.backlog = with_frame;
        self.statistics.byte_nanoseconds += frame.len() as u128 * left.since(now).as_nanos();
        self.statistics.peak_backlog = self.statistics.peak_backlog.max(with_frame);
        Ok(left)
    }

    /// Applies the faults of the wire, and returns when the frame and its duplicate arrive.
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
        if let Some(delay) = self.config.reordering {
            if self.random.reordering.chance(delay.probability) {
                extra = self.random.reordering.duration(delay.min_delay..=delay.max_delay);
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

    /// Returns when a frame arrives that was sent at `left` and is delayed by `extra`.
    fn arrival(&mut self, left: Instant, extra: Duration) -> Instant {
        let mut at = left + self.config.latency;
        if !self.config.jitter.is_zero() {
            at = at + self.random.jitter.duration(Duration::ZERO..=self.config.jitter);
        }
        if !self.config.jitter_reorders {
            at = at.max(self.in_order);
            self.in_order = at;
        }
        // Extra delay is not part of the order: frames behind do not wait for it.
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
        // At most half of them, so that drawing a bit that has not flipped yet stays quick.
        let most = corruption.max_bits.clamp(1, bits / 2);
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

/// Applies faults to the bytes of a frame: first the queue's mark, then the wire's bit flips.
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

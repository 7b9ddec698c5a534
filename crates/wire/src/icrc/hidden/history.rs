//! What a sender's identifications have been, and so which are to be believed.

#[cfg(test)]
mod tests;

use core::time::Duration;

use super::Identification;

/// Identifications below this come from a batch: a segment's index in one send, which Linux limits
/// to 128 segments (`UDP_MAX_SEGMENTS`).
pub const BATCH_LIMIT: u16 = 128;

/// How far a counter may be ahead of the last one seen: packets lost, or sent to other sockets.
const AHEAD: u16 = 1024;

/// How far behind: reordered on the way, or duplicated.
const BEHIND: u16 = 128;

/// A counter that may be anywhere in this range ahead tells nothing any more.
const STALE: u128 = 1 << 14;

/// Distrust added by an identification that fits nothing. One that fits takes away one.
const SURPRISE: u8 = 2;

/// At this much distrust it is the pattern that is wrong and not the packets.
const DISTRUST_LIMIT: u8 = 8;

/// Identifications in a row that must fit before a sender without a pattern is given one.
const REGAIN: u8 = 64;

/// Whether a solved identification fits its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Plausibility {
    /// It continues what the flow has shown: deliver the packet.
    Expected,
    /// The flow has shown nothing to judge it by: only the 15 bits speak for the packet. Deliver it.
    Unproven,
    /// It is far from all the flow has shown: drop the packet as corrupt, and count it.
    Implausible,
}

/// The identifications one source address has sent to one destination address.
///
/// Feed it every [`Identification`] that [`solve`](super::solve) returns. It knows three kinds of sender:
///
/// - *batches*: "don't fragment" and an identification below [`BATCH_LIMIT`], as Ferroce sends;
/// - *a counter*, one up with each packet, shared by all flows between the two addresses, as Linux
///   gives to rdma_rxe. Keep one history for a pair of addresses, not for each queue pair: other
///   queue pairs' packets would be gaps;
/// - *neither*: after a few surprises nothing is expected any more, so that a sender of random
///   identifications is not shut out.
///
/// A sender that really jumps (a reboot, another kernel behind the address) loses one packet: the
/// next one that fits the new place is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentificationHistory {
    pattern: Pattern,
    /// The last one that did not fit: where a second one like it would prove the sender to be.
    stray: Option<Identification>,
    distrust: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pattern {
    /// Nothing seen yet, or too long ago.
    #[default]
    Unknown,
    Batches,
    /// The highest seen.
    Counter(Identification),
    /// No pattern; the last seen, in case there will be one, and how many more must fit.
    Scattered(Identification, u8),
}

impl IdentificationHistory {
    /// A history of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges the next identification, and remembers it. `elapsed` is the time since the last one.
    pub fn observe(&mut self, seen: Identification, elapsed: Duration) -> Plausibility {
        // Linux lets an idle counter jump by a random number up to the clock ticks that passed, to hide
        // how much went to others (`ip_idents_reserve`): at most 1000 a second, by its configuration.
        let ticks = elapsed.as_millis();
        match self.pattern {
            Pattern::Batches if is_batch(seen) => self.fits(Pattern::Batches),
            // A batch's indices do not age; a counter idle this long may be anywhere.
            Pattern::Counter(_) | Pattern::Scattered(..) if ticks >= STALE => self.start(seen),
            Pattern::Counter(highest) => match step(highest, seen, ticks) {
                Some(Step::Forward) => self.fits(Pattern::Counter(seen)),
                Some(Step::Back) => self.fits(Pattern::Counter(highest)),
                None => self.surprised(seen),
            },
            Pattern::Unknown => self.start(seen),
            Pattern::Batches => self.surprised(seen),
            Pattern::Scattered(last, to_go) => {
                let to_go = if step(last, seen, ticks).is_some() {
                    to_go.saturating_sub(1)
                } else {
                    REGAIN
                };
                if to_go == 0 {
                    self.distrust = 0;
                    return self.fits(pattern_of(seen));
                }
                self.pattern = Pattern::Scattered(seen, to_go);
                Plausibility::Unproven
            }
        }
    }

    fn start(&mut self, seen: Identification) -> Plausibility {
        *self = Self { pattern: pattern_of(seen), stray: None, distrust: 0 };
        // Corrupt packets solve to any identification: one in 1024 would look like a batch's.
        if is_batch(seen) { Plausibility::Expected } else { Plausibility::Unproven }
    }

    fn fits(&mut self, pattern: Pattern) -> Plausibility {
        self.pattern = pattern;
        self.distrust = self.distrust.saturating_sub(1);
        Plausibility::Expected
    }

    fn surprised(&mut self, seen: Identification) -> Plausibility {
        // Two corrupt packets would have to agree by chance to be believed here.
        if self.stray.take().is_some_and(|stray| agree(stray, seen)) {
            self.pattern = pattern_of(seen);
            return Plausibility::Expected;
        }
        self.stray = Some(seen);
        self.distrust += SURPRISE;
        if self.distrust >= DISTRUST_LIMIT {
            self.pattern = Pattern::Scattered(seen, REGAIN);
            self.stray = None;
        }
        Plausibility::Implausible
    }
}

fn is_batch(seen: Identification) -> bool {
    seen.dont_fragment && seen.id < BATCH_LIMIT
}

fn pattern_of(seen: Identification) -> Pattern {
    if is_batch(seen) { Pattern::Batches } else { Pattern::Counter(seen) }
}

/// Whether two surprises come from one sender.
fn agree(stray: Identification, seen: Identification) -> bool {
    is_batch(stray) && is_batch(seen) || step(stray, seen, 0).is_some()
}

enum Step {
    Forward,
    /// Or none at all.
    Back,
}

/// The way from one identification of a counter to another, if it is near. Counters wrap around.
fn step(from: Identification, to: Identification, ticks: u128) -> Option<Step> {
    let ahead = to.id.wrapping_sub(from.id);
    let behind = from.id.wrapping_sub(to.id);
    if from.dont_fragment != to.dont_fragment {
        None
    } else if behind <= BEHIND {
        Some(Step::Back)
    } else if u128::from(ahead) <= u128::from(AHEAD) + ticks {
        Some(Step::Forward)
    } else {
        None
    }
}

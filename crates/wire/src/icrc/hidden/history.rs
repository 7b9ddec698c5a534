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

/// Sequences that one history follows at the same time.
const TRACKS: usize = 4;

/// Distrust added by an identification that fits nothing. One that fits takes away one.
const SURPRISE: u8 = 2;

/// At this much distrust it is the pattern that is wrong and not the packets.
const DISTRUST_LIMIT: u8 = 8;

/// Sequences given up for a newer one before the sender counts as having more than can be followed.
const EVICTION_LIMIT: u8 = 4;

/// Identifications in a row that must fit before a sender without a pattern is given one. Twice as many each time it
/// lost its pattern again, or a sender with long runs from many counters would lose packets at every round.
const REGAIN: u16 = 64;
const REGAIN_LIMIT: u16 = 1 << 14;

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

/// The identifications of one flow, or of all flows from one address to another.
///
/// Feed it every [`Identification`] that [`solve`](super::solve) returns, by [`observe`](Self::observe) or, where a
/// receiver keeps both kinds, by [`observe_flow`]. It knows three kinds of sender:
///
/// - *batches*: "don't fragment" and an identification below [`BATCH_LIMIT`], as Ferroce sends;
/// - *counters*, one up with each packet: one for each pair of addresses, as Linux gives to rdma_rxe, one for each flow,
///   or several behind one address. Up to four sequences are followed at the same time; a new one is adopted with its
///   second packet, so that it costs one packet;
/// - *neither*: after a few surprises nothing is expected any more, so that a sender of random
///   identifications is not shut out.
///
/// A sender that really jumps (a reboot, another kernel behind the address) loses one packet: the
/// next one that fits the new place is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentificationHistory {
    /// What is followed, the most recent first.
    tracks: [Option<Track>; TRACKS],
    /// Set while the sender has no pattern.
    scattered: Option<Scattered>,
    /// The last one that did not fit: where a second one like it would prove the sender to be.
    stray: Option<Identification>,
    distrust: u8,
    evictions: u8,
    /// How often it lost its pattern.
    losses: u8,
    /// When the last one was seen.
    last: Duration,
}

/// One sequence, and when it was seen last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track {
    pattern: Pattern,
    last: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Batches,
    /// The highest seen.
    Counter(Identification),
}

/// No pattern; the last seen, in case there will be one, and how many more must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scattered {
    last: Identification,
    to_go: u16,
}

/// Judges an identification by the history of its own flow (addresses and source port) and by that of all flows between
/// the two addresses: the sender may count for each flow, or for all of them together. One that fits either is expected.
#[inline]
pub fn observe_flow(
    pair: &mut IdentificationHistory,
    flow: &mut IdentificationHistory,
    seen: Identification,
    now: Duration,
) -> Plausibility {
    // Ferroce's own packets, at no cost: indices do not age, and the pair has shown batches too.
    if flow.sends_batches() && is_batch(seen) {
        flow.distrust = flow.distrust.saturating_sub(1);
        return Plausibility::Expected;
    }
    pair.expire(now);
    flow.expire(now);
    if pair.fit(seen, now).is_some() {
        // To the flow alone this may be a jump: other flows took the numbers in between.
        flow.follow(seen, now);
        return pair.observe(seen, now);
    }
    // Counters of the flow's own are kept out of the history of the pair: it could not follow them all.
    let knows = !pair.is_new() && pair.scattered.is_none();
    if knows && (flow.fit(seen, now).is_some() || flow.is_new()) {
        return flow.observe(seen, now);
    }
    if pair.scattered.is_some() && flow.is_new() {
        flow.scatter(seen);
    }
    let (by_flow, by_pair) = (flow.observe(seen, now), pair.observe(seen, now));
    let proven = knows && by_pair == Plausibility::Expected;
    if proven { Plausibility::Expected } else { by_flow }
}

impl IdentificationHistory {
    /// A history of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges the next identification, and remembers it. `now` is the time of a clock that does not go back.
    pub fn observe(&mut self, seen: Identification, now: Duration) -> Plausibility {
        self.expire(now);
        self.last = now;
        if let Some(scattered) = self.scattered {
            return self.regain(scattered, seen, now);
        }
        if let Some((index, pattern)) = self.fit(seen, now) {
            self.set(index, Track { pattern, last: now });
            self.distrust = self.distrust.saturating_sub(1);
            return Plausibility::Expected;
        }
        if self.is_new() {
            self.set(0, Track { pattern: pattern_of(seen), last: now });
            // Corrupt packets solve to any identification: one in 1024 would look like a batch's.
            let batch = is_batch(seen);
            return if batch { Plausibility::Expected } else { Plausibility::Unproven };
        }
        self.surprised(seen, now)
    }

    /// Whether the last one seen was a batch's.
    #[inline]
    fn sends_batches(&self) -> bool {
        self.tracks[0].is_some_and(|track| track.pattern == Pattern::Batches)
    }

    /// Whether there is nothing to judge by yet, or no more.
    fn is_new(&self) -> bool {
        self.scattered.is_none() && self.tracks.iter().all(Option::is_none)
    }

    /// Forgets counters that may be anywhere by now. Indices in a batch do not age.
    fn expire(&mut self, now: Duration) {
        let stale = |since: Duration| now.saturating_sub(since).as_millis() >= STALE;
        if self.scattered.is_some() && stale(self.last) {
            *self = Self::default();
        }
        for track in &mut self.tracks {
            if track.is_some_and(|one| one.pattern != Pattern::Batches && stale(one.last)) {
                *track = None;
            }
        }
    }

    /// The track that an identification continues, and what becomes of its pattern. Of several the nearest.
    fn fit(&self, seen: Identification, now: Duration) -> Option<(usize, Pattern)> {
        let fits = self.tracks.iter().enumerate().filter_map(|(index, track)| {
            let track = track.as_ref()?;
            let (distance, pattern) = match track.pattern {
                Pattern::Batches => (0, is_batch(seen).then_some(Pattern::Batches)?),
                Pattern::Counter(highest) => {
                    // Linux lets an idle counter jump by a random number up to the clock ticks that passed, to hide
                    // how much went to others (`ip_idents_reserve`): at most 1000 a second, by its configuration.
                    let ticks = now.saturating_sub(track.last).as_millis();
                    match step(highest, seen, ticks)? {
                        Step::Forward(distance) => (distance, Pattern::Counter(seen)),
                        Step::Back(distance) => (distance, Pattern::Counter(highest)),
                    }
                }
            };
            Some((distance, index, pattern))
        });
        fits.min_by_key(|&(distance, ..)| distance).map(|(_, index, pattern)| (index, pattern))
    }

    /// Replaces the track at `index`, and makes it the most recent.
    fn set(&mut self, index: usize, track: Track) {
        self.tracks[..=index].rotate_right(1);
        self.tracks[0] = Some(track);
    }

    /// Continues here, whatever was before: something else has shown that the identification is right.
    fn follow(&mut self, seen: Identification, now: Duration) {
        if self.scattered.is_some() {
            return;
        }
        let (index, pattern) = self.fit(seen, now).unwrap_or((0, pattern_of(seen)));
        self.set(index, Track { pattern, last: now });
        self.last = now;
    }

    fn surprised(&mut self, seen: Identification, now: Duration) -> Plausibility {
        // Two corrupt packets would have to agree by chance to be believed here.
        if self.stray.take().is_some_and(|stray| agree(stray, seen)) {
            let free = self.tracks.iter().position(Option::is_none);
            self.evictions += u8::from(free.is_none());
            if self.evictions >= EVICTION_LIMIT {
                self.scatter(seen);
                return Plausibility::Unproven;
            }
            let index = free.unwrap_or(TRACKS - 1);
            self.set(index, Track { pattern: pattern_of(seen), last: now });
            return Plausibility::Expected;
        }
        self.stray = Some(seen);
        self.distrust += SURPRISE;
        if self.distrust >= DISTRUST_LIMIT {
            self.scatter(seen);
        }
        Plausibility::Implausible
    }

    fn scatter(&mut self, seen: Identification) {
        let losses = self.losses.saturating_add(1);
        let scattered = Some(Scattered { last: seen, to_go: regain_after(losses) });
        *self = Self { scattered, losses, last: self.last, ..Self::default() };
    }

    /// Whether a sender without a pattern has taken to one.
    fn regain(
        &mut self,
        Scattered { last, to_go }: Scattered,
        seen: Identification,
        now: Duration,
    ) -> Plausibility {
        let fits = is_batch(last) && is_batch(seen) || step(last, seen, 0).is_some();
        let to_go = if fits { to_go - 1 } else { regain_after(self.losses) };
        if to_go > 0 {
            self.scattered = Some(Scattered { last: seen, to_go });
            return Plausibility::Unproven;
        }
        self.scattered = None;
        self.set(0, Track { pattern: pattern_of(seen), last: now });
        Plausibility::Expected
    }
}

/// Identifications that must fit in a row, after the pattern was lost so many times.
fn regain_after(losses: u8) -> u16 {
    let doubled = u32::from(losses.saturating_sub(1));
    REGAIN
        .checked_shl(doubled)
        .filter(|&count| count >= REGAIN)
        .unwrap_or(REGAIN_LIMIT)
        .min(REGAIN_LIMIT)
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

/// How far it is.
enum Step {
    Forward(u16),
    /// Or none at all.
    Back(u16),
}

/// The way from one identification of a counter to another, if it is near. Counters wrap around.
fn step(from: Identification, to: Identification, ticks: u128) -> Option<Step> {
    let ahead = to.id.wrapping_sub(from.id);
    let behind = from.id.wrapping_sub(to.id);
    if from.dont_fragment != to.dont_fragment {
        None
    } else if behind <= BEHIND {
        Some(Step::Back(behind))
    } else if u128::from(ahead) <= u128::from(AHEAD) + ticks {
        Some(Step::Forward(ahead))
    } else {
        None
    }
}

//! Plausibility check of solved identifications against those of earlier packets.

#[cfg(test)]
mod tests;

use core::time::Duration;

use super::Identification;

/// Identifications below this are segment indices within one send, which Linux limits to 128 segments
/// (`UDP_MAX_SEGMENTS`).
pub const BATCH_LIMIT: u16 = 128;

/// Limit of a counter's forward step: packets were lost or sent to other sockets.
const MAX_FORWARD: u16 = 1024;

/// Limit of a counter's backward step: packets were reordered or duplicated.
const MAX_BACKWARD: u16 = 128;

/// Milliseconds after which a counter is forgotten: it may have advanced by as many.
const STALE_AFTER_MS: u128 = 1 << 14;

/// Sequences that one history tracks at the same time.
const MAX_TRACKS: usize = 4;

/// Distrust added by an identification that matches no track; a matching one subtracts 1.
const MISMATCH_PENALTY: u8 = 2;

/// Distrust at which the tracks are given up.
const MAX_DISTRUST: u8 = 8;

/// Evicted sequences after which the sender is treated as having no pattern.
const MAX_EVICTIONS: u8 = 4;

/// Consecutive matching identifications before a sender without a pattern is tracked again. Doubles each time the pattern
/// is lost; otherwise a sender with long runs from many counters would lose packets repeatedly.
const REGAIN_MATCHES: u16 = 64;
const MAX_REGAIN_MATCHES: u16 = 1 << 14;

/// Plausibility of a solved identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Plausibility {
    /// It matches the history of the flow: deliver the packet.
    Expected,
    /// There is no history to compare with: only the 15-bit check applies. Deliver the packet.
    Unproven,
    /// It does not match the history: drop the packet as corrupt and count it.
    Implausible,
}

/// History of the identifications of one flow, or of all flows from one address to another.
///
/// Pass it every [`Identification`] that [`solve`](super::solve) returns, by [`observe`](Self::observe) or, with both kinds
/// of history, by [`observe_flow`]. It distinguishes three kinds of sender:
///
/// - *batches*: "don't fragment" and an identification below [`BATCH_LIMIT`] that starts again at 0, as Ferroce sends;
/// - *counters*, incremented per packet: one per pair of addresses, as Linux does for rdma_rxe, one per flow, or several
///   behind one address. Up to four sequences are tracked at the same time; a new one is adopted with its second packet,
///   so it costs one packet;
/// - *neither*: after a few mismatches the history accepts everything, so that a sender of random identifications is not
///   locked out.
///
/// A sender that jumps (a reboot, another kernel behind the address) loses one packet: the next one that matches the new
/// sequence is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentificationHistory {
    /// Tracked sequences, the most recent first.
    tracks: [Option<Track>; MAX_TRACKS],
    /// Set while the sender has no pattern.
    unpatterned: Option<Unpatterned>,
    /// The last identification that matched no track: a second one near it starts a track.
    last_mismatch: Option<Identification>,
    distrust: u8,
    evictions: u8,
    /// Number of times the pattern was lost.
    losses: u8,
    /// Time of the last identification.
    last: Duration,
}

/// One tracked sequence and the time of its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track {
    pattern: Pattern,
    last: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Below [`BATCH_LIMIT`] up to now, the highest seen: the first batch, or a counter that will exceed the limit.
    BatchOrCounter(Identification),
    /// Started again at 0, which a counter does once in 65,536 packets.
    Batches,
    /// The highest identification seen.
    Counter(Identification),
}

/// A sender without a pattern: the last identification, and the number of further matches required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unpatterned {
    last: Identification,
    matches_left: u16,
}

/// Checks an identification against the history of its flow (addresses and source port) and that of all flows between the
/// two addresses, because senders may count per flow or per address pair. A match with either is expected.
#[inline]
pub fn observe_flow(
    pair: &mut IdentificationHistory,
    flow: &mut IdentificationHistory,
    seen: Identification,
    now: Duration,
) -> Plausibility {
    // Fast path for Ferroce's packets: batch indices do not age, and the pair has seen batches too.
    if flow.sends_batches() && is_batch(seen) {
        flow.distrust = flow.distrust.saturating_sub(1);
        return Plausibility::Expected;
    }
    pair.expire(now);
    flow.expire(now);
    if pair.fit(seen, now).is_some() {
        // For the flow alone this may be a jump: other flows used the numbers in between.
        flow.follow(seen, now);
        return pair.observe(seen, now);
    }
    // Per-flow counters are kept out of the pair's history, which could not track all of them.
    let pair_has_pattern = !pair.is_new() && pair.unpatterned.is_none();
    if pair_has_pattern && (flow.fit(seen, now).is_some() || flow.is_new()) {
        return flow.observe(seen, now);
    }
    if pair.unpatterned.is_some() && flow.is_new() {
        flow.drop_pattern(seen);
    }
    let (by_flow, by_pair) = (flow.observe(seen, now), pair.observe(seen, now));
    let proven = pair_has_pattern && by_pair == Plausibility::Expected;
    if proven { Plausibility::Expected } else { by_flow }
}

impl IdentificationHistory {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next identification and records it. `now` is the time of a monotonic clock.
    pub fn observe(&mut self, seen: Identification, now: Duration) -> Plausibility {
        self.expire(now);
        self.last = now;
        if let Some(unpatterned) = self.unpatterned {
            return self.regain(unpatterned, seen, now);
        }
        if let Some((index, pattern)) = self.fit(seen, now) {
            self.set(index, Track { pattern, last: now });
            self.distrust = self.distrust.saturating_sub(1);
            return Plausibility::Expected;
        }
        if self.is_new() {
            self.set(0, Track { pattern: pattern_of(seen), last: now });
            // Corrupt packets solve to arbitrary identifications: one in 1024 looks like a batch index.
            let batch = is_batch(seen);
            return if batch { Plausibility::Expected } else { Plausibility::Unproven };
        }
        self.mismatch(seen, now)
    }

    /// Whether the last identification was an index of a sender of batches.
    #[inline]
    fn sends_batches(&self) -> bool {
        self.tracks[0].is_some_and(|track| track.pattern == Pattern::Batches)
    }

    /// Whether there is no history to compare with.
    fn is_new(&self) -> bool {
        self.unpatterned.is_none() && self.tracks.iter().all(Option::is_none)
    }

    /// Forgets stale counters. Batch indices do not age.
    fn expire(&mut self, now: Duration) {
        let stale = |since: Duration| now.saturating_sub(since).as_millis() >= STALE_AFTER_MS;
        if self.unpatterned.is_some() && stale(self.last) {
            *self = Self::default();
        }
        for track in &mut self.tracks {
            if track.is_some_and(|one| one.pattern != Pattern::Batches && stale(one.last)) {
                *track = None;
            }
        }
    }

    /// The nearest track that an identification continues, with its updated pattern.
    fn fit(&self, seen: Identification, now: Duration) -> Option<(usize, Pattern)> {
        let fits = self.tracks.iter().enumerate().filter_map(|(index, track)| {
            let track = track.as_ref()?;
            let (distance, pattern) = match track.pattern {
                Pattern::Batches => (0, is_batch(seen).then_some(Pattern::Batches)?),
                Pattern::BatchOrCounter(_) if is_batch(seen) && seen.id == 0 => {
                    (0, Pattern::Batches)
                }
                Pattern::BatchOrCounter(highest) if is_batch(seen) => {
                    let highest = if seen.id > highest.id { seen } else { highest };
                    (0, Pattern::BatchOrCounter(highest))
                }
                Pattern::BatchOrCounter(highest) | Pattern::Counter(highest) => {
                    // After an idle time, Linux advances a counter by a random number up to the clock ticks that passed
                    // (`ip_idents_reserve`): at most 1000 per second, depending on its configuration.
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

    /// Replaces the track at `index` and makes it the most recent.
    fn set(&mut self, index: usize, track: Track) {
        self.tracks[..=index].rotate_right(1);
        self.tracks[0] = Some(track);
    }

    /// Adopts an identification that another history has verified.
    fn follow(&mut self, seen: Identification, now: Duration) {
        if self.unpatterned.is_some() {
            return;
        }
        let (index, pattern) = self.fit(seen, now).unwrap_or((0, pattern_of(seen)));
        self.set(index, Track { pattern, last: now });
        self.last = now;
    }

    fn mismatch(&mut self, seen: Identification, now: Duration) -> Plausibility {
        // Two corrupt packets would have to match by chance to be accepted here.
        if self.last_mismatch.take().is_some_and(|last_mismatch| agree(last_mismatch, seen)) {
            let free = self.tracks.iter().position(Option::is_none);
            self.evictions += u8::from(free.is_none());
            if self.evictions >= MAX_EVICTIONS {
                self.drop_pattern(seen);
                return Plausibility::Unproven;
            }
            let index = free.unwrap_or(MAX_TRACKS - 1);
            self.set(index, Track { pattern: pattern_of(seen), last: now });
            return Plausibility::Expected;
        }
        self.last_mismatch = Some(seen);
        self.distrust += MISMATCH_PENALTY;
        if self.distrust >= MAX_DISTRUST {
            self.drop_pattern(seen);
        }
        Plausibility::Implausible
    }

    fn drop_pattern(&mut self, seen: Identification) {
        let losses = self.losses.saturating_add(1);
        let unpatterned = Some(Unpatterned { last: seen, matches_left: regain_after(losses) });
        *self = Self { unpatterned, losses, last: self.last, ..Self::default() };
    }

    /// Processes an identification of a sender without a pattern, which may have one again.
    fn regain(
        &mut self,
        Unpatterned { last, matches_left }: Unpatterned,
        seen: Identification,
        now: Duration,
    ) -> Plausibility {
        let fits = is_batch(last) && is_batch(seen) || step(last, seen, 0).is_some();
        let matches_left = if fits { matches_left - 1 } else { regain_after(self.losses) };
        if matches_left > 0 {
            self.unpatterned = Some(Unpatterned { last: seen, matches_left });
            return Plausibility::Unproven;
        }
        self.unpatterned = None;
        self.set(0, Track { pattern: pattern_of(seen), last: now });
        Plausibility::Expected
    }
}

/// Consecutive matches required after the pattern was lost `losses` times.
fn regain_after(losses: u8) -> u16 {
    let doubled = u32::from(losses.saturating_sub(1));
    REGAIN_MATCHES
        .checked_shl(doubled)
        .filter(|&count| count >= REGAIN_MATCHES)
        .unwrap_or(MAX_REGAIN_MATCHES)
        .min(MAX_REGAIN_MATCHES)
}

fn is_batch(seen: Identification) -> bool {
    seen.dont_fragment && seen.id < BATCH_LIMIT
}

fn pattern_of(seen: Identification) -> Pattern {
    if is_batch(seen) { Pattern::BatchOrCounter(seen) } else { Pattern::Counter(seen) }
}

/// Whether two mismatches belong to the same sequence.
fn agree(last_mismatch: Identification, seen: Identification) -> bool {
    is_batch(last_mismatch) && is_batch(seen) || step(last_mismatch, seen, 0).is_some()
}

/// Distance between two identifications of a counter.
enum Step {
    Forward(u16),
    /// Backward, or equal.
    Back(u16),
}

/// The step between two identifications of a counter, if within the limits. Counters wrap around.
fn step(from: Identification, to: Identification, ticks: u128) -> Option<Step> {
    let ahead = to.id.wrapping_sub(from.id);
    let behind = from.id.wrapping_sub(to.id);
    if from.dont_fragment != to.dont_fragment {
        None
    } else if behind <= MAX_BACKWARD {
        Some(Step::Back(behind))
    } else if u128::from(ahead) <= u128::from(MAX_FORWARD) + ticks {
        Some(Step::Forward(ahead))
    } else {
        None
    }
}

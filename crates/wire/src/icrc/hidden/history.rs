//! Plausibility check of solved identifications against those of earlier packets.

#[cfg(test)]
mod corruption_tests;
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

/// Packets that may be lost from a batch, or late, without the next one being taken for a corrupt one.
const MAX_GAP: u16 = 16;

/// Milliseconds after which a counter is forgotten: it may have advanced by as many.
const STALE_AFTER_MS: u128 = 1 << 14;

/// Sequences that one history tracks at the same time.
const MAX_TRACKS: usize = 4;

/// Distrust added by an identification that matches no track; a matching one subtracts 1.
const MISMATCH_PENALTY: u8 = 2;

/// Distrust at which the tracks are given up.
const MAX_DISTRUST: u8 = 8;

/// Doubt added by an identification that cannot belong to the sender, and the doubt at which its pattern is given up; a
/// matching identification subtracts 1, one of a batch all of it.
const CONTRADICTION: u8 = 8;
const MAX_DOUBT: u8 = 4 * CONTRADICTION;

/// Evicted sequences after which the sender is treated as having no pattern.
const MAX_EVICTIONS: u8 = 4;

/// For a sender without a pattern: packets with the same "don't fragment" flag after which another flag is implausible, and
/// the number of packets with the other one after which it is accepted.
const SAME_FLAG: u8 = 16;
const OTHER_FLAG: u8 = 4;

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
/// - *batches*: "don't fragment" and an identification below [`BATCH_LIMIT`] that starts again at 0, as Ferroce sends; each
///   is 0 or the last plus 1, up to some lost or late packets;
/// - *counters*, incremented per packet: one per pair of addresses, as Linux does for rdma_rxe, one per flow, or several
///   behind one address. Up to four sequences are tracked at the same time; a new one is adopted with its second packet,
///   so it costs one packet;
/// - *neither*: after a few mismatches the history accepts everything, so that a sender of random identifications is not
///   locked out.
///
/// A sender that jumps (a reboot, another kernel behind the address) loses one packet: the next one that matches the new
/// sequence is accepted. A sequence with another "don't fragment" flag than the tracked ones is never adopted, and
/// [`observe_flow`] adopts none beside batches: a corruption that always has the same effect (a single bit, for example)
/// gives packets with the same wrong identification, and the second would be accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentificationHistory {
    /// Tracked sequences, the most recent first.
    tracks: [Option<Track>; MAX_TRACKS],
    /// Set while the sender has no pattern.
    unpatterned: Option<Unpatterned>,
    /// The last identification that matched no track: a second one near it starts a track.
    last_mismatch: Option<Identification>,
    distrust: u8,
    /// Whether the packets are still those of the sender that is tracked.
    doubt: u8,
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
    Batches(Batches),
    /// The highest identification seen.
    Counter(Identification),
}

impl Pattern {
    /// The "don't fragment" flag of its packets.
    fn flag(self) -> bool {
        match self {
            Self::Batches(_) => true,
            Self::BatchOrCounter(highest) | Self::Counter(highest) => highest.dont_fragment,
        }
    }
}

/// A sender of batches: the index that continues the last one, and the same for the batches before it, of which some
/// packets may be late: the longest of them, minus one for each batch since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batches {
    next: u16,
    before: u16,
}

impl Batches {
    /// The state after the next packet; `None` if its identification is not plausible.
    #[inline]
    fn after(self, seen: Identification) -> Option<Self> {
        if !is_batch(seen) {
            return None;
        }
        if seen.id == self.next {
            return Some(Self { next: seen.id + 1, ..self });
        }
        if seen.id == 0 {
            return Some(Self { next: 1, before: self.next.max(self.before.saturating_sub(1)) });
        }
        self.after_gap(seen.id)
    }

    /// Like [`after`](Self::after), for an index that does not continue a batch: packets were lost or overtaken.
    #[cold]
    fn after_gap(self, id: u16) -> Option<Self> {
        let near = |index: u16| index.abs_diff(id) <= MAX_GAP;
        if near(self.next) {
            return Some(Self { next: self.next.max(id + 1), ..self });
        }
        // The start of a batch was lost.
        if id <= MAX_GAP && self.next > MAX_GAP {
            return Some(Self { next: id + 1, before: self.next });
        }
        (id <= MAX_GAP || near(self.before)).then_some(self)
    }
}

/// A sender without a pattern: the last identification, the number of further matches required, and the number of
/// packets in a row with the same flag, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unpatterned {
    last: Identification,
    matches_left: u16,
    same_flag: u8,
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
    // Fast path for Ferroce's packets: batch indices do not age, and nobody else sends from the port of a Ferroce sender.
    if let Some(Track { pattern: Pattern::Batches(batches), .. }) = &mut flow.tracks[0] {
        let Some(after) = batches.after(seen) else { return flow.contradict(seen) };
        *batches = after;
        flow.doubt = 0;
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
    if flow.is_new() && pair.contradicts(seen) {
        return flow.mismatch(seen, now);
    }
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
            self.doubt = self.doubt.saturating_sub(1);
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

    /// Whether there is no history to compare with.
    fn is_new(&self) -> bool {
        self.unpatterned.is_none() && self.tracks.iter().all(Option::is_none)
    }

    /// Whether the "don't fragment" flag is not that of the tracked sequences, which all have the same.
    fn contradicts(&self, seen: Identification) -> bool {
        let track = self.tracks.iter().flatten().next();
        track.is_some_and(|track| track.pattern.flag() != seen.dont_fragment)
    }

    /// Forgets stale counters. Batch indices do not age.
    fn expire(&mut self, now: Duration) {
        let stale = |since: Duration| now.saturating_sub(since).as_millis() >= STALE_AFTER_MS;
        if self.unpatterned.is_some() && stale(self.last) {
            *self = Self::default();
        }
        let ages = |one: Track| !matches!(one.pattern, Pattern::Batches(_));
        for track in &mut self.tracks {
            track.take_if(|one| ages(*one) && stale(one.last));
        }
    }

    /// The nearest track that an identification continues, with its updated pattern.
    fn fit(&self, seen: Identification, now: Duration) -> Option<(usize, Pattern)> {
        let fits = self.tracks.iter().enumerate().filter_map(|(index, track)| {
            let track = track.as_ref()?;
            let (distance, pattern) = match track.pattern {
                Pattern::Batches(batches) => (0, Pattern::Batches(batches.after(seen)?)),
                Pattern::BatchOrCounter(highest) if is_batch(seen) && seen.id == 0 => {
                    (0, Pattern::Batches(Batches { next: 1, before: highest.id + 1 }))
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
        self.doubt = self.doubt.saturating_sub(1);
        self.last = now;
    }

    fn mismatch(&mut self, seen: Identification, now: Duration) -> Plausibility {
        if self.contradicts(seen) {
            return self.contradict(seen);
        }
        // Two corrupt packets would have to match by chance to be accepted here.
        if self.last_mismatch.take().is_some_and(|last| step(last, seen, 0).is_some()) {
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

    /// Refuses an identification that cannot belong to the sender. After several the pattern is dropped: the sender is another
    /// one, or sends packets of both kinds.
    #[cold]
    fn contradict(&mut self, seen: Identification) -> Plausibility {
        self.doubt += CONTRADICTION;
        if self.doubt >= MAX_DOUBT {
            self.drop_pattern(seen);
        }
        Plausibility::Implausible
    }

    fn drop_pattern(&mut self, seen: Identification) {
        let losses = self.losses.saturating_add(1);
        let matches_left = regain_after(losses);
        let unpatterned = Some(Unpatterned { last: seen, matches_left, same_flag: 0 });
        *self = Self { unpatterned, losses, last: self.last, ..Self::default() };
    }

    /// Processes an identification of a sender without a pattern, which may have one again.
    fn regain(
        &mut self,
        Unpatterned { last, matches_left, same_flag }: Unpatterned,
        seen: Identification,
        now: Duration,
    ) -> Plausibility {
        let is_same = last.dont_fragment == seen.dont_fragment;
        if !is_same && same_flag >= SAME_FLAG {
            self.unpatterned = Some(Unpatterned { last, matches_left, same_flag: same_flag - 1 });
            return Plausibility::Implausible;
        }
        let same_flag = if is_same { (same_flag + 1).min(SAME_FLAG + OTHER_FLAG - 1) } else { 0 };
        let fits = step(last, seen, 0).is_some();
        let matches_left = if fits { matches_left - 1 } else { regain_after(self.losses) };
        if matches_left > 0 {
            self.unpatterned = Some(Unpatterned { last: seen, matches_left, same_flag });
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

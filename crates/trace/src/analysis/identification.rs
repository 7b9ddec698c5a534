//! IPv4 identifications as a witness: where a sender counts them up, they tell the order in which packets were sent,
//! and so a copy from a packet sent again, and a packet that was is_reordered from one that was lost.

/// Senders that batch packets through one socket number them within the batch, from 0: such small numbers tell
/// nothing.
const MIN_COUNTED_ID: u16 = 128;

/// How far apart neighbours may be, counted: the sender's other connections count too.
const MAX_STEP: u16 = 4096;

/// The identifications of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identifications {
    newest: Option<u16>,
    increments: u32,
    violations: u32,
}

impl Identifications {
    /// A packet that is new in the order of PSNs.
    pub(super) fn new_packet(&mut self, identification: Option<u16>) {
        if let (Some(newest), Some(now)) = (self.newest, identification) {
            let step = now.wrapping_sub(newest) as i16;
            if step == 0 || step.unsigned_abs() > MAX_STEP {
                // The same for all packets, or at random: not counted up.
                self.violations += 1;
            } else if step > 0 {
                self.increments += 1;
            }
        }
        self.any_packet(identification);
    }

    /// Any packet of the sender.
    pub(super) fn any_packet(&mut self, identification: Option<u16>) {
        match (self.newest, identification) {
            (Some(newest), Some(now)) if is_behind(now, newest) => {}
            _ => self.newest = identification,
        }
    }

    /// Whether this sender counts up, as far as is known; in doubt at the start, yes.
    fn is_informative(&self, identification: u16) -> bool {
        identification >= MIN_COUNTED_ID && self.violations * 8 <= self.increments
    }

    /// Whether two sightings of a PSN are one packet: `None` where identifications do not tell.
    pub(super) fn same_packet(&self, first: Option<u16>, second: Option<u16>) -> Option<bool> {
        let (first, second) = (first?, second?);
        self.is_informative(second).then_some(first == second)
    }

    /// Whether packets sent later came earlier: `None` where identifications do not tell.
    pub(super) fn is_reordered(&self, identification: Option<u16>) -> Option<bool> {
        let (now, newest) = (identification?, self.newest?);
        (self.is_informative(now) && self.increments > 0).then_some(is_behind(now, newest))
    }
}

/// Half the circle either way.
fn is_behind(one: u16, other: u16) -> bool {
    (one.wrapping_sub(other) as i16) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ids: impl IntoIterator<Item = u16>) -> Identifications {
        let mut identifications = Identifications::default();
        ids.into_iter().for_each(|id| identifications.new_packet(Some(id)));
        identifications
    }

    #[test]
    fn a_counting_sender_tells() {
        let ids = after([0xfffe, 0xffff, 0x0100, 0x0101]);
        assert_eq!(ids.same_packet(Some(0x100), Some(0x100)), Some(true));
        assert_eq!(ids.same_packet(Some(0x100), Some(0x101)), Some(false));
        assert_eq!(ids.is_reordered(Some(0xffff)), Some(true));
        assert_eq!(ids.is_reordered(Some(0x0102)), Some(false));
    }

    #[test]
    fn batches_constants_and_none_tell_nothing() {
        let batches = after((0..20).chain(0..30).chain(0..2));
        assert_eq!(batches.same_packet(Some(1), Some(1)), None);
        assert_eq!(batches.is_reordered(Some(0)), None);
        let constant = after([0x4444; 5]);
        assert_eq!(constant.same_packet(Some(0x4444), Some(0x4444)), None);
        assert_eq!(Identifications::default().is_reordered(None), None);
    }

    #[test]
    fn the_very_first_packet_doubled_is_told() {
        assert_eq!(after([0x4444]).same_packet(Some(0x4444), Some(0x4444)), Some(true));
    }
}

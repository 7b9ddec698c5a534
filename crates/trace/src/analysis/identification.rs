//! IPv4 identifications as evidence of transmit order: if a sender increments them per packet, they distinguish a
//! duplicate from a retransmission, and a reordered packet from a lost one.

/// Smallest identification that is used: senders with segmentation offload number packets within a batch, from 0.
const MIN_COUNTED_ID: u16 = 128;

/// Largest increment between consecutive packets of a counting sender, whose other connections share the counter.
const MAX_STEP: u16 = 4096;

/// The identifications of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identifications {
    newest: Option<u16>,
    increments: u32,
    violations: u32,
}

impl Identifications {
    /// Records a packet with a new PSN.
    pub(super) fn new_packet(&mut self, identification: Option<u16>) {
        if let (Some(newest), Some(now)) = (self.newest, identification) {
            let step = now.wrapping_sub(newest) as i16;
            if step == 0 || step.unsigned_abs() > MAX_STEP {
                // Constant or random: not a counter.
                self.violations += 1;
            } else if step > 0 {
                self.increments += 1;
            }
        }
        self.any_packet(identification);
    }

    /// Records any packet of the sender.
    pub(super) fn any_packet(&mut self, identification: Option<u16>) {
        match (self.newest, identification) {
            (Some(newest), Some(now)) if is_behind(now, newest) => {}
            _ => self.newest = identification,
        }
    }

    /// Whether `identification` can be used: large enough, and the sender has mostly incremented so far.
    fn is_informative(&self, identification: u16) -> bool {
        identification >= MIN_COUNTED_ID && self.violations * 8 <= self.increments
    }

    /// Whether two packets of one PSN are the same transmission; `None` if identifications cannot decide.
    pub(super) fn same_packet(&self, first: Option<u16>, second: Option<u16>) -> Option<bool> {
        let (first, second) = (first?, second?);
        self.is_informative(second).then_some(first == second)
    }

    /// Whether packets sent later were seen earlier; `None` if identifications cannot decide.
    pub(super) fn is_reordered(&self, identification: Option<u16>) -> Option<bool> {
        let (now, newest) = (identification?, self.newest?);
        (self.is_informative(now) && self.increments > 0).then_some(is_behind(now, newest))
    }
}

/// Compares modulo 2^16.
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
    fn an_incrementing_sender_is_informative() {
        let ids = after([0xfffe, 0xffff, 0x0100, 0x0101]);
        assert_eq!(ids.same_packet(Some(0x100), Some(0x100)), Some(true));
        assert_eq!(ids.same_packet(Some(0x100), Some(0x101)), Some(false));
        assert_eq!(ids.is_reordered(Some(0xffff)), Some(true));
        assert_eq!(ids.is_reordered(Some(0x0102)), Some(false));
    }

    #[test]
    fn batched_constant_and_absent_identifications_decide_nothing() {
        let batches = after((0..20).chain(0..30).chain(0..2));
        assert_eq!(batches.same_packet(Some(1), Some(1)), None);
        assert_eq!(batches.is_reordered(Some(0)), None);
        let constant = after([0x4444; 5]);
        assert_eq!(constant.same_packet(Some(0x4444), Some(0x4444)), None);
        assert_eq!(Identifications::default().is_reordered(None), None);
    }

    #[test]
    fn detects_a_duplicate_of_the_very_first_packet() {
        assert_eq!(after([0x4444]).same_packet(Some(0x4444), Some(0x4444)), Some(true));
    }
}

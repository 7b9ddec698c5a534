//! A network that fails on purpose: packets that arrive are lost, doubled or put behind others before the device looks
//! at them. For tests of programs: they see what a bad network would do to them, on any machine and without privilege.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use ferroce_sys::{RxDatagram, RxInfo};

/// How often, in a million packets, and where the numbers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lost.
    pub loss: u32,
    /// Doubled.
    pub duplication: u32,
    /// Put behind up to eight others.
    pub reordering: u32,
    /// The same seed makes the same choices for the same packets.
    pub seed: u64,
}

/// One in this many.
const ALL: f64 = 1e6;

/// Why a text names no faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFaults(String);

impl fmt::Display for BadFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not understood: write, for example, loss=1%,duplication=0.5%,reordering=2%,seed=7",
            self.0
        )
    }
}

impl std::error::Error for BadFaults {}

impl FromStr for Faults {
    type Err = BadFaults;

    fn from_str(text: &str) -> Result<Self, BadFaults> {
        let mut faults = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let bad = || BadFaults(part.into());
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            if name == "seed" {
                faults.seed = value.parse().map_err(|_| bad())?;
                continue;
            }
            let percent: f64 = value.trim_end_matches('%').parse().map_err(|_| bad())?;
            if !(0.0..=100.0).contains(&percent) {
                return Err(bad());
            }
            let rate = (percent / 100.0 * ALL) as u32;
            match name {
                "loss" => faults.loss = rate,
                "duplication" => faults.duplication = rate,
                "reordering" => faults.reordering = rate,
                _ => return Err(bad()),
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |rate: u32| f64::from(rate) / ALL * 100.0;
        write!(
            f,
            "loss={}%,duplication={}%,reordering={}%,seed={}",
            percent(self.loss),
            percent(self.duplication),
            percent(self.reordering),
            self.seed
        )
    }
}

/// The failing network.
#[derive(Debug)]
pub(crate) struct Failing {
    faults: Faults,
    random: u64,
    /// Packets that were put back, and how many others come before each.
    late: VecDeque<(u32, RxInfo, Box<[u8]>)>,
}

impl Failing {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, random: faults.seed ^ 0x9e37_79b9_7f4a_7c15, late: VecDeque::new() }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, rate: u32) -> bool {
        rate > 0 && self.next() % (ALL as u64) < u64::from(rate)
    }

    /// What becomes of a message: each packet of it by itself, as often as it arrives.
    pub(crate) fn pass(
        &mut self,
        message: &RxDatagram<'_>,
        mut deliver: impl FnMut(&RxDatagram<'_>),
    ) {
        for packet in message.packets() {
            let info = RxInfo { length: packet.len(), segment: packet.len(), ..*message.info };
            for _ in 0..1 + u32::from(self.chance(self.faults.duplication)) {
                if self.chance(self.faults.loss) {
                    continue;
                }
                if self.chance(self.faults.reordering) {
                    let behind = 1 + (self.next() % 8) as u32;
                    self.late.push_back((behind, info, packet.into()));
                } else {
                    deliver(&RxDatagram { info: &info, data: packet });
                }
            }
            self.late.iter_mut().for_each(|late| late.0 = late.0.saturating_sub(1));
            while self.late.front().is_some_and(|late| late.0 == 0) {
                if let Some((_, info, packet)) = self.late.pop_front() {
                    deliver(&RxDatagram { info: &info, data: &packet });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Faults;

    #[test]
    fn texts_are_read_and_written() {
        let faults: Faults = "loss=1%,duplication=0.5%,seed=7".parse().unwrap();
        assert_eq!((faults.loss, faults.duplication, faults.seed), (10_000, 5_000, 7));
        assert_eq!(faults.to_string().parse(), Ok(faults));
        for bad in ["loss", "loss=x", "loss=101%", "weather=1%"] {
            let error = bad.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("for example"), "{error}");
        }
    }
}

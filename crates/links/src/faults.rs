//! Fault injection: received packets are lost, duplicated, reordered or corrupted before the device processes them.
//!
//! Programs can be tested against a bad network on any host and without privilege.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use ferroce_sys::{RxDatagram, RxInfo};

/// Rates of injected faults, in packets per million.
///
/// Written as `loss=1%,duplication=0.5%,reordering=2%,corruption=0.1%,seed=7`; each part is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Packets that are lost.
    pub loss: u32,
    /// Packets that are duplicated.
    pub duplication: u32,
    /// Packets that are delivered after up to eight later ones.
    pub reordering: u32,
    /// Packets of which a bit is inverted, behind the kernel's check of the UDP checksum, which would detect it. Their ICRC
    /// is wrong, so they count as lost, but see `docs/icrc.md` for the first packets of a flow over IPv4.
    pub corruption: u32,
    /// Seed of the random numbers: the same seed makes the same choices for the same packets.
    pub seed: u64,
}

impl Faults {
    /// How faults are written, with an example.
    pub const SYNTAX: &str =
        "write, for example, loss=1%,duplication=0.5%,reordering=2%,corruption=0.1%,seed=7";
}

/// The unit of the rates.
const MILLION: f64 = 1e6;

/// A text that does not describe [`Faults`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{}\" is not understood: {}", .0, Faults::SYNTAX)]
pub struct BadFaults(String);

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
            let rate = (percent / 100.0 * MILLION) as u32;
            match name {
                "loss" => faults.loss = rate,
                "duplication" => faults.duplication = rate,
                "reordering" => faults.reordering = rate,
                "corruption" => faults.corruption = rate,
                _ => return Err(bad()),
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |rate: u32| f64::from(rate) / MILLION * 100.0;
        write!(
            f,
            "loss={}%,duplication={}%,reordering={}%,corruption={}%,seed={}",
            percent(self.loss),
            percent(self.duplication),
            percent(self.reordering),
            percent(self.corruption),
            self.seed
        )
    }
}

/// Injects faults into the datagrams of a device.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: Faults,
    random: u64,
    /// The faults injected into this datagram.
    injected: u64,
    /// Delayed packets, each with the number of packets to deliver before it.
    delayed: VecDeque<(u32, RxInfo, Box<[u8]>)>,
}

impl FaultInjector {
    pub(crate) fn new(faults: Faults) -> Self {
        let (random, delayed) = (faults.seed ^ 0x9e37_79b9_7f4a_7c15, VecDeque::new());
        Self { faults, random, injected: 0, delayed }
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
        let happens = rate > 0 && self.next() % (MILLION as u64) < u64::from(rate);
        self.injected += u64::from(happens);
        happens
    }

    /// Applies the faults to each packet of a received datagram, and delivers what is left. Returns the number of faults.
    pub(crate) fn inject(
        &mut self,
        datagram: &RxDatagram<'_>,
        mut deliver: impl FnMut(&RxDatagram<'_>),
    ) -> u64 {
        for packet in datagram.packets() {
            let info = RxInfo { length: packet.len(), segment: packet.len(), ..*datagram.info };
            for _ in 0..1 + u32::from(self.chance(self.faults.duplication)) {
                if self.chance(self.faults.loss) {
                    continue;
                }
                if self.chance(self.faults.corruption) {
                    let mut corrupt = packet.to_vec();
                    let bit = self.next() as usize % (8 * corrupt.len().max(1));
                    if let Some(byte) = corrupt.get_mut(bit / 8) {
                        *byte ^= 1 << (bit % 8);
                    }
                    deliver(&RxDatagram { info: &info, data: &corrupt });
                } else if self.chance(self.faults.reordering) {
                    let behind = 1 + (self.next() % 8) as u32;
                    self.delayed.push_back((behind, info, packet.into()));
                } else {
                    deliver(&RxDatagram { info: &info, data: packet });
                }
            }
            self.delayed.iter_mut().for_each(|delayed| delayed.0 = delayed.0.saturating_sub(1));
            while self.delayed.front().is_some_and(|delayed| delayed.0 == 0) {
                if let Some((_, info, packet)) = self.delayed.pop_front() {
                    deliver(&RxDatagram { info: &info, data: &packet });
                }
            }
        }
        std::mem::take(&mut self.injected)
    }
}

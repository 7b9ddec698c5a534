//! How many packets a capture says it lost.

/// The counters of one section's interfaces, and the sum of those of earlier sections.
#[derive(Debug, Default)]
pub(super) struct DropCounters {
    earlier: u64,
    /// By interface.
    interfaces: Vec<Counters>,
}

/// What is said of one interface.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// By its latest statistics block, since the capture started.
    stated: u64,
    /// On its packets, each since the packet before.
    counted: u64,
}

impl DropCounters {
    /// An interface was described.
    pub(super) fn add_interface(&mut self) {
        self.interfaces.push(Counters::default());
    }

    /// A section starts: interfaces are counted anew.
    pub(super) fn start_section(&mut self) {
        self.earlier = self.total();
        self.interfaces.clear();
    }

    /// A packet says that so many were lost before it.
    pub(super) fn count(&mut self, interface: u32, dropped: u64) {
        if let Some(counters) = self.interfaces.get_mut(interface as usize) {
            counters.counted = counters.counted.saturating_add(dropped);
        }
    }

    /// A statistics block says that so many were lost until now.
    pub(super) fn state(&mut self, interface: u32, dropped: u64) {
        if let Some(counters) = self.interfaces.get_mut(interface as usize) {
            counters.stated = counters.stated.max(dropped);
        }
    }

    /// All together. A statistics block counts those before packets as well, so of both the larger is the number.
    pub(super) fn total(&self) -> u64 {
        let of = |counters: &Counters| counters.stated.max(counters.counted);
        self.interfaces.iter().map(of).fold(self.earlier, u64::saturating_add)
    }
}

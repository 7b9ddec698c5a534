//! Counters of packets lost by the capture.

/// Counters of the current section's interfaces, and the sum of earlier sections.
#[derive(Debug, Default)]
pub(super) struct DropCounters {
    earlier: u64,
    /// By interface.
    interfaces: Vec<Counters>,
}

/// Drop counters of one interface.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// From its latest statistics block: total since the start of the capture.
    from_statistics: u64,
    /// Sum of the counts on its packets, each since the previous packet.
    from_packets: u64,
}

impl DropCounters {
    /// Adds an interface.
    pub(super) fn add_interface(&mut self) {
        self.interfaces.push(Counters::default());
    }

    /// Starts a section, whose interfaces are from_packets from zero.
    pub(super) fn start_section(&mut self) {
        self.earlier = self.total();
        self.interfaces.clear();
    }

    /// Adds the packets lost before a packet.
    pub(super) fn count(&mut self, interface: u32, dropped: u64) {
        if let Some(counters) = self.interfaces.get_mut(interface as usize) {
            counters.from_packets = counters.from_packets.saturating_add(dropped);
        }
    }

    /// Records the total of a statistics block.
    pub(super) fn state(&mut self, interface: u32, dropped: u64) {
        if let Some(counters) = self.interfaces.get_mut(interface as usize) {
            counters.from_statistics = counters.from_statistics.max(dropped);
        }
    }

    /// The total. Statistics blocks include the packets from_packets on records, so the larger number of each interface counts.
    pub(super) fn total(&self) -> u64 {
        let of = |counters: &Counters| counters.from_statistics.max(counters.from_packets);
        self.interfaces.iter().map(of).fold(self.earlier, u64::saturating_add)
    }
}

//! Which links a pass reads, and how many datagrams it asks each for.

use ferroce_device::tuning::rx::{MAX_BURST, QUIET_AFTER, QUIET_LINK_INTERVAL};
use ferroce_proto::time::Instant;

/// Which links a pass receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    All,
    /// Those that had packets lately. Pollers make many passes, so most of them skip quiet links.
    Lively,
    /// The one whose socket is readable.
    One(usize),
}

/// The receive rate of a link, which predicts the next receive call.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Consecutive receive calls that returned nothing.
    quiet: u32,
    /// Datagrams to prepare buffers for.
    burst: usize,
}

/// What the passes so far have read.
#[derive(Debug)]
pub(crate) struct LinkReads {
    paces: Vec<Pace>,
    /// The time of the pass before quiet links were read last.
    quiet_links_read_at: Instant,
    /// This pass skips quiet links.
    skips_quiet_links: bool,
    /// The link that received a packet last; `None` if it came through a ring.
    active: Option<usize>,
}

impl LinkReads {
    pub(crate) fn new(links: usize) -> Self {
        Self {
            paces: vec![Pace::default(); links],
            quiet_links_read_at: Instant::ZERO,
            skips_quiet_links: false,
            active: Some(0),
        }
    }

    /// Begins a pass. `now`: the time of the pass before.
    #[inline]
    pub(crate) fn begin(&mut self, links: Links, now: Instant) {
        self.skips_quiet_links = links == Links::Lively
            && now.nanos_since(self.quiet_links_read_at) < QUIET_LINK_INTERVAL;
        if !self.skips_quiet_links {
            self.quiet_links_read_at = now;
        }
    }

    /// How many datagrams the pass asks a link for; `None` if it skips the link. Preparing for many costs more, and most
    /// calls return one.
    #[inline]
    pub(crate) fn most(&self, links: Links, link: usize) -> Option<usize> {
        let pace = self.paces[link];
        let is_skipped = match links {
            Links::One(only) => link != only,
            _ => self.skips_quiet_links && pace.quiet > QUIET_AFTER && Some(link) != self.active,
        };
        (!is_skipped).then(|| pace.burst.max(1))
    }

    /// A link that was asked for `most` datagrams returned this many. Returns whether it may have more.
    #[inline]
    pub(crate) fn received(&mut self, link: usize, count: usize, most: usize) -> bool {
        let pace = &mut self.paces[link];
        if count == 0 {
            *pace = Pace { quiet: pace.quiet.saturating_add(1), burst: 1 };
            return false;
        }
        let burst = if count == most { (most * 2).min(MAX_BURST) } else { most };
        *pace = Pace { quiet: 0, burst };
        self.active = Some(link);
        count == most
    }

    /// Packets came through a ring.
    #[inline]
    pub(crate) fn received_from_rings(&mut self) {
        self.active = None;
    }

    /// Whether the last packet came through a ring.
    #[inline]
    pub(crate) fn rings_are_active(&self) -> bool {
        self.active.is_none()
    }
}

#[cfg(test)]
mod tests;

//! Transport counters, named as in the `hw_counters` of Linux drivers.

use alloc::vec::Vec;

use crate::reason::Reason;

macro_rules! counters {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// Number of occurrences of each event.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $( $(#[$doc])+ pub $name: u64, )+
        }

        impl Counters {
            const NONE: Self = Self { $( $name: 0 ),+ };

            /// Adds the counts of `other`.
            pub fn add(&mut self, other: &Self) {
                $( self.$name += other.$name; )+
            }

            /// The values, in the order of [`Counters::iter`].
            pub fn values(&self) -> [u64; [$( stringify!($name) ),+].len()] {
                [$( self.$name ),+]
            }

            /// Iterates over names and values.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name) ),+].into_iter()
            }
        }
    };
}

counters! {
    /// Responder: duplicates of executed requests.
    duplicate_request,
    /// Responder: requests behind a gap in the PSNs.
    out_of_sequence,
    /// Responder: requests with a PSN that the requester cannot have sent: before the connection's first PSN, more
    /// than 2^16 from the expected one, or of a READ or atomic that was not executed under it. A few are packets
    /// delayed in the network; many indicate a peer or an attacker that guesses PSNs. (No Linux counter has this
    /// name.)
    out_of_window_request,
    /// Requester: NAKs for a PSN sequence error, within the retry limit.
    packet_seq_err,
    /// Requester: gaps in READ and atomic responses that caused a retransmission, within the retry limit.
    implied_nak_seq_err,
    /// Requester: RNR NAKs, within the retry limit.
    rnr_nak_retry_err,
    /// Requester: expiries of the ACK timer, within the retry limit.
    local_ack_timeout_err,
    /// Requester: packets sent again, also as probes. (The name is that of Linux's `efa` driver.)
    retrans_pkts,
    /// Notification point: CNPs sent.
    np_cnp_sent,
    /// Notification point: received packets marked "congestion experienced".
    np_ecn_marked_roce_packets,
    /// Reaction point: CNPs that were passed to rate control.
    rp_cnp_handled,
}

/// Reasons kept until they are taken: a burst of packets that are all refused needs no more.
const MAX_REASONS: usize = 4;

/// Counts and reasons that nobody has taken yet. Usually there are none: what is counted is rare.
#[derive(Debug, Default)]
pub(crate) struct Uncollected {
    counters: Counters,
    reasons: Vec<Reason>,
    some: bool,
}

impl Uncollected {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self { counters: Counters::NONE, reasons: Vec::new(), some: false }
    }

    /// The counters, to add to.
    pub(crate) fn get_mut(&mut self) -> &mut Counters {
        self.some = true;
        &mut self.counters
    }

    /// Adds a reason, and returns its number for a completion.
    #[cold]
    pub(crate) fn report(&mut self, reason: Reason) -> u16 {
        if self.reasons.len() < MAX_REASONS {
            self.reasons.push(reason);
            self.some = true;
        }
        reason.number()
    }

    /// Moves the reasons to `all`, when the counts have been taken.
    pub(crate) fn move_reasons_to(&mut self, all: &mut Vec<Reason>) {
        all.append(&mut self.reasons);
        self.some = false;
    }

    /// Whether there are any.
    #[inline]
    pub(crate) const fn is_some(&self) -> bool {
        self.some
    }

    /// Moves them to `total`.
    pub(crate) fn move_to(&mut self, total: &mut Counters) {
        if core::mem::take(&mut self.some) {
            total.add(&core::mem::take(&mut self.counters));
        }
    }
}

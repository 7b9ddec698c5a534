//! Events of the transports that operators watch, under the names that Linux drivers give them in `hw_counters`.

macro_rules! counters {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// How often each event happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $( $(#[$doc])+ pub $name: u64, )+
        }

        impl Counters {
            /// Adds the counts of another.
            pub fn add(&mut self, other: &Self) {
                $( self.$name += other.$name; )+
            }

            /// All of them with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name) ),+].into_iter()
            }
        }
    };
}

counters! {
    /// Responder: requests that had been executed before.
    duplicate_request,
    /// Responder: requests behind a gap in the PSNs.
    out_of_sequence,
    /// Responder: requests with a PSN that no requester in sequence sends: before the first of the connection, more than
    /// 2^22 from the expected one, or of a READ or atomic that was not executed under it. A few are packets that the
    /// network delayed; many are a peer, or a stranger, that guesses. (Not a name of Linux's.)
    out_of_window_request,
    /// Requester: NAKs for a PSN sequence error, within the retry limit.
    packet_seq_err,
    /// Requester: gaps in READ and atomic responses that made it go back, within the retry limit.
    implied_nak_seq_err,
    /// Requester: RNR NAKs, within the retry limit.
    rnr_nak_retry_err,
    /// Requester: expiries of the ACK timer, within the retry limit.
    local_ack_timeout_err,
    /// Notification point: CNPs sent.
    np_cnp_sent,
    /// Notification point: packets that came marked "congestion experienced".
    np_ecn_marked_roce_packets,
    /// Reaction point: CNPs that rate control was told of.
    rp_cnp_handled,
}

impl Counters {
    /// Takes what was counted since the last call.
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }
}

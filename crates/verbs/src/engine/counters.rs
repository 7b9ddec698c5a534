//! The counters of a device.

use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::counters as proto;
use ferroce_sys::Error;

macro_rules! counters {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// Counts since the device was opened, which never decrease, and last error numbers.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( $(#[$doc])+ pub(crate) $name: AtomicU64, )+
        }

        /// The counters of a device since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $( $(#[$doc])+ pub $name: u64, )+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Statistics {
                Statistics { $( $name: self.$name.load(Ordering::Relaxed), )+ }
            }
        }

        impl Statistics {
            /// All counters with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name) ),+].into_iter()
            }

            /// Sets the counter of this name.
            pub(crate) fn set(&mut self, name: &str, count: u64) {
                $( if name == stringify!($name) { self.$name = count; } )+
            }
        }
    };
}

counters! {
    /// Packets received for this process.
    packets_in,
    /// Their bytes, from the BTH to the ICRC.
    bytes_in,
    /// Packets sent.
    packets_out,
    /// Their bytes, from the BTH to the ICRC.
    bytes_out,
    /// Packets received through memory that another process shares, of all received.
    local_packets_in,
    /// Packets sent through such memory, of all sent.
    local_packets_out,
    /// Packets that are not valid RoCE packets.
    malformed,
    /// Packets with a wrong ICRC.
    bad_icrc,
    /// Packets for another partition.
    bad_partition,
    /// Packets for a QP that does not exist, or from a host that is not its peer.
    no_queue_pair,
    /// Packets received by another process and forwarded to this one.
    forwarded_in,
    /// Packets forwarded to another process.
    forwarded_out,
    /// Packets that could not be forwarded.
    forward_failed,
    /// Packets that the kernel refused to send.
    send_failed,
    /// The error number (`errno`) of the last of them.
    send_errno,
    /// Receive calls that the kernel refused.
    receive_failed,
    /// The error number (`errno`) of the last of them.
    receive_errno,
    /// Completions lost because the CQ was full.
    overruns,
    /// Responder: requests that had been executed before.
    duplicate_request,
    /// Responder: requests behind a gap in the PSNs.
    out_of_sequence,
    /// Responder: requests with a PSN that no requester in sequence sends.
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
    /// Notification point: packets received with "congestion experienced".
    np_ecn_marked_roce_packets,
    /// Reaction point: CNPs that reduced the rate.
    rp_cnp_handled,
}

impl Statistics {
    /// The counters that Linux drivers show in `hw_counters`, by their names there.
    pub fn hw_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names: Vec<_> = proto::Counters::default().iter().map(|(name, _)| name).collect();
        self.iter().filter(move |(name, _)| names.contains(name))
    }
}

impl Counters {
    /// The bytes received and sent.
    pub(super) fn bytes(&self) -> u64 {
        let [received, sent] = [&self.bytes_in, &self.bytes_out];
        received.load(Ordering::Relaxed).wrapping_add(sent.load(Ordering::Relaxed))
    }

    /// Adds the counts of a QP.
    pub(crate) fn add(&self, counted: &proto::Counters) {
        let proto::Counters {
            duplicate_request,
            out_of_sequence,
            out_of_window_request,
            packet_seq_err,
            implied_nak_seq_err,
            rnr_nak_retry_err,
            local_ack_timeout_err,
            np_cnp_sent,
            np_ecn_marked_roce_packets,
            rp_cnp_handled,
        } = *counted;
        for (counter, more) in [
            (&self.duplicate_request, duplicate_request),
            (&self.out_of_sequence, out_of_sequence),
            (&self.out_of_window_request, out_of_window_request),
            (&self.packet_seq_err, packet_seq_err),
            (&self.implied_nak_seq_err, implied_nak_seq_err),
            (&self.rnr_nak_retry_err, rnr_nak_retry_err),
            (&self.local_ack_timeout_err, local_ack_timeout_err),
            (&self.np_cnp_sent, np_cnp_sent),
            (&self.np_ecn_marked_roce_packets, np_ecn_marked_roce_packets),
            (&self.rp_cnp_handled, rp_cnp_handled),
        ] {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }
}

/// Counts a failed system call, with the number of its error.
pub(super) fn count_error(counter: &AtomicU64, number: &AtomicU64, error: &Error) {
    count(counter);
    number.store(error.errno().unsigned_abs().into(), Ordering::Relaxed);
}

/// Increments a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

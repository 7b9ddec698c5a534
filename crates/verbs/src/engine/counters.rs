//! What a device has counted.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// Counts since the device was opened. All of them grow only.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $( $(#[$doc])+ pub(crate) $name: AtomicU64, )+
        }

        /// What a device has counted since it was opened.
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
            /// All of them with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name) ),+].into_iter()
            }
        }
    };
}

counters! {
    /// Packets that arrived and were for us.
    packets_in,
    /// Their bytes, from the BTH to the ICRC.
    bytes_in,
    /// Packets sent.
    packets_out,
    /// Their bytes, from the BTH to the ICRC.
    bytes_out,
    /// Packets that are no RoCE packets.
    malformed,
    /// Packets whose ICRC is wrong.
    bad_icrc,
    /// Packets of another partition.
    bad_partition,
    /// Packets for a queue pair that does not exist, or from a host that it does not know.
    no_queue_pair,
    /// Packets that another process got and handed over.
    forwarded_in,
    /// Packets that were another process's, and handed over.
    forwarded_out,
    /// Packets that could not be handed over.
    forward_failed,
    /// Packets that the system refused to send.
    send_failed,
    /// Completions that found no room in their queue.
    overruns,
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

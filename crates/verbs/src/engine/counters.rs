//! The counters of a device.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::counters as proto;
use ferroce_stat::layout::{self, Kind};
use ferroce_stat::{Page, Slot};
use ferroce_sys::Error;

use crate::device::Device;
use crate::sync::lock;

/// The counters of a device since it was opened, which never decrease, and last error numbers. They are in memory that other
/// processes may read: see [`ferroce_stat`].
#[derive(Debug)]
pub(crate) struct Counters {
    slot: Slot,
    /// Several drivers count packets.
    is_shared: bool,
    /// The bytes that went through sockets.
    socket_bytes: AtomicU64,
    /// Several threads may set the last reason.
    reason: Mutex<()>,
}

macro_rules! counters {
    ($( $(#[$doc:meta])+ $name:ident, )+) => {
        /// The positions of the counters.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Index {
            $( $name ),+
        }

        /// The counters of a device since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $( $(#[$doc])+ pub $name: u64, )+
        }

        impl Counters {
            $(
                $(#[$doc])+
                #[inline]
                pub(crate) fn $name(&self) -> &AtomicU64 {
                    self.slot.word(layout::Device::Counters as usize + Index::$name as usize)
                }
            )+

            pub(crate) fn read(&self) -> Statistics {
                Statistics { $( $name: self.$name().load(Ordering::Relaxed), )+ }
            }
        }

        impl Statistics {
            /// The counters that Linux drivers show in `hw_counters`, by their names there.
            pub fn hw_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
                self.iter().skip(Index::duplicate_request as usize)
            }

            /// All counters with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$( (stringify!($name), self.$name) ),+].into_iter()
            }
        }
    };
}

ferroce_stat::device_counters!(counters);

impl Counters {
    /// Publishes a device with this number of shards.
    pub(crate) fn of(device: &Device, active: bool, shards: usize) -> Self {
        let slot = Page::of_process().add(Kind::Device, |slot| {
            slot.set_text(layout::Device::Name as usize, 4, device.name());
            let gid = device.gids().first().map(|entry| entry.gid.0).unwrap_or_default();
            slot.set_gid(layout::Device::Gid as usize, gid);
            slot.set(layout::Device::Active as usize, active.into());
            let mtu = device.mtu().ok().and_then(|mtu| mtu.bytes()).unwrap_or(0);
            slot.set(layout::Device::Mtu as usize, mtu as u64);
        });
        let (socket_bytes, reason) = (AtomicU64::new(0), Mutex::default());
        Self { slot, is_shared: shards > 1, socket_bytes, reason }
    }

    /// Publishes the state of the port.
    pub(super) fn set_active(&self, active: bool) {
        self.slot.set(layout::Device::Active as usize, active.into());
    }

    /// The number of PDs.
    pub(crate) fn pds(&self) -> &AtomicU64 {
        self.slot.word(layout::Device::Pds as usize)
    }

    /// The number of memory windows.
    pub(crate) fn windows(&self) -> &AtomicU64 {
        self.slot.word(layout::Device::Windows as usize)
    }

    /// Publishes why the device refused or dropped something that belongs to no QP.
    pub(crate) fn set_reason(&self, number: u16, text: &str) {
        let _guard = lock(&self.reason);
        self.slot.set_reason(layout::Device::LastReason as usize, number, text);
    }

    /// Publishes an object of the device; `fill` sets its fields.
    pub(crate) fn publish(&self, kind: Kind, fill: impl FnOnce(&Slot)) -> Slot {
        let device = self.slot.position();
        self.slot.page().add(kind, |slot| {
            // All objects have this in the same word.
            slot.set(layout::QueuePair::Device as usize, device);
            fill(slot);
        })
    }

    /// Counts packets received, through a ring if they are `local`, otherwise from a socket. For the owner of the driver.
    #[inline]
    pub(super) fn received(&self, packets: u32, bytes: usize, local: bool) {
        let counters = [self.packets_in(), self.bytes_in(), self.local_packets_in()];
        self.count_packets(counters, packets, bytes, local);
    }

    /// As [`Counters::received`], for packets sent.
    #[inline]
    pub(super) fn sent(&self, packets: u32, bytes: usize, local: bool) {
        let counters = [self.packets_out(), self.bytes_out(), self.local_packets_out()];
        self.count_packets(counters, packets, bytes, local);
    }

    #[inline]
    fn count_packets(&self, counters: [&AtomicU64; 3], packets: u32, bytes: usize, local: bool) {
        self.add_owned(counters[0], packets.into());
        self.add_owned(counters[1], bytes as u64);
        if local {
            self.add_owned(counters[2], packets.into());
        } else {
            self.add_owned(&self.socket_bytes, bytes as u64);
        }
    }

    /// Adds to a counter that only drivers change. With one driver, whose owner is one thread at a time, the addition need not
    /// be atomic.
    #[inline]
    fn add_owned(&self, counter: &AtomicU64, more: u64) {
        if self.is_shared {
            counter.fetch_add(more, Ordering::Relaxed);
        } else {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }

    /// The bytes that were received from sockets and sent through them.
    pub(crate) fn socket_bytes(&self) -> u64 {
        self.socket_bytes.load(Ordering::Relaxed)
    }

    /// Adds the counts of a QP: those of the transports are the last of a device.
    pub(crate) fn add(&self, counted: &proto::Counters) {
        let first = layout::Device::Counters as usize + Index::duplicate_request as usize;
        for (position, more) in counted.values().into_iter().enumerate() {
            if more > 0 {
                self.slot.word(first + position).fetch_add(more, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_orders_of_the_counters_agree() {
        let names: Vec<_> = proto::Counters::default().iter().map(|(name, _)| name).collect();
        assert_eq!(names, layout::TRANSPORT_COUNTERS);
        let names: Vec<_> = Statistics::default().iter().map(|(name, _)| name).collect();
        assert_eq!(names, layout::DEVICE_COUNTERS);
        let first = Index::duplicate_request as usize;
        assert_eq!(names[first..], layout::TRANSPORT_COUNTERS);
        let counted =
            proto::Counters { retrans_pkts: 7, rp_cnp_handled: 9, ..proto::Counters::default() };
        let device = Device::named("lo").unwrap();
        let counters = Counters::of(&device, true, 1);
        counters.add(&counted);
        counters.add(&counted);
        let read = counters.read();
        assert_eq!((read.retrans_pkts, read.rp_cnp_handled, read.np_cnp_sent), (14, 18, 0));
        let position = names.iter().position(|name| *name == "retrans_pkts").unwrap();
        let word = counters.slot.word(layout::Device::Counters as usize + position);
        assert_eq!(word.load(Ordering::Relaxed), 14);
    }
}

//! All interleavings of an access to a region with the end of that region, by loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_proto::memory::{AccessFlags, Accessor, Denied, Memory, PdId, RemoteRange};
use ferroce_wire::number::{Qpn, VirtualAddress};
use loom::thread;

use crate::watch::mark_unmapped;
use crate::{AddressRange, Keys, Registry};

const BY: Accessor = Accessor { pd: PdId(7), queue_pair: Qpn(0x11) };
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);
const LENGTH: usize = 64;

thread_local! {
    /// The registered memory, one for each test: they run beside each other, and all threads of a model are one for the system.
    /// It is no part of the model: an access copies between two of its steps.
    static WORDS: &'static [AtomicU64; LENGTH / 8] = Box::leak(Box::default());
}

fn words() -> &'static [AtomicU64; LENGTH / 8] {
    WORDS.with(|words| *words)
}

fn address() -> usize {
    words().as_ptr().expose_provenance()
}

fn register(registry: &Registry) -> Keys {
    // SAFETY: atomics that are never freed.
    let range = unsafe { AddressRange::new(address(), LENGTH) };
    registry.register(BY.pd, range, VirtualAddress(0), ACCESS).unwrap()
}

fn all_of(keys: Keys) -> RemoteRange {
    RemoteRange { key: keys.rkey, address: VirtualAddress(0), length: LENGTH as u32 }
}

/// One thread accesses a region, and another makes the memory inaccessible: both end, an access succeeds as a whole or not at
/// all, and none happens after `end` has returned.
fn model(
    access: fn(&Registry, Keys) -> Result<(), Denied>,
    end: fn(&Registry, Keys),
    denied: &'static [Denied],
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let registry = Arc::new(Registry::new(1));
        let keys = register(&registry);
        let other = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || access(&registry, keys))
        };
        end(&registry, keys);
        words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let result = other.join().unwrap();
        assert!(result.is_ok_and(|()| true) || denied.contains(&result.unwrap_err()), "{result:?}");
        assert!(words().iter().all(|word| word.load(Ordering::Relaxed) == 0), "a late access");
        assert!(denied.contains(&access(&registry, keys).unwrap_err()));
        let _ = registry.deregister(keys.lkey);
    });
}

fn check(registry: &Registry, keys: Keys) -> Result<(), Denied> {
    { registry }.check_remote(BY, all_of(keys), ACCESS)
}

fn write(mut registry: &Registry, keys: Keys) -> Result<(), Denied> {
    registry.write_remote(BY, all_of(keys), &[0xab; LENGTH])
}

fn unmap(_: &Registry, _: Keys) {
    mark_unmapped(address(), LENGTH);
}

fn deregister(registry: &Registry, keys: Keys) {
    registry.deregister(keys.lkey).unwrap();
}

/// The thread that unmaps waits for accesses while it holds the lock of the list, so the check must not take it.
#[test]
fn a_check_during_unmapping_ends() {
    model(check, unmap, &[Denied::Bounds]);
}

#[test]
fn no_write_follows_unmapping() {
    model(write, unmap, &[Denied::Bounds]);
}

#[test]
fn no_write_follows_deregistering() {
    model(write, deregister, &[Denied::Key]);
}

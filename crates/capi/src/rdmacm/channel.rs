//! Event channels, and taking events from them.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Arc, Mutex};

use ferroce::cm::EventChannel;

use crate::abi::rdmacm::{rdma_cm_event, rdma_cm_id, rdma_event_channel};
use crate::acknowledge::Unacknowledged;
use crate::entry::{self, Errno, Next, Result};
use crate::fd::{is_blocking, make_blocking, until_readable, wait_readable};
use crate::handle::{Handle, Shown, handle};
use crate::rdmacm::id::IdHandle;
use crate::rdmacm::{devices, event};
use crate::sync::lock;

/// The program's channels by address. They are looked up, not dereferenced, because programs such as rping destroy a
/// channel while another thread waits on it or is about to.
static CHANNELS: Mutex<BTreeMap<usize, EventChannel>> = Mutex::new(BTreeMap::new());

/// The channels destroyed last, the latest first. Threads that are about to wait on one find it here.
static DESTROYED: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
const MAX_DESTROYED: usize = 64;

/// The channel behind a program's pointer. Its descriptor stays open while the result exists.
pub(super) fn of(channel: *mut rdma_event_channel) -> Result<EventChannel> {
    let found = lock(&CHANNELS).get(&channel.addr()).cloned();
    found.ok_or(Errno(if channel.is_null() { libc::EINVAL } else { libc::EBADF }))
}

/// `RDMA_MAX_PRIVATE_DATA`: the maximum length of private data.
pub(super) const PRIVATE_DATA: usize = 256;

/// An event, owned by the program until it acknowledges it.
#[repr(C)]
pub(super) struct EventHandle {
    pub(super) shown: Shown<rdma_cm_event>,
    pub(super) private_data: [u8; PRIVATE_DATA],
    /// Counts the event for the objects it refers to, which are not destroyed before: the id, and the multicast
    /// membership.
    pub(super) about: Arc<Unacknowledged>,
    pub(super) group: Option<Arc<Unacknowledged>>,
}

handle!(EventHandle, shown, rdma_cm_event);

pub(super) fn create() -> Result<*mut rdma_event_channel> {
    let channel = EventChannel::from_env()?;
    let fd = make_blocking(channel.as_fd())?;
    let pointer = Box::into_raw(Box::new(rdma_event_channel { fd }));
    lock(&CHANNELS).insert(pointer.addr(), channel);
    Ok(pointer)
}

/// # Safety
/// The program's channel, or null, which is not used again.
pub(super) unsafe fn destroy(channel: *mut rdma_event_channel) {
    let Some(known) = lock(&CHANNELS).remove(&channel.addr()) else { return };
    if is_blocking(known.as_fd().as_raw_fd()) {
        let mut destroyed = lock(&DESTROYED);
        destroyed.push_front(channel.addr());
        destroyed.truncate(MAX_DESTROYED);
    }
    // SAFETY: as the caller promises; it was allocated as a box.
    drop(unsafe { Box::from_raw(channel) });
}

pub(crate) unsafe extern "C" fn create_event_channel() -> *mut rdma_event_channel {
    entry::pointer(create)
}

pub(crate) unsafe extern "C" fn destroy_event_channel(channel: *mut rdma_event_channel) {
    entry::nothing(|| {
        // SAFETY: the program's channel.
        unsafe { destroy(channel) };
        Ok(())
    });
}

/// A thread blocked on a destroyed channel never returns, as in rdma-core. A thread that calls just after the
/// destruction is treated alike: in rdma-core, destruction takes so long that this does not happen.
fn block_on_destroyed(channel: *mut rdma_event_channel) {
    while lock(&DESTROYED).contains(&channel.addr()) {
        // SAFETY: the call takes no arguments; it returns after a signal's handler.
        unsafe { libc::pause() };
    }
}

/// Takes an event, if there is one.
fn try_next(channel: &EventChannel) -> Result<Option<*mut rdma_cm_event>> {
    while let Some(found) = channel.try_event()? {
        // The id may be destroyed, or the event not be for the program.
        if let Some(event) = event::deliver(found) {
            return Ok(Some(event));
        }
    }
    devices::stop_polling();
    Ok(None)
}

/// Waits for an event, unless the channel's descriptor is non-blocking.
pub(super) fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event> {
    let channel = of(channel).inspect_err(|_| block_on_destroyed(channel))?;
    loop {
        if let Some(event) = try_next(&channel)? {
            return Ok(event);
        }
        wait_readable(channel.as_fd().as_raw_fd())?;
    }
}

pub(crate) unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_event,
) -> c_int {
    entry::waiting(|| {
        // SAFETY: the program's pointer.
        let out = unsafe { entry::write(out) }?;
        attempt(channel, |event| {
            *out = event;
            Ok(())
        })
    })
}

/// Calls `then` with the next event, or returns what to wait for.
pub(super) fn attempt(
    channel: *mut rdma_event_channel,
    then: impl FnOnce(*mut rdma_cm_event) -> Result<()>,
) -> Result<Next> {
    let known = match of(channel) {
        Ok(known) => known,
        // As `block_on_destroyed`.
        Err(_) if lock(&DESTROYED).contains(&channel.addr()) => return Ok(Next::Signal),
        Err(error) => return Err(error),
    };
    match try_next(&known)? {
        Some(event) => then(event).map(|()| Next::Done),
        None => until_readable(known.as_fd().as_raw_fd()),
    }
}

/// # Safety
/// The event came from this library, and was not acknowledged before.
unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: as the caller promises.
    let handle = unsafe { EventHandle::take(event) };
    if let Some(group) = &handle.group {
        group.acknowledge(1);
    }
    handle.about.acknowledge(1);
}

pub(crate) unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    entry::count(|| {
        if event.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's event.
        unsafe { acknowledge(event) };
        Ok(0)
    })
}

/// Acknowledges the event held by a synchronous id.
///
/// # Safety
/// The program's id.
pub(super) unsafe fn acknowledge_own(id: *mut rdma_cm_id) {
    // SAFETY: as the caller promises.
    let Ok(handle) = (unsafe { IdHandle::of(id) }) else { return };
    let mut event = ptr::null_mut();
    handle.shown.change(|shown| event = std::mem::replace(&mut shown.event, ptr::null_mut()));
    if !event.is_null() {
        // SAFETY: the id held it, unacknowledged.
        unsafe { acknowledge(event) };
    }
}

/// Waits for the event of a call if the id is synchronous, and returns its status (rdma_create_id(3)).
///
/// # Safety
/// The program's id.
pub(super) unsafe fn complete(id: *mut rdma_cm_id) -> Result<()> {
    // SAFETY: as the caller promises.
    let handle = unsafe { IdHandle::of(id) }?;
    if !lock(&handle.details).synchronous {
        return Ok(());
    }
    // SAFETY: as the caller promises.
    unsafe { acknowledge_own(id) };
    // A synchronous id has a channel of its own.
    let event = next(handle.fields().channel)?;
    handle.shown.change(|shown| shown.event = event);
    // SAFETY: just received.
    let got = unsafe { entry::read(event) }?;
    match (got.event, got.status) {
        (_, 0) => Ok(()),
        (crate::abi::rdmacm::cm_event::REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) => Err(Errno(status.abs())),
    }
}

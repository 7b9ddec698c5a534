//! Contexts: open devices.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ferroce_proto::qp::PathMtu;
use ferroce_sys::route;
use ferroce_tap::CaptureStatus;
use ferroce_wire::number::Qpn;

use crate::device::{Device, Limits, is_own};
use crate::engine::{Adapter, Handle, PausedThread, Statistics};
use crate::error::{OpenError, RouteError, WaitError};
use crate::event::{AsyncEvent, Events};
use crate::exit;
use crate::options::Options;

/// A context: an open device, from which all other resources are created.
///
/// Clones share the device. It closes when the last clone and the last resource created from it are dropped. A process has
/// a device open once, however often it is opened with the same options; it has one thread, which sleeps while nothing
/// happens. No privilege is needed.
///
/// ```
/// use ferroce::{Context, Device, Options};
///
/// # fn main() -> Result<(), ferroce::Error> {
/// // The loopback interface; `ferroce::devices()` lists those to other hosts.
/// let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// assert_eq!(context.device().name(), "ferroce_lo");
/// assert!(context.is_active());
/// println!("up to {} entries per CQ", context.limits().max_cqe);
///
/// let pd = context.protection_domain();
/// let cq = context.completion_queue(64, None)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_context")]
pub struct Context {
    pub(crate) handle: Arc<Handle>,
    pub(crate) events: Arc<Events>,
}

impl Context {
    /// Opens a device. Asynchronous events are delivered to the context that their source was created from.
    ///
    /// When the process exits, open devices are shut down: peers are notified, and captures are completed.
    ///
    /// # Errors
    ///
    /// When its UDP port is taken, or its MTU is too small: the message names the remedy.
    #[doc(alias = "ibv_open_device")]
    pub fn open(device: &Device, options: &Options) -> Result<Self, OpenError> {
        exit::register();
        let (handle, events) = (Handle::open(device, options)?, Arc::new(Events::new()?));
        handle.adapter().port.state.subscribe(&events);
        Ok(Self { handle, events })
    }

    /// Returns a context of a device that is open already, with the events of the device itself.
    pub(crate) fn of(handle: Arc<Handle>) -> Self {
        let events = Arc::clone(&handle.adapter().events);
        Self { handle, events }
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        self.handle.adapter()
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.adapter().device
    }

    /// Returns the limits of the device.
    pub fn limits(&self) -> Limits {
        self.device().limits()
    }

    /// Whether the interface is up and has a carrier. [`EventKind::PortActive`](crate::EventKind::PortActive) and
    /// [`EventKind::PortError`](crate::EventKind::PortError) report changes.
    pub fn is_active(&self) -> bool {
        self.adapter().port.state.is_active()
    }

    /// Returns the largest path MTU of the device.
    pub fn mtu(&self) -> PathMtu {
        self.device().mtu().unwrap_or_default()
    }

    /// Returns the largest path MTU to a destination. The kernel sends to all addresses of this host by the loopback
    /// interface, whose MTU is larger than Ethernet's.
    pub(crate) fn path_mtu_to(&self, destination: SocketAddr) -> Result<PathMtu, RouteError> {
        let device = self.mtu();
        if destination.ip().is_multicast() {
            return Ok(device);
        }
        let mtu = route::path_mtu(destination)?;
        let fits = route::roce_mtu(mtu, destination.is_ipv6());
        let fits = fits.and_then(|bytes| PathMtu::from_bytes(usize::from(bytes)));
        let interface = || self.device().interface().name.clone();
        let fits = fits.ok_or_else(|| RouteError::MtuTooSmall { interface: interface(), mtu })?;
        let smaller = if fits.bytes() < device.bytes() { fits } else { device };
        Ok(if is_own(destination) { fits } else { smaller })
    }

    /// Whether a queue pair number (QPN) belongs to this host: to a QP of this process, or to the range of another process
    /// that has the device open.
    pub fn is_on_this_host(&self, number: Qpn) -> bool {
        let slot = (number.0 >> 16) as u8;
        if let Some(shard) = self.handle.shards().find(|shard| shard.tables.slot() == slot) {
            return shard.tables.queue_pair(number).is_some();
        }
        let others = self.adapter().port.links.first().and_then(|link| link.slot.others().ok());
        others.is_some_and(|others| others.contains(&slot))
    }

    /// Takes an asynchronous event without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<AsyncEvent>, WaitError> {
        self.events.take()
    }

    /// Waits for an asynchronous event; returns `None` at the deadline.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_event(&self, deadline: Option<Instant>) -> Result<Option<AsyncEvent>, WaitError> {
        self.events.wait(deadline)
    }

    /// Returns a file descriptor that is readable while an asynchronous event is pending.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Announces that this thread stops polling: the device thread then watches the sockets.
    ///
    /// Call it before blocking on [`Context::event_fd`] or on the descriptor of a channel. The waiting functions of this
    /// library do so themselves.
    pub fn stop_polling(&self) {
        self.handle.shards().for_each(|shard| shard.signals.stop_polling());
    }

    /// Halts the device thread while the value lives: the program has to make all passes by polling. For counting the
    /// instructions of the data path, not for programs.
    #[doc(hidden)]
    #[must_use]
    pub fn pause_thread(&self) -> PausedThread {
        PausedThread::new(Arc::clone(&self.handle))
    }

    /// Returns the counters of the device since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.adapter().counters.read()
    }

    /// Returns the status of the capture, or `None` without one.
    pub fn capture_status(&self) -> Option<CaptureStatus> {
        self.adapter().tap()?.status()
    }

    /// Waits until the packets so far are written to the capture or dropped, and returns its status.
    pub fn flush_capture(&self) -> Option<CaptureStatus> {
        let tap = self.adapter().tap()?;
        tap.flush();
        tap.status()
    }
}

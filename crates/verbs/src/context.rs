//! An open device.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ferroce_proto::qp::PathMtu;
use ferroce_sys::route;
use ferroce_wire::number::Qpn;

use crate::address::is_own;
use crate::completion::{CompletionChannel, CompletionQueue};
use crate::device::Device;
use crate::engine::{Adapter, Handle, Statistics};
use crate::error::{CreateError, OpenError, RouteError, WaitError};
use crate::event::{AsyncEvent, Events};
use crate::limits::Limits;
use crate::options::Options;
use crate::pd::ProtectionDomain;
use crate::tap::CaptureStatus;
use crate::xrc::XrcDomain;

/// An open device. Clones are the same one; it closes with the last of them and of all that was made from it.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) handle: Arc<Handle>,
    pub(crate) events: Arc<Events>,
}

impl Context {
    /// Opens a device. One process has it open once, however often it is opened with the same options: it has one
    /// thread, which sleeps while nothing happens. Events go to the one from which their source was made.
    ///
    /// # Errors
    ///
    /// When its port cannot be had, or its MTU is too small: the message says what to do.
    #[doc(alias = "ibv_open_device")]
    pub fn open(device: &Device, options: &Options) -> Result<Self, OpenError> {
        let (handle, events) = (Adapter::open(device, options)?, Arc::new(Events::new()?));
        handle.adapter.port.subscribe(&events);
        Ok(Self { handle, events })
    }

    /// The device as it is open already.
    pub(crate) fn of(handle: Arc<Handle>) -> Self {
        let events = Arc::clone(&handle.adapter.events);
        Self { handle, events }
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.handle.adapter
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.adapter().device
    }

    /// What it allows.
    pub fn limits(&self) -> Limits {
        Limits::of(self.device())
    }

    /// Whether its interface is switched on and has a carrier, now. [`crate::EventKind::PortActive`] and
    /// [`crate::EventKind::PortError`] tell when that changes.
    pub fn is_active(&self) -> bool {
        self.adapter().port.is_active()
    }

    /// The largest path MTU.
    pub fn mtu(&self) -> PathMtu {
        self.device().mtu().unwrap_or_default()
    }

    /// The largest path MTU to a destination. Addresses of this host are reached by the loopback's interface, whatever
    /// device they are of, and its MTU is larger than Ethernet's.
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

    /// Whether a queue pair of this number would belong to this host, as far as can be told: it is one of this process,
    /// or of another one that has the device open.
    pub fn is_on_this_host(&self, number: Qpn) -> bool {
        let (adapter, slot) = (self.adapter(), (number.0 >> 16) as u8);
        if slot == adapter.slot() {
            return adapter.queue_pair(number).is_some();
        }
        let others = adapter.links.first().and_then(|link| link.slot.others().ok());
        others.is_some_and(|others| others.contains(&slot))
    }

    /// A new protection domain.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn protection_domain(&self) -> ProtectionDomain {
        ProtectionDomain::new(self.clone())
    }

    /// A completion queue for so many completions, with a channel for its events if one is given.
    ///
    /// # Errors
    ///
    /// When that is none, or more than the device allows.
    #[doc(alias = "ibv_create_cq")]
    pub fn completion_queue(
        &self,
        capacity: usize,
        channel: Option<&CompletionChannel>,
    ) -> Result<CompletionQueue, CreateError> {
        let max = self.limits().max_cqe as usize;
        if capacity == 0 || capacity > max {
            return Err(CreateError::CqeOutOfRange { given: capacity, max });
        }
        Ok(CompletionQueue::new(self.clone(), capacity, channel))
    }

    /// A new XRC domain, of this process.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn xrc_domain(&self) -> XrcDomain {
        XrcDomain::new(self.clone())
    }

    /// Takes an event, without waiting.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be read.
    pub fn try_event(&self) -> Result<Option<AsyncEvent>, WaitError> {
        self.events.take()
    }

    /// Waits for an event, at most until the deadline in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_event(&self, deadline: Option<u64>) -> Result<Option<AsyncEvent>, WaitError> {
        self.events.wait(deadline)
    }

    /// A descriptor that is readable while there is an event.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.event.as_fd()
    }

    /// This thread goes to sleep until there is an event: the device's own thread sees to packets meanwhile. Who waits
    /// by the calls of this library has it done for them.
    pub fn rest(&self) {
        self.adapter().stop_polling();
    }

    /// What it has counted since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.adapter().counters.read()
    }

    /// How the capture goes; `None` when there is none.
    pub fn capture_status(&self) -> Option<CaptureStatus> {
        self.adapter().tap.as_ref().map(|tap| tap.status())
    }

    /// Waits until all packets so far are in the capture, or are not, and says how it goes.
    pub fn flush_capture(&self) -> Option<CaptureStatus> {
        let tap = self.adapter().tap.as_ref()?;
        tap.flush();
        Some(tap.status())
    }
}

//! Open devices, and the tables that programs call through.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferroce::{Context, Options, Source};

use crate::abi::Abi;
use crate::abi::context::{ibv_context, ibv_context_ops, verbs_context};
use crate::abi::device::ibv_device;
use crate::acknowledge::Unacknowledged;
use crate::device::device_of;
use crate::entry::{self, Errno, Next, Result};
use crate::handle::Shown;
use crate::import::{self, Objects};
use crate::{
    completion, completion_ex, device_memory, pd, post, query, queue_pair, region, shared_receive,
    trace, window, xrc,
};

/// An open device. Programs know it by the `ibv_context` within its first field.
#[repr(C)]
pub(crate) struct ContextHandle {
    shown: Shown<verbs_context>,
    pub(crate) open: Arc<Open>,
    /// There is no kernel to command, but programs find the context again by copies of the descriptor.
    _commands: OwnedFd,
}

const _: () = assert!(std::mem::offset_of!(ContextHandle, shown) == 0);

/// What stays of an open device until all that was made from it is gone.
pub(crate) struct Open {
    pub(crate) context: Context,
    /// Whom events are about.
    sources: Mutex<HashMap<Source, (usize, Arc<Unacknowledged>)>>,
    /// What of it can be imported.
    pub(crate) objects: Mutex<Objects>,
    /// The device, by its address: devices stay.
    device: usize,
}

/// Locks, whatever became of who held it before: all that is protected here is valid at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Open {
    /// Events of this source are about the object at this address from now on.
    pub(crate) fn add_source(&self, source: Source, object: usize, events: &Arc<Unacknowledged>) {
        lock(&self.sources).insert(source, (object, Arc::clone(events)));
    }

    pub(crate) fn remove_source(&self, source: Source) {
        lock(&self.sources).remove(&source);
    }

    /// The object that an event is about, which is not gone before the event is acknowledged.
    pub(crate) fn source(&self, source: Source) -> Option<usize> {
        let sources = lock(&self.sources);
        let (object, events) = sources.get(&source)?;
        events.given();
        Some(*object)
    }
}

impl ContextHandle {
    /// The handle of an open device.
    ///
    /// # Safety
    /// The pointer is null, or came from [`open_device`] and was not closed.
    #[inline]
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> Result<&'a Self> {
        if context.is_null() {
            return Err(Errno::INVALID);
        }
        let offset = std::mem::offset_of!(verbs_context, context);
        // SAFETY: it is the last field of the first field of a handle.
        Ok(unsafe { &*context.cast::<u8>().sub(offset).cast::<Self>() })
    }
}

/// Makes reads of a descriptor wait, as programs expect of a new one.
pub(crate) fn make_blocking(fd: BorrowedFd<'_>) -> Result<c_int> {
    let fd = fd.as_raw_fd();
    // SAFETY: the calls take no pointers.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if done < 0 { Err(Errno::last()) } else { Ok(fd) }
}

/// To wait until a descriptor can be read, unless the program made it one that does not wait.
pub(crate) fn until_readable(fd: c_int) -> Result<Next> {
    // SAFETY: the call takes no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 || flags & libc::O_NONBLOCK != 0 {
        return Err(Errno(if flags < 0 { libc::EBADF } else { libc::EAGAIN }));
    }
    Ok(Next::Readable(fd))
}

/// Waits until a descriptor can be read, as [`until_readable`] has it. Cannot be cancelled.
pub(crate) fn wait_readable(fd: c_int) -> Result<()> {
    until_readable(fd)?;
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of ours.
    let ready = unsafe { libc::poll(&raw mut one, 1, -1) };
    if ready < 0 { Err(Errno::last()) } else { Ok(()) }
}

fn operations() -> ibv_context_ops {
    ibv_context_ops {
        alloc_mw: Some(window::alloc_mw),
        bind_mw: Some(window::bind_mw),
        dealloc_mw: Some(window::dealloc_mw),
        poll_cq: Some(completion::poll_cq),
        req_notify_cq: Some(completion::req_notify_cq),
        post_srq_recv: Some(shared_receive::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..Abi::zeroed()
    }
}

fn table(device: *mut ibv_device, context: &Context, cmd_fd: c_int) -> Result<verbs_context> {
    let async_fd = make_blocking(context.event_fd())?;
    Ok(verbs_context {
        query_port: Some(query::query_port_sized),
        advise_mr: Some(region::advise_mr),
        alloc_null_mr: Some(region::alloc_null_mr),
        reg_dm_mr: Some(device_memory::reg_dm_mr),
        alloc_dm: Some(device_memory::alloc_dm),
        free_dm: Some(device_memory::free_dm),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(completion_ex::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        open_qp: Some(xrc::open_qp),
        create_qp_ex: Some(queue_pair::create_qp_ex),
        get_srq_num: Some(shared_receive::get_srq_num),
        create_srq_ex: Some(shared_receive::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device,
            ops: operations(),
            cmd_fd,
            async_fd,
            num_comp_vectors: 1,
            // The mark of the extended table in front.
            abi_compat: usize::MAX as *mut c_void,
            ..Abi::zeroed()
        },
        ..Abi::zeroed()
    })
}

pub(crate) unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    entry::pointer(|| {
        // SAFETY: the program's device, or null.
        let which = unsafe { device_of(device) }?;
        let context = Context::open(which, &Options::from_env()?).inspect_err(|error| {
            // `errno` cannot say what to do about it.
            eprintln!("ferroce: {}: {error}", which.name());
        })?;
        let commands = import::descriptor()?;
        let open = Arc::new(Open {
            context,
            sources: Mutex::default(),
            objects: Mutex::default(),
            device: device.expose_provenance(),
        });
        import::remember(&commands, &open)?;
        give(open, commands)
    })
}

/// Gives an open device to the program.
fn give(open: Arc<Open>, commands: OwnedFd) -> Result<*mut ibv_context> {
    let device = ptr::with_exposed_provenance_mut(open.device);
    let mut table = table(device, &open.context, commands.as_raw_fd())?;
    trace::context(&mut table);
    let shown = Shown::new(table);
    let handle = Box::into_raw(Box::new(ContextHandle { shown, open, _commands: commands }));
    // SAFETY: the handle is new, and its first field is the table.
    Ok(unsafe { &raw mut (*handle.cast::<verbs_context>()).context })
}

pub(crate) unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    entry::count(|| {
        // SAFETY: the program's context, which it does not use again.
        let handle = unsafe { ContextHandle::of(context) }?;
        // SAFETY: it was a box.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(handle).cast_mut()) });
        Ok(0)
    })
}

/// The descriptor is ours from here on: closing the context closes it, as `ibv_import_device(3)` has it. When this fails
/// it is still the program's.
pub(crate) unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    entry::pointer(|| {
        let open = import::find(cmd_fd)?;
        // SAFETY: the program gives it away.
        give(open, unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    })
}

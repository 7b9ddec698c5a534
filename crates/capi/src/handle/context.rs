//! The handle of an open device.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use ferroce::{Context, Source};

use super::Shown;
use super::objects::Objects;
use crate::abi::context::{ibv_context, verbs_context};
use crate::acknowledge::Unacknowledged;
use crate::entry::{Errno, Result};
use crate::sync::lock;

/// An open device. Programs hold a pointer to the `ibv_context` inside the first field.
#[repr(C)]
pub(crate) struct ContextHandle {
    pub(crate) shown: Shown<verbs_context>,
    pub(crate) open: Arc<OpenDevice>,
    /// The command descriptor. There is no kernel to command, but `ibv_import_device` finds the context by a copy of
    /// it.
    pub(crate) commands: OwnedFd,
}

const _: () = assert!(std::mem::offset_of!(ContextHandle, shown) == 0);

/// The part of an open device that lives until all objects created from it are gone.
pub(crate) struct OpenDevice {
    pub(crate) context: Context,
    /// The objects that asynchronous events refer to.
    sources: Mutex<HashMap<Source, (usize, Arc<Unacknowledged>)>>,
    /// The objects that can be imported.
    pub(crate) objects: Mutex<Objects>,
    /// The address of the `ibv_device`, which is never freed.
    pub(crate) device: usize,
}

impl OpenDevice {
    pub(crate) fn new(context: Context, device: usize) -> Self {
        Self { context, sources: Mutex::default(), objects: Mutex::default(), device }
    }

    /// Associates a source of asynchronous events with the program's object at this address.
    pub(crate) fn add_source(&self, source: Source, object: usize, events: &Arc<Unacknowledged>) {
        lock(&self.sources).insert(source, (object, Arc::clone(events)));
    }

    pub(crate) fn remove_source(&self, source: Source) {
        lock(&self.sources).remove(&source);
    }

    /// Returns the object an event refers to, and counts the event as unacknowledged: destroying the object waits for
    /// it.
    pub(crate) fn source(&self, source: Source) -> Option<usize> {
        let sources = lock(&self.sources);
        let (object, events) = sources.get(&source)?;
        events.add();
        Some(*object)
    }
}

impl ContextHandle {
    /// Returns the handle of an open device, or `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or came from `ibv_open_device` or `ibv_import_device` and was not closed.
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

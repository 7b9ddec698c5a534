//! XRC domains, and XRC targets that are opened by QPN.

use std::ffi::c_int;
use std::sync::Mutex;

use ferroce::{QueuePair, ServiceType, XrcDomain};

use crate::abi::attributes::ibv_xrcd_init_attr;
use crate::abi::context::ibv_context;
use crate::abi::objects::ibv_xrcd;
use crate::entry::{self, Errno};
use crate::fd::{FileId, file_id};
use crate::handle::context::ContextHandle;
use crate::handle::xrcd::XrcdHandle;
use crate::handle::{Handle, Shown};
use crate::reason::invalid;
use crate::sync::lock;

/// XRC domains by file, with the number of handles. They are shared within the process only.
static FILES: Mutex<Vec<(FileId, XrcDomain, usize)>> = Mutex::new(Vec::new());
/// XRC targets that can be opened.
static TARGETS: Mutex<Vec<QueuePair>> = Mutex::new(Vec::new());

const MASK: u32 = 3;

pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    entry::pointer(|| {
        // SAFETY: the program's context and structure.
        let (open, attr) = unsafe { (&ContextHandle::of(context)?.open, entry::read(attr)?) };
        if attr.comp_mask != MASK {
            return Err(invalid(format_args!(
                "comp_mask needs IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS"
            )));
        }
        let file = if attr.fd == -1 { None } else { Some(file_id(attr.fd)?) };
        // Without a file, there is no existing domain to open.
        if file.is_none() && attr.oflags & libc::O_CREAT == 0 {
            return Err(invalid(format_args!("without a file (fd -1), oflags needs O_CREAT")));
        }
        let mut files = lock(&FILES);
        let found = files.iter_mut().find(|(one, ..)| Some(*one) == file);
        let domain = match found {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => {
                return Err(invalid(format_args!("O_EXCL: the file has an XRC domain already")));
            }
            Some((_, domain, handles)) => {
                *handles += 1;
                domain.clone()
            }
            None if attr.oflags & libc::O_CREAT == 0 => return Err(Errno(libc::ENOENT)),
            None => {
                let domain = open.context.xrc_domain();
                files.extend(file.map(|file| (file, domain.clone(), 1)));
                domain
            }
        };
        Ok(XrcdHandle { shown: Shown::new(ibv_xrcd { context }), domain, file }.give())
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    entry::number(|| {
        // SAFETY: the program's PD.
        let handle = unsafe { XrcdHandle::of(xrcd) }?;
        prune_targets();
        let mut files = lock(&FILES);
        let index = files.iter().position(|(file, ..)| Some(*file) == handle.file);
        // References of the list, and of the other handles of the same file.
        let others = index.map_or(0, |index| files[index].2);
        if handle.domain.users() > others {
            return Err(Errno::BUSY);
        }
        if let Some(index) = index {
            files[index].2 -= 1;
            if files[index].2 == 0 {
                files.swap_remove(index);
            }
        }
        // SAFETY: as above, and it is not used again.
        drop(unsafe { XrcdHandle::take(xrcd) });
        Ok(())
    })
}

/// Registers a target, so that it can be opened while it exists.
pub(crate) fn register_target(target: &QueuePair) {
    prune_targets();
    lock(&TARGETS).push(target.clone());
}

/// Returns the target with this QPN, if it may be opened.
pub(crate) fn find_target(number: u32) -> Option<QueuePair> {
    let targets = lock(&TARGETS);
    let mut targets = targets.iter().filter(|target| target.service() == ServiceType::XrcTarget);
    targets.find(|target| target.number().0 == number).cloned()
}

/// Removes targets to which only the list refers.
pub(crate) fn prune_targets() {
    lock(&TARGETS).retain(|target| target.handles() > 1);
}

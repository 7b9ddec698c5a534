//! XRC domains, and targets that others open by their number.

use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;

use ferroce::{QueuePair, ServiceType, XrcDomain};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_qp_open_attr, ibv_xrcd_init_attr};
use crate::abi::constants::qp_type;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_qp, ibv_xrcd};
use crate::context::{ContextHandle, lock};
use crate::entry::{self, Errno};
use crate::handle::{Handle, Shown, handle};
use crate::import::{File, file_of};
use crate::queue_pair;

#[repr(C)]
pub(crate) struct XrcHandle {
    shown: Shown<ibv_xrcd>,
    pub(crate) domain: XrcDomain,
    file: Option<File>,
}

handle!(XrcHandle, shown, ibv_xrcd);

/// Domains of files, with the number of handles. They are this process's: between processes nothing is shared.
static FILES: Mutex<Vec<(File, XrcDomain, usize)>> = Mutex::new(Vec::new());
/// Targets that may be opened.
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
            return Err(Errno::INVALID);
        }
        let file = if attr.fd == -1 { None } else { Some(file_of(attr.fd)?) };
        // Without a file, there is none to find.
        if file.is_none() && attr.oflags & libc::O_CREAT == 0 {
            return Err(Errno::INVALID);
        }
        let mut files = lock(&FILES);
        let found = files.iter_mut().find(|(one, ..)| Some(*one) == file);
        let domain = match found {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => return Err(Errno::INVALID),
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
        Ok(XrcHandle { shown: Shown::new(ibv_xrcd { context }), domain, file }.give())
    })
}

pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    entry::number(|| {
        // SAFETY: the program's domain.
        let handle = unsafe { XrcHandle::of(xrcd) }?;
        forget_targets();
        let mut files = lock(&FILES);
        let index = files.iter().position(|(file, ..)| Some(*file) == handle.file);
        // The list's own, and that of each handle of the same file but this one.
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
        drop(unsafe { XrcHandle::take(xrcd) });
        Ok(())
    })
}

/// Lets others open a target while it exists.
pub(crate) fn remember(target: &QueuePair) {
    forget_targets();
    lock(&TARGETS).push(target.clone());
}

/// Forgets the targets that nobody but the list has.
pub(crate) fn forget_targets() {
    lock(&TARGETS).retain(|target| target.handles() > 1);
}

pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    const NUMBER: u32 = 1;
    const XRCD: u32 = 1 << 1;
    const CONTEXT: u32 = 1 << 2;
    const TYPE: u32 = 1 << 3;
    entry::pointer(|| {
        // SAFETY: the program's context and structure.
        let (open, attr) = unsafe { (&ContextHandle::of(context)?.open, entry::read(attr)?) };
        let needed = NUMBER | XRCD | TYPE;
        if attr.comp_mask & !CONTEXT != needed || attr.qp_type != qp_type::XRC_RECV {
            return Err(Errno::INVALID);
        }
        let targets = lock(&TARGETS);
        let mut found = targets.iter().filter(|one| one.service() == ServiceType::XrcTarget);
        let target = found.find(|one| one.number().0 == attr.qp_num).ok_or(Errno::INVALID)?;
        let has_context = attr.comp_mask & CONTEXT != 0;
        let base = ibv_qp {
            context,
            qp_context: if has_context { attr.qp_context } else { ptr::null_mut() },
            qp_type: attr.qp_type,
            state: target.state().code(),
            ..Abi::zeroed()
        };
        Ok(queue_pair::give(open, base, target.clone(), false, None))
    })
}

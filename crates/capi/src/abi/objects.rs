//! The objects that programs hold pointers to. The allocated objects are larger: private fields follow these.

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::context::ibv_context;
use super::structures;

type Mutex = pthread_mutex_t;
type Cond = pthread_cond_t;

structures! {
    ibv_pd = 16 { context: *mut ibv_context, handle: u32 }
    ibv_td = 8 { context: *mut ibv_context }
    ibv_xrcd = 8 { context: *mut ibv_context }
    ibv_mr = 48 {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32 = 36,
        rkey: u32 = 40,
    }
    ibv_mw = 32 {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        kind: u32,
    }
    ibv_ah = 24 { context: *mut ibv_context, pd: *mut ibv_pd, handle: u32 }
    ibv_dm = 32 {
        context: *mut ibv_context,
        memcpy_to_dm: Option<unsafe extern "C" fn(*mut ibv_dm, u64, *const c_void, usize) -> c_int>,
        memcpy_from_dm: Option<unsafe extern "C" fn(*mut c_void, *mut ibv_dm, u64, usize) -> c_int>,
        comp_mask: u32,
        handle: u32,
    }
    ibv_comp_channel = 16 {
        context: *mut ibv_context,
        fd: c_int = 8,
        refcnt: c_int = 12,
    }
    ibv_cq = 128 {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int = 28,
        mutex: Mutex = 32,
        cond: Cond,
        comp_events_completed: u32 = 120,
        async_events_completed: u32 = 124,
    }
    ibv_srq = 128 {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: Mutex = 32,
        cond: Cond = 72,
        events_completed: u32 = 120,
    }
    ibv_qp = 160 {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32 = 48,
        qp_num: u32 = 52,
        state: u32 = 56,
        qp_type: u32 = 60,
        mutex: Mutex = 64,
        cond: Cond = 104,
        events_completed: u32 = 152,
    }
    ibv_async_event = 16 {
        /// A pointer to the object, or the number of the port.
        element: usize,
        event_type: u32,
    }
}

//! `ibv_context` inside `verbs_context`: the tables that programs call through, most of all to post and to poll.

use std::ffi::{c_int, c_void};

use libc::pthread_mutex_t;

use super::attributes::*;
use super::device::*;
use super::extended::ibv_cq_ex;
use super::objects::*;
use super::structures;
use super::work::*;

/// An entry that is obsolete or not implemented: null, which programs check.
type Absent = usize;
type Context = *mut ibv_context;
type Function<A> = Option<A>;

structures! {
    ibv_context_ops = 256 {
        _compat: [Absent; 7],
        alloc_mw: Function<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw> = 56,
        bind_mw: Function<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int> = 64,
        dealloc_mw: Function<unsafe extern "C" fn(*mut ibv_mw) -> c_int> = 72,
        _compat_create_cq: Absent,
        poll_cq: Function<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int> = 88,
        req_notify_cq: Function<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int> = 96,
        _compat_queues: [Absent; 7],
        post_srq_recv: Function<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int> = 160,
        _compat_qp: [Absent; 4],
        post_send: Function<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int> = 200,
        post_recv: Function<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int> = 208,
        _compat_rest: [Absent; 5],
    }
    ibv_context = 328 {
        device: *mut ibv_device,
        ops: ibv_context_ops = 8,
        cmd_fd: c_int = 264,
        async_fd: c_int = 268,
        num_comp_vectors: c_int = 272,
        mutex: pthread_mutex_t = 280,
        abi_compat: *mut c_void = 320,
    }
    verbs_context = 648 {
        query_port: Function<unsafe extern "C" fn(Context, u8, *mut ibv_port_attr, usize) -> c_int> = 0,
        advise_mr: Function<unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int> = 8,
        alloc_null_mr: Function<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr> = 16,
        read_counters: Absent = 24,
        attach_counters_point_flow: Absent,
        create_counters: Absent,
        destroy_counters: Absent,
        reg_dm_mr: Function<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, u32) -> *mut ibv_mr> = 56,
        alloc_dm: Function<unsafe extern "C" fn(Context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm> = 64,
        free_dm: Function<unsafe extern "C" fn(*mut ibv_dm) -> c_int> = 72,
        modify_flow_action_esp: Absent,
        destroy_flow_action: Absent,
        create_flow_action_esp: Absent,
        modify_qp_rate_limit: Absent = 104,
        alloc_parent_domain: Function<unsafe extern "C" fn(Context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd> = 112,
        dealloc_td: Function<unsafe extern "C" fn(*mut ibv_td) -> c_int> = 120,
        alloc_td: Function<unsafe extern "C" fn(Context, *mut u32) -> *mut ibv_td> = 128,
        modify_cq: Absent = 136,
        post_srq_ops: Absent = 144,
        destroy_rwq_ind_table: Absent,
        create_rwq_ind_table: Absent,
        destroy_wq: Absent,
        modify_wq: Absent,
        create_wq: Absent = 184,
        query_rt_values: Function<unsafe extern "C" fn(Context, *mut ibv_values_ex) -> c_int> = 192,
        create_cq_ex: Function<unsafe extern "C" fn(Context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex> = 200,
        private: Absent = 208,
        query_device_ex: Function<unsafe extern "C" fn(Context, *const u32, *mut ibv_device_attr_ex, usize) -> c_int> = 216,
        destroy_flow: Absent = 224,
        placeholder2: Absent,
        create_flow: Absent = 240,
        placeholder1: Absent,
        open_qp: Function<unsafe extern "C" fn(Context, *mut ibv_qp_open_attr) -> *mut ibv_qp> = 256,
        create_qp_ex: Function<unsafe extern "C" fn(Context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp> = 264,
        get_srq_num: Function<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int> = 272,
        create_srq_ex: Function<unsafe extern "C" fn(Context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq> = 280,
        open_xrcd: Function<unsafe extern "C" fn(Context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd> = 288,
        close_xrcd: Function<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int> = 296,
        placeholder3: u64 = 304,
        sz: usize = 312,
        context: ibv_context = 320,
    }
}

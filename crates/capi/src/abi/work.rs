//! Work requests and completions.

use std::ffi::{c_int, c_uint, c_void};

use super::objects::{ibv_ah, ibv_mr, ibv_mw};
use super::{Abi, structures};

structures! {
    ibv_sge = 16 { addr: u64, length: u32, lkey: u32 }
    ibv_data_buf = 16 { addr: *mut c_void, length: usize }
    ibv_recv_wr = 32 {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }
    ibv_mw_bind_info = 32 {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }
    ibv_mw_bind = 48 {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }
    wr_rdma = 16 { remote_addr: u64, rkey: u32 }
    wr_atomic = 32 { remote_addr: u64, compare_add: u64, swap: u64, rkey: u32 }
    wr_ud = 16 { ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32 }
    wr_bind_mw = 48 { mw: *mut ibv_mw, rkey: u32, bind_info: ibv_mw_bind_info }
    ibv_send_wr = 128 {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: u32,
        send_flags: c_uint,
        /// Immediate data in network byte order, or the key to invalidate.
        imm_data: u32,
        wr: wr_union = 40,
        remote_srqn: u32 = 72,
        bind_mw: wr_bind_mw = 80,
    }
    ibv_wc = 48 {
        wr_id: u64,
        status: u32,
        opcode: u32,
        vendor_err: u32,
        byte_len: u32,
        /// Immediate data in network byte order, or the key that was invalidated.
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}

/// The part that depends on the opcode. Any bytes are a valid value of each field.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union wr_union {
    pub(crate) rdma: wr_rdma,
    pub(crate) atomic: wr_atomic,
    pub(crate) ud: wr_ud,
}

// SAFETY: numbers and pointers.
unsafe impl Abi for wr_union {}

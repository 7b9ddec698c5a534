//! QPs and CQs of the extended interface: function tables after the plain object.

use std::ffi::{c_int, c_uint, c_void};

use super::objects::{ibv_ah, ibv_cq, ibv_mw, ibv_qp};
use super::structures;
use super::work::{ibv_data_buf, ibv_mw_bind_info, ibv_sge};

type Qp = *mut ibv_qp_ex;
type Cq = *mut ibv_cq_ex;

structures! {
    ibv_qp_ex = 360 {
        qp_base: ibv_qp,
        comp_mask: u64 = 160,
        wr_id: u64 = 168,
        wr_flags: c_uint = 176,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(Qp, u32, u64, u64, u64)> = 184,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(Qp, u32, u64, u64)> = 192,
        wr_bind_mw: Option<unsafe extern "C" fn(Qp, *mut ibv_mw, u32, *const ibv_mw_bind_info)> = 200,
        wr_local_inv: Option<unsafe extern "C" fn(Qp, u32)> = 208,
        wr_rdma_read: Option<unsafe extern "C" fn(Qp, u32, u64)> = 216,
        wr_rdma_write: Option<unsafe extern "C" fn(Qp, u32, u64)> = 224,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(Qp, u32, u64, u32)> = 232,
        wr_send: Option<unsafe extern "C" fn(Qp)> = 240,
        wr_send_imm: Option<unsafe extern "C" fn(Qp, u32)> = 248,
        wr_send_inv: Option<unsafe extern "C" fn(Qp, u32)> = 256,
        wr_send_tso: Option<unsafe extern "C" fn(Qp, *mut c_void, u16, u16)> = 264,
        wr_set_ud_addr: Option<unsafe extern "C" fn(Qp, *mut ibv_ah, u32, u32)> = 272,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(Qp, u32)> = 280,
        wr_set_inline_data: Option<unsafe extern "C" fn(Qp, *mut c_void, usize)> = 288,
        wr_set_inline_data_list: Option<unsafe extern "C" fn(Qp, usize, *const ibv_data_buf)> = 296,
        wr_set_sge: Option<unsafe extern "C" fn(Qp, u32, u64, u32)> = 304,
        wr_set_sge_list: Option<unsafe extern "C" fn(Qp, usize, *const ibv_sge)> = 312,
        wr_start: Option<unsafe extern "C" fn(Qp)> = 320,
        wr_complete: Option<unsafe extern "C" fn(Qp) -> c_int> = 328,
        wr_abort: Option<unsafe extern "C" fn(Qp)> = 336,
        wr_atomic_write: Option<unsafe extern "C" fn(Qp, u32, u64, *const c_void)> = 344,
        /// Only in later headers.
        wr_flush: Option<unsafe extern "C" fn(Qp, u32, u64, usize, u8, u8)> = 352,
    }
    ibv_cq_ex = 288 {
        base: ibv_cq,
        comp_mask: u32 = 128,
        status: u32 = 132,
        wr_id: u64 = 136,
        start_poll: Option<unsafe extern "C" fn(Cq, *mut c_void) -> c_int> = 144,
        next_poll: Option<unsafe extern "C" fn(Cq) -> c_int> = 152,
        end_poll: Option<unsafe extern "C" fn(Cq)> = 160,
        read_opcode: Option<unsafe extern "C" fn(Cq) -> u32> = 168,
        read_vendor_err: Option<unsafe extern "C" fn(Cq) -> u32> = 176,
        read_byte_len: Option<unsafe extern "C" fn(Cq) -> u32> = 184,
        read_imm_data: Option<unsafe extern "C" fn(Cq) -> u32> = 192,
        read_qp_num: Option<unsafe extern "C" fn(Cq) -> u32> = 200,
        read_src_qp: Option<unsafe extern "C" fn(Cq) -> u32> = 208,
        read_wc_flags: Option<unsafe extern "C" fn(Cq) -> c_uint> = 216,
        read_slid: Option<unsafe extern "C" fn(Cq) -> u32> = 224,
        read_sl: Option<unsafe extern "C" fn(Cq) -> u8> = 232,
        read_dlid_path_bits: Option<unsafe extern "C" fn(Cq) -> u8> = 240,
        read_completion_ts: Option<unsafe extern "C" fn(Cq) -> u64> = 248,
        read_cvlan: Option<unsafe extern "C" fn(Cq) -> u16> = 256,
        read_flow_tag: Option<unsafe extern "C" fn(Cq) -> u32> = 264,
        read_tm_info: Option<unsafe extern "C" fn(Cq, *mut c_void)> = 272,
        read_completion_wallclock_ns: Option<unsafe extern "C" fn(Cq) -> u64> = 280,
    }
}

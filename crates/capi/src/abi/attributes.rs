//! Attributes for creating and modifying objects.

use std::ffi::{c_int, c_uint, c_void};

use super::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_srq, ibv_td, ibv_xrcd};
use super::structures;

structures! {
    ibv_global_route = 24 {
        dgid: [u64; 2],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }
    ibv_ah_attr = 32 {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }
    ibv_qp_cap = 20 {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }
    ibv_qp_init_attr = 64 {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }
    ibv_qp_init_attr_ex = 136 {
        base: ibv_qp_init_attr_base,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: [u64; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }
    /// As `ibv_qp_init_attr`, but without the padding at its end, which `comp_mask` fills.
    #[repr(packed(4))]
    ibv_qp_init_attr_base = 60 {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }
    ibv_qp_attr = 144 {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }
    ibv_srq_attr = 12 {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }
    ibv_srq_init_attr = 24 {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }
    ibv_srq_init_attr_ex = 64 {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: [u32; 2],
    }
    ibv_cq_init_attr_ex = 56 {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }
    ibv_xrcd_init_attr = 12 {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }
    ibv_qp_open_attr = 32 {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: u32,
    }
    ibv_parent_domain_init_attr = 48 {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: usize,
        free: usize,
        pd_context: *mut c_void,
    }
    ibv_alloc_dm_attr = 16 {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }
    ibv_mr_init_attr = 72 {
        length: usize = 0,
        access: c_int = 8,
        comp_mask: u64 = 16,
        iova: u64 = 24,
        addr: *mut c_void = 32,
        fd: c_int = 40,
        fd_offset: u64 = 48,
        /// A DMA handle.
        dmah: *mut c_void = 56,
        /// Opaque; only in later headers.
        buf: *mut c_void = 64,
    }
    ibv_ece = 12 {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }
}

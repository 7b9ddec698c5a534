//! Traced functions in the tables that programs call through.

use std::sync::atomic::{AtomicPtr, Ordering};

use super::function::{Call, Function};
use super::record::{About, Argument};
use super::{optional, show};
use crate::abi::context::verbs_context;
use crate::abi::extended::{ibv_cq_ex, ibv_qp_ex};

fn traced<C: Call, F: Function>(slot: &AtomicPtr<()>, plain: F) -> F {
    slot.store(plain.address(), Ordering::Relaxed);
    F::traced::<C>()
}

/// Defines functions that install traced functions in a table: field, name of the call, its arguments, and the result
/// for "nothing found".
macro_rules! tables {
    ($( $(#[$about:meta])+ $function:ident: $type:ty {
        $( $($field:ident).+ => $name:ident ( $($argument:ident $(: $show:ident)?),* ) $(! $empty:expr)?; )+
    } )+) => {$(
        $(#[$about])+
        pub(crate) fn $function(table: &mut $type) {
            if !super::is_on() {
                return;
            }
            $({
                static PLAIN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
                struct Traced;
                impl Call for Traced {
                    const ABOUT: About = About {
                        name: stringify!($name),
                        arguments: &[$( Argument { name: stringify!($argument), show: optional!($( show::$show )?) } ),*],
                        empty_result: optional!($( $empty )?),
                    };
                    fn plain() -> *mut () {
                        PLAIN.load(Ordering::Relaxed)
                    }
                }
                table.$($field).+ = table.$($field).+.map(|plain| traced::<Traced, _>(&PLAIN, plain));
            })+
        }
    )+};
}

tables! {
    /// The table of an open device.
    context: verbs_context {
        context.ops.alloc_mw => ibv_alloc_mw(pd, kind: window_type);
        context.ops.bind_mw => ibv_bind_mw(qp, mw, bind: window_bind);
        context.ops.dealloc_mw => ibv_dealloc_mw(mw);
        context.ops.poll_cq => ibv_poll_cq(cq, num_entries, wc: completions) ! 0;
        context.ops.req_notify_cq => ibv_req_notify_cq(cq, solicited_only);
        context.ops.post_srq_recv => ibv_post_srq_recv(srq, wr: recv_wr, bad_wr);
        context.ops.post_send => ibv_post_send(qp, wr: send_wr, bad_wr);
        context.ops.post_recv => ibv_post_recv(qp, wr: recv_wr, bad_wr);
        query_port => ibv_query_port(context, port_num, attr: port, size);
        advise_mr => ibv_advise_mr(pd, advice, flags: hex, sg_list, num_sge);
        alloc_null_mr => ibv_alloc_null_mr(pd);
        reg_dm_mr => ibv_reg_dm_mr(pd, dm, dm_offset, length, access: access_flags);
        alloc_dm => ibv_alloc_dm(context, attr);
        free_dm => ibv_free_dm(dm);
        alloc_parent_domain => ibv_alloc_parent_domain(context, attr);
        dealloc_td => ibv_dealloc_td(td);
        alloc_td => ibv_alloc_td(context, attr);
        query_rt_values => ibv_query_rt_values_ex(context, values);
        create_cq_ex => ibv_create_cq_ex(context, attr: cq_init_ex);
        query_device_ex => ibv_query_device_ex(context, input, attr: device, size);
        open_qp => ibv_open_qp(context, attr: qp_open);
        create_qp_ex => ibv_create_qp_ex(context, attr: qp_init_ex);
        get_srq_num => ibv_get_srq_num(srq, srq_num: word);
        create_srq_ex => ibv_create_srq_ex(context, attr: srq_init_ex);
        open_xrcd => ibv_open_xrcd(context, attr);
        close_xrcd => ibv_close_xrcd(xrcd);
    }
    /// The table of a QP of the extended interface.
    queue_pair: ibv_qp_ex {
        wr_atomic_cmp_swp => ibv_wr_atomic_cmp_swp(qp: request_of, rkey: hex, remote_addr: hex, compare: hex, swap: hex);
        wr_atomic_fetch_add => ibv_wr_atomic_fetch_add(qp: request_of, rkey: hex, remote_addr: hex, add: hex);
        wr_bind_mw => ibv_wr_bind_mw(qp: request_of, mw, rkey: hex, bind_info: bind);
        wr_local_inv => ibv_wr_local_inv(qp: request_of, invalidate_rkey: hex);
        wr_rdma_read => ibv_wr_rdma_read(qp: request_of, rkey: hex, remote_addr: hex);
        wr_rdma_write => ibv_wr_rdma_write(qp: request_of, rkey: hex, remote_addr: hex);
        wr_rdma_write_imm => ibv_wr_rdma_write_imm(qp: request_of, rkey: hex, remote_addr: hex, imm_data: hex);
        wr_send => ibv_wr_send(qp: request_of);
        wr_send_imm => ibv_wr_send_imm(qp: request_of, imm_data: hex);
        wr_send_inv => ibv_wr_send_inv(qp: request_of, invalidate_rkey: hex);
        wr_send_tso => ibv_wr_send_tso(qp: request_of, hdr, hdr_sz, mss);
        wr_set_ud_addr => ibv_wr_set_ud_addr(qp, ah, remote_qpn: hex, remote_qkey: hex);
        wr_set_xrc_srqn => ibv_wr_set_xrc_srqn(qp, remote_srqn: hex);
        wr_set_inline_data => ibv_wr_set_inline_data(qp, addr, length);
        wr_set_inline_data_list => ibv_wr_set_inline_data_list(qp, num_buf, buf_list);
        wr_set_sge => ibv_wr_set_sge(qp, lkey: hex, addr: hex, length);
        wr_set_sge_list => ibv_wr_set_sge_list(qp, num_sge, sg_list: sg_list);
        wr_start => ibv_wr_start(qp);
        wr_complete => ibv_wr_complete(qp);
        wr_abort => ibv_wr_abort(qp);
        wr_atomic_write => ibv_wr_atomic_write(qp: request_of, rkey: hex, remote_addr: hex, atomic_wr);
        wr_flush => ibv_wr_flush(qp: request_of, rkey: hex, remote_addr: hex, len, type_, level);
    }
    /// The table of a CQ of the extended interface. The field that is read is the result.
    completion_queue: ibv_cq_ex {
        start_poll => ibv_start_poll(cq, attr) ! libc::ENOENT;
        next_poll => ibv_next_poll(cq) ! libc::ENOENT;
        end_poll => ibv_end_poll(cq);
        read_opcode => ibv_wc_read_opcode(cq);
        read_vendor_err => ibv_wc_read_vendor_err(cq);
        read_byte_len => ibv_wc_read_byte_len(cq);
        read_imm_data => ibv_wc_read_imm_data(cq);
        read_qp_num => ibv_wc_read_qp_num(cq);
        read_src_qp => ibv_wc_read_src_qp(cq);
        read_wc_flags => ibv_wc_read_wc_flags(cq);
        read_completion_ts => ibv_wc_read_completion_ts(cq);
        read_completion_wallclock_ns => ibv_wc_read_completion_wallclock_ns(cq);
    }
}

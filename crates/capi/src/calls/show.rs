//! Formatting of arguments that are more than a number. The list of exports and `tables` name these functions.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write;
use std::net::Ipv6Addr;

use ferroce::AttributeMask;

use super::names::{bits, one};
use super::record::{Finished, Raw, plain};
use crate::abi::attributes::*;
use crate::abi::constants::*;
use crate::abi::device::{ibv_device_attr, ibv_port_attr};
use crate::abi::extended::ibv_qp_ex;
use crate::abi::objects::ibv_async_event;
use crate::abi::work::{ibv_mw_bind, ibv_mw_bind_info, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc};

/// Entries of a list that are shown; the number of further ones follows.
const MAX_ENTRIES: usize = 16;

/// Defines functions that format a structure, or NULL.
macro_rules! structures {
    ($( $(#[$about:meta])* $name:ident: $type:ty, |$line:ident, $value:ident| $body:block )+) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As for [`super::record::Show`].
        pub(crate) unsafe fn $name($line: &mut String, call: &Finished<'_>) {
            // SAFETY: as the caller promises.
            let Some($value) = (unsafe { call.target::<$type>() }) else { return $line.push_str("NULL") };
            $body
        }
    )+};
}

structures! {
    /// `struct ibv_qp_init_attr`.
    qp_init: ibv_qp_init_attr, |line, attr| { show_qp_init(line, attr, "") }
    /// `struct ibv_qp_init_attr_ex`.
    qp_init_ex: ibv_qp_init_attr_ex, |line, attr| {
        let base = attr.base;
        let (send_cq, recv_cq, srq, qp_context) = (base.send_cq, base.recv_cq, base.srq, base.qp_context);
        let (cap, qp_type, sq_sig_all) = (base.cap, base.qp_type, base.sq_sig_all);
        let base = ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
        let mask = attr.comp_mask;
        let mut more = String::from(", comp_mask=");
        bits(&mut more, qp_init::NAMES, mask);
        if mask & qp_init::PD != 0 {
            let _ = write!(more, ", pd={:p}", attr.pd);
        }
        if mask & qp_init::XRCD != 0 {
            let _ = write!(more, ", xrcd={:p}", attr.xrcd);
        }
        if mask & qp_init::SEND_OPS_FLAGS != 0 {
            let _ = write!(more, ", send_ops_flags={:#x}", attr.send_ops_flags);
        }
        show_qp_init(line, &base, &more);
    }
    /// `struct ibv_qp_open_attr`.
    qp_open: ibv_qp_open_attr, |line, attr| {
        let _ = write!(line, "{{comp_mask={:#x}, qp_num={:#x}, xrcd={:p}, qp_type=", attr.comp_mask, attr.qp_num, attr.xrcd);
        one(line, qp_type::NAMES, attr.qp_type);
        line.push('}');
    }
    /// `struct ibv_ah_attr`.
    path: ibv_ah_attr, |line, attr| { show_path(line, attr) }
    /// `struct ibv_srq_init_attr`.
    srq_init: ibv_srq_init_attr, |line, attr| { show_srq(line, &attr.attr) }
    /// `struct ibv_srq_init_attr_ex`.
    srq_init_ex: ibv_srq_init_attr_ex, |line, attr| {
        show_srq(line, &attr.attr);
        line.push_str(", srq_type=");
        one(line, srq_type::NAMES, attr.srq_type);
        let _ = write!(line, ", pd={:p}, xrcd={:p}, cq={:p}", attr.pd, attr.xrcd, attr.cq);
    }
    /// `struct ibv_srq_attr`.
    srq_attr: ibv_srq_attr, |line, attr| { show_srq(line, attr) }
    /// `struct ibv_cq_init_attr_ex`.
    cq_init_ex: ibv_cq_init_attr_ex, |line, attr| {
        let _ = write!(
            line, "{{cqe={}, channel={:p}, comp_vector={}, wc_flags={:#x}, comp_mask={:#x}}}",
            attr.cqe, attr.channel, attr.comp_vector, attr.wc_flags, attr.comp_mask
        );
    }
    /// `struct ibv_port_attr`.
    port: ibv_port_attr, |line, attr| {
        line.push_str("{state=");
        one(line, port_state::NAMES, attr.state);
        line.push_str(", active_mtu=");
        show_mtu(line, attr.active_mtu);
        let _ = write!(line, ", lid={}, link_layer={}, gid_tbl_len={}}}", attr.lid, attr.link_layer, attr.gid_tbl_len);
    }
    /// `struct ibv_device_attr`, also at the start of the extended one.
    device: ibv_device_attr, |line, attr| {
        let _ = write!(
            line, "{{node_guid={:016x}, max_qp={}, max_qp_wr={}, max_sge={}, max_cqe={}, max_mr_size={:#x}, …}}",
            u64::from_be(attr.node_guid), attr.max_qp, attr.max_qp_wr, attr.max_sge, attr.max_cqe, attr.max_mr_size
        );
    }
    /// `union ibv_gid`, also at the start of `struct ibv_gid_entry`.
    gid: [u8; 16], |line, bytes| {
        let _ = write!(line, "{}", Ipv6Addr::from(*bytes));
    }
    /// A pointer that the call wrote.
    pointer: usize, |line, address| { plain(line, Raw::Pointer(*address)) }
    /// A number that the call wrote.
    number: c_int, |line, value| { let _ = write!(line, "{value}"); }
    /// A word of flags or a key that the call wrote.
    word: u32, |line, value| { let _ = write!(line, "{value:#x}"); }
    /// `struct ibv_async_event`.
    event: ibv_async_event, |line, event| {
        line.push('{');
        one(line, event::NAMES, event.event_type);
        let _ = write!(line, ", element={:#x}}}", event.element);
    }
    /// `struct ibv_mw_bind`.
    window_bind: ibv_mw_bind, |line, bind| {
        let _ = write!(line, "{{wr_id={:#x}, ", bind.wr_id);
        bits(line, send::NAMES, bind.send_flags);
        line.push_str(", ");
        show_bind(line, &bind.bind_info);
        line.push('}');
    }
    /// `struct ibv_mw_bind_info`.
    bind: ibv_mw_bind_info, |line, bind| { show_bind(line, bind) }
    /// `struct ibv_ece`.
    ece: ibv_ece, |line, ece| {
        let _ = write!(line, "{{vendor_id={:#x}, options={:#x}, comp_mask={:#x}}}", ece.vendor_id, ece.options, ece.comp_mask);
    }
    /// A QP of the extended interface, with the fields that the program sets before a WR.
    request_of: ibv_qp_ex, |line, qp| {
        let _ = write!(line, "{:p}{{wr_id={:#x}, wr_flags=", std::ptr::from_ref(qp), qp.wr_id);
        bits(line, send::NAMES, qp.wr_flags);
        line.push('}');
    }
}

/// `struct ibv_qp_attr`: the fields in the mask, which is the next argument.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn qp_attr(line: &mut String, call: &Finished<'_>) {
    // SAFETY: as the caller promises.
    let Some(attr) = (unsafe { call.target::<ibv_qp_attr>() }) else {
        return line.push_str("NULL");
    };
    let mask = call.number(1) as u32;
    let mut separator = "{";
    let mut field = |wanted: AttributeMask, show: &dyn Fn(&mut String)| {
        if mask & wanted.bits() != 0 {
            line.push_str(std::mem::replace(&mut separator, ", "));
            show(line);
        }
    };
    let text = |text: std::fmt::Arguments<'_>, line: &mut String| {
        let _ = line.write_fmt(text);
    };
    field(AttributeMask::STATE, &|line| {
        line.push_str("qp_state=");
        one(line, qp_state::NAMES, attr.qp_state);
    });
    field(AttributeMask::CURRENT_STATE, &|line| {
        line.push_str("cur_qp_state=");
        one(line, qp_state::NAMES, attr.cur_qp_state);
    });
    field(AttributeMask::PARTITION, &|line| {
        text(format_args!("pkey_index={}", attr.pkey_index), line)
    });
    field(AttributeMask::PORT, &|line| text(format_args!("port_num={}", attr.port_num), line));
    field(AttributeMask::ACCESS, &|line| {
        line.push_str("qp_access_flags=");
        bits(line, access::NAMES, attr.qp_access_flags);
    });
    field(AttributeMask::QUEUE_KEY, &|line| text(format_args!("qkey={:#x}", attr.qkey), line));
    field(AttributeMask::PATH_MTU, &|line| {
        line.push_str("path_mtu=");
        show_mtu(line, attr.path_mtu);
    });
    let number = attr.dest_qp_num;
    field(AttributeMask::DESTINATION, &|line| text(format_args!("dest_qp_num={number:#x}"), line));
    field(AttributeMask::RECEIVE_PSN, &|line| {
        text(format_args!("rq_psn={:#x}", attr.rq_psn), line)
    });
    field(AttributeMask::SEND_PSN, &|line| text(format_args!("sq_psn={:#x}", attr.sq_psn), line));
    field(AttributeMask::PATH, &|line| {
        line.push_str("ah_attr=");
        show_path(line, &attr.ah_attr);
    });
    field(AttributeMask::ALTERNATE_PATH, &|line| {
        line.push_str("alt_ah_attr=");
        show_path(line, &attr.alt_ah_attr);
    });
    field(AttributeMask::MIGRATION, &|line| {
        line.push_str("path_mig_state=");
        one(line, migration::NAMES, attr.path_mig_state);
    });
    for (wanted, name, value) in [
        (AttributeMask::MAX_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic),
        (AttributeMask::MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic),
        (AttributeMask::MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer),
        (AttributeMask::TIMEOUT, "timeout", attr.timeout),
        (AttributeMask::RETRY_COUNT, "retry_cnt", attr.retry_cnt),
        (AttributeMask::RNR_RETRY, "rnr_retry", attr.rnr_retry),
        (AttributeMask::DRAIN_NOTICE, "en_sqd_async_notify", attr.en_sqd_async_notify),
    ] {
        field(wanted, &|line| text(format_args!("{name}={value}"), line));
    }
    field(AttributeMask::CAPABILITIES, &|line| {
        line.push_str("cap=");
        show_capabilities(line, &attr.cap);
    });
    field(AttributeMask::RATE_LIMIT, &|line| {
        text(format_args!("rate_limit={}", attr.rate_limit), line)
    });
    line.push_str(if separator == "{" { "{}" } else { "}" });
}

/// Defines functions that format a number by its name, or by the names of its bits.
macro_rules! named {
    ($( $(#[$about:meta])+ $name:ident: $how:ident $family:ident; )+) => {$(
        $(#[$about])+
        ///
        /// # Safety
        /// None: it takes a number.
        pub(crate) unsafe fn $name(line: &mut String, call: &Finished<'_>) {
            $how(line, $family::NAMES, call.number(0) as u32);
        }
    )+};
}

named! {
    /// `enum ibv_access_flags`.
    access_flags: bits access;
    /// `enum ibv_srq_attr_mask`.
    srq_mask: bits srq_attr;
    /// `enum ibv_rereg_mr_flags`.
    rereg_flags: bits rereg;
    /// `enum ibv_mw_type`.
    window_type: one mw_type;
    /// `enum ibv_wc_status`.
    status_code: one status;
    /// `enum ibv_event_type`.
    event_code: one event;
    /// `enum ibv_port_state`.
    port_code: one port_state;
}

/// A key, a handle or a remote address.
///
/// # Safety
/// None: it takes a number.
pub(crate) unsafe fn hex(line: &mut String, call: &Finished<'_>) {
    let _ = write!(line, "{:#x}", call.number(0));
}

/// `enum ibv_qp_attr_mask`.
///
/// # Safety
/// None: it takes a number.
pub(crate) unsafe fn qp_mask(line: &mut String, call: &Finished<'_>) {
    let mask = call.number(0) as u32;
    let known =
        AttributeMask::from_bits(mask & AttributeMask::ALL.bits()).unwrap_or(AttributeMask::NONE);
    let mut separator = "";
    for attribute in known.iter() {
        line.push_str(std::mem::replace(&mut separator, "|"));
        line.push_str(attribute.verbs_name().trim_start_matches("IBV_QP_"));
    }
    let rest = mask & !known.bits();
    if rest != 0 || separator.is_empty() {
        let _ = write!(line, "{separator}{rest:#x}");
    }
}

/// A string.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn text(line: &mut String, call: &Finished<'_>) {
    // SAFETY: as the caller promises.
    match unsafe { call.target::<c_char>() } {
        Some(text) => {
            // SAFETY: as the caller promises.
            let _ = write!(line, "{:?}", unsafe { CStr::from_ptr(text) });
        }
        None => line.push_str("NULL"),
    }
}

/// A linked list, up to [`MAX_ENTRIES`].
///
/// # Safety
/// Its entries are the program's.
unsafe fn linked<T>(
    line: &mut String,
    first: *const T,
    next: fn(&T) -> *mut T,
    show: impl Fn(&mut String, &T),
) {
    let mut at = first;
    line.push('[');
    let mut count = 0;
    // SAFETY: as the caller promises.
    while let Some(entry) = unsafe { at.as_ref() } {
        if count < MAX_ENTRIES {
            line.push_str(if count == 0 { "" } else { ", " });
            show(line, entry);
        }
        count += 1;
        at = next(entry);
    }
    if count > MAX_ENTRIES {
        let _ = write!(line, ", … {} more", count - MAX_ENTRIES);
    }
    line.push(']');
}

/// A list of `struct ibv_send_wr`.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn send_wr(line: &mut String, call: &Finished<'_>) {
    let first = std::ptr::with_exposed_provenance::<ibv_send_wr>(call.number(0) as usize);
    // SAFETY: as the caller promises.
    unsafe { linked(line, first, |one| one.next, show_send) };
}

/// A list of `struct ibv_recv_wr`.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn recv_wr(line: &mut String, call: &Finished<'_>) {
    let first = std::ptr::with_exposed_provenance::<ibv_recv_wr>(call.number(0) as usize);
    let show = |line: &mut String, one: &ibv_recv_wr| {
        let _ = write!(line, "{{wr_id={:#x}, ", one.wr_id);
        // SAFETY: as the caller promises.
        unsafe { show_sg_list(line, one.sg_list, one.num_sge) };
        line.push('}');
    };
    // SAFETY: as the caller promises.
    unsafe { linked(line, first, |one| one.next, show) };
}

/// The CQEs that the call returned.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn completions(line: &mut String, call: &Finished<'_>) {
    let Raw::Signed(count @ 0..) = call.result else { return plain(line, call.arguments[call.at]) };
    let first = std::ptr::with_exposed_provenance::<ibv_wc>(call.number(0) as usize);
    line.push('[');
    for at in 0..(count as usize).min(MAX_ENTRIES) {
        line.push_str(if at == 0 { "" } else { ", " });
        // SAFETY: the call wrote `count` entries.
        show_completion(line, unsafe { &*first.add(at) });
    }
    if count as usize > MAX_ENTRIES {
        let _ = write!(line, ", … {} more", count as usize - MAX_ENTRIES);
    }
    line.push(']');
}

/// A list of `struct ibv_sge`, whose length is the previous argument.
///
/// # Safety
/// As for [`super::record::Show`].
pub(crate) unsafe fn sg_list(line: &mut String, call: &Finished<'_>) {
    let list = std::ptr::with_exposed_provenance::<ibv_sge>(call.number(0) as usize);
    let length = Finished { at: call.at.saturating_sub(1), ..*call }.number(0);
    // SAFETY: as the caller promises.
    unsafe { show_sg_list(line, list, length as c_int) };
}

fn show_qp_init(line: &mut String, attr: &ibv_qp_init_attr, more: &str) {
    line.push_str("{qp_type=");
    one(line, qp_type::NAMES, attr.qp_type);
    let _ = write!(line, ", send_cq={:p}, recv_cq={:p}", attr.send_cq, attr.recv_cq);
    if !attr.srq.is_null() {
        let _ = write!(line, ", srq={:p}", attr.srq);
    }
    line.push_str(", cap=");
    show_capabilities(line, &attr.cap);
    let _ = write!(line, ", sq_sig_all={}{more}}}", attr.sq_sig_all);
}

fn show_capabilities(line: &mut String, cap: &ibv_qp_cap) {
    let _ = write!(
        line,
        "{{max_send_wr={}, max_recv_wr={}, max_send_sge={}, max_recv_sge={}, max_inline_data={}}}",
        cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data
    );
}

fn show_srq(line: &mut String, attr: &ibv_srq_attr) {
    let (wr, sge, limit) = (attr.max_wr, attr.max_sge, attr.srq_limit);
    let _ = write!(line, "{{max_wr={wr}, max_sge={sge}, srq_limit={limit}}}");
}

fn show_mtu(line: &mut String, code: u32) {
    let _ = match mtu::NAMES.iter().find(|(value, _)| *value == code) {
        Some((_, name)) => write!(line, "{}", name.trim_start_matches("MTU_")),
        None => write!(line, "{code}"),
    };
}

fn show_path(line: &mut String, attr: &ibv_ah_attr) {
    line.push('{');
    if attr.is_global != 0 {
        let [high, low] = attr.grh.dgid.map(u64::from_be);
        let gid = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
        let (index, hops, class) =
            (attr.grh.sgid_index, attr.grh.hop_limit, attr.grh.traffic_class);
        let _ = write!(
            line,
            "dgid={gid}, sgid_index={index}, hop_limit={hops}, traffic_class={class}, "
        );
    } else {
        let _ = write!(line, "dlid={}, ", attr.dlid);
    }
    let _ = write!(line, "sl={}, port_num={}}}", attr.sl, attr.port_num);
}

/// # Safety
/// The list is the program's.
unsafe fn show_sg_list(line: &mut String, list: *const ibv_sge, length: c_int) {
    line.push('[');
    for at in
        0..usize::try_from(length).unwrap_or(0).min(if list.is_null() { 0 } else { MAX_ENTRIES })
    {
        // SAFETY: as the caller promises.
        let sge = unsafe { &*list.add(at) };
        let separator = if at == 0 { "" } else { ", " };
        let (addr, length, lkey) = (sge.addr, sge.length, sge.lkey);
        let _ = write!(line, "{separator}{{addr={addr:#x}, length={length}, lkey={lkey:#x}}}");
    }
    line.push(']');
}

fn show_bind(line: &mut String, bind: &ibv_mw_bind_info) {
    let _ = write!(line, "{{mr={:p}, addr={:#x}, length={}, ", bind.mr, bind.addr, bind.length);
    bits(line, access::NAMES, bind.mw_access_flags);
    line.push('}');
}

fn show_send(line: &mut String, request: &ibv_send_wr) {
    let _ = write!(line, "{{wr_id={:#x}, ", request.wr_id);
    one(line, wr::NAMES, request.opcode);
    line.push_str(", ");
    // SAFETY: the program's request, with what it points to.
    unsafe { show_sg_list(line, request.sg_list, request.num_sge) };
    // SAFETY: any bytes are a valid value of these.
    let (rdma, atomic, ud) = unsafe { (request.wr.rdma, request.wr.atomic, request.wr.ud) };
    let imm = u32::from_be(request.imm_data);
    let _ = match request.opcode {
        wr::RDMA_WRITE | wr::RDMA_WRITE_WITH_IMM | wr::RDMA_READ | wr::ATOMIC_WRITE => {
            write!(line, ", remote_addr={:#x}, rkey={:#x}", rdma.remote_addr, rdma.rkey)
        }
        wr::ATOMIC_CMP_AND_SWP | wr::ATOMIC_FETCH_AND_ADD => write!(
            line,
            ", remote_addr={:#x}, rkey={:#x}, compare_add={:#x}, swap={:#x}",
            atomic.remote_addr, atomic.rkey, atomic.compare_add, atomic.swap
        ),
        wr::SEND_WITH_INV | wr::LOCAL_INV => {
            write!(line, ", invalidate_rkey={:#x}", request.imm_data)
        }
        // The WR does not contain the service; other services leave this field empty.
        wr::SEND | wr::SEND_WITH_IMM if !ud.ah.is_null() => {
            let (number, key) = (ud.remote_qpn, ud.remote_qkey);
            write!(line, ", ah={:p}, remote_qpn={number:#x}, remote_qkey={key:#x}", ud.ah)
        }
        _ => Ok(()),
    };
    if matches!(request.opcode, wr::SEND_WITH_IMM | wr::RDMA_WRITE_WITH_IMM) {
        let _ = write!(line, ", imm={imm:#x}");
    }
    line.push_str(", ");
    bits(line, send::NAMES, request.send_flags);
    line.push('}');
}

fn show_completion(line: &mut String, completion: &ibv_wc) {
    let _ = write!(line, "{{wr_id={:#x}, ", completion.wr_id);
    one(line, status::NAMES, completion.status);
    // The other fields are invalid if the WR failed: ibv_poll_cq(3).
    if completion.status == status::SUCCESS {
        line.push_str(", ");
        one(line, wc::NAMES, completion.opcode);
        let _ = write!(line, ", byte_len={}", completion.byte_len);
        if completion.wc_flags != 0 {
            line.push_str(", ");
            bits(line, wc_flags::NAMES, completion.wc_flags);
        }
        if completion.wc_flags & wc_flags::WITH_IMM != 0 {
            let _ = write!(line, ", imm={:#x}", u32::from_be(completion.imm_data));
        }
        if completion.wc_flags & wc_flags::GRH != 0 {
            let _ = write!(line, ", src_qp={:#x}", completion.src_qp);
        }
    }
    let _ = write!(line, ", qp_num={:#x}}}", completion.qp_num);
}

//! Posting by the extended interface: one call for each part of a WR; the batch is posted by `ibv_wr_complete`.

use std::ffi::{c_int, c_void};

use ferroce::{
    Data, FlushPlacement, FlushSelectivity, Immediate, Operation, QKey, Qpn, RKey, RemoteAddress,
    SendRequest, ServiceType, UdSendRequest, VirtualAddress, WorkId,
};

use crate::abi::Abi;
use crate::abi::constants::{send, wr};
use crate::abi::extended::ibv_qp_ex;
use crate::abi::objects::{ibv_ah, ibv_mw};
use crate::abi::work::{ibv_data_buf, ibv_mw_bind_info, ibv_sge};
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::handle::ah::AhHandle;
use crate::handle::qp::{Batch, BatchedRequest, QpHandle};
use crate::reason::invalid;
use crate::sync::lock;
use crate::verbs::mw;
use crate::verbs::post::{gather, sg_list};

type Qp = *mut ibv_qp_ex;

/// The bits of `ibv_qp_create_send_ops_flags` by opcode.
const OPERATIONS: [(u32, u64); 12] = [
    (wr::RDMA_WRITE, 1),
    (wr::RDMA_WRITE_WITH_IMM, 1 << 1),
    (wr::SEND, 1 << 2),
    (wr::SEND_WITH_IMM, 1 << 3),
    (wr::RDMA_READ, 1 << 4),
    (wr::ATOMIC_CMP_AND_SWP, 1 << 5),
    (wr::ATOMIC_FETCH_AND_ADD, 1 << 6),
    (wr::LOCAL_INV, 1 << 7),
    (wr::BIND_MW, 1 << 8),
    (wr::SEND_WITH_INV, 1 << 9),
    (wr::FLUSH, 1 << 11),
    (wr::ATOMIC_WRITE, 1 << 12),
];

/// Checks that a service supports these operations.
pub(crate) fn check_operations(service: ServiceType, operations: u64) -> Result<()> {
    let sends = 1 << 2 | 1 << 3;
    let writes = 1 | 1 << 1;
    let possible: u64 = match service {
        ServiceType::UnreliableDatagram => sends,
        ServiceType::UnreliableConnection => sends | writes | 1 << 7 | 1 << 8 | 1 << 9,
        ServiceType::XrcTarget => 0,
        _ => OPERATIONS.iter().fold(0, |all, (_, bit)| all | bit),
    };
    if operations & !possible == 0 { Ok(()) } else { Err(Errno::UNSUPPORTED) }
}

pub(crate) fn table() -> ibv_qp_ex {
    ibv_qp_ex {
        wr_atomic_cmp_swp: Some(atomic_cmp_swp),
        wr_atomic_fetch_add: Some(atomic_fetch_add),
        wr_bind_mw: Some(bind_mw),
        wr_local_inv: Some(local_inv),
        wr_rdma_read: Some(rdma_read),
        wr_rdma_write: Some(rdma_write),
        wr_rdma_write_imm: Some(rdma_write_imm),
        wr_send: Some(send_plain),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_send_tso: Some(send_tso),
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_xrc_srqn: Some(set_xrc_srqn),
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        wr_atomic_write: Some(atomic_write),
        wr_flush: Some(flush),
        ..Abi::zeroed()
    }
}

/// Calls `act` with the batch of a QP, which keeps the first error.
fn with(qp: Qp, act: impl FnOnce(&QpHandle, &mut Batch) -> Result<()>) {
    entry::nothing(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp) }?;
        let mut batch = lock(handle.batch.as_ref().ok_or(Errno::INVALID)?);
        if let Err(error) = act(handle, &mut batch) {
            batch.failed = batch.failed.or(Some(error));
        }
        Ok(())
    });
}

/// Starts a WR.
fn begin(qp: Qp, opcode: u32, operation: impl FnOnce() -> Result<Operation>) {
    with(qp, |_, batch| {
        let bit = OPERATIONS.iter().find(|(code, _)| *code == opcode).map_or(0, |(_, bit)| *bit);
        if batch.operations & bit == 0 {
            return Err(invalid(format_args!(
                "opcode {opcode} is not in send_ops_flags that the queue pair was created with"
            )));
        }
        // SAFETY: the program writes these fields before the call, on this thread.
        let (id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
        let request = SendRequest {
            signaled: flags & send::SIGNALED != 0,
            solicited: flags & send::SOLICITED != 0,
            fence: flags & send::FENCE != 0,
            ..SendRequest::new(WorkId(id), operation()?, Data::NONE)
        };
        batch.requests.push(BatchedRequest { request, datagram: None });
        Ok(())
    });
}

/// Changes the newest WR.
fn amend(qp: Qp, act: impl FnOnce(&mut BatchedRequest) -> Result<()>) {
    with(qp, |_, batch| match batch.requests.last_mut() {
        Some(newest) => act(newest),
        // The WR was refused.
        None if batch.failed.is_some() => Ok(()),
        None => Err(invalid(format_args!("no operation such as ibv_wr_send was called before"))),
    });
}

fn remote(address: u64, key: u32) -> RemoteAddress {
    RemoteAddress { address: VirtualAddress(address), key: RKey(key) }
}

fn immediate(value: u32) -> Option<Immediate> {
    Some(Immediate(u32::from_be(value)))
}

unsafe extern "C" fn atomic_cmp_swp(qp: Qp, key: u32, address: u64, compare: u64, swap: u64) {
    let remote = remote(address, key);
    begin(qp, wr::ATOMIC_CMP_AND_SWP, || Ok(Operation::CompareSwap { remote, compare, swap }));
}

unsafe extern "C" fn atomic_fetch_add(qp: Qp, key: u32, address: u64, add: u64) {
    let remote = remote(address, key);
    begin(qp, wr::ATOMIC_FETCH_AND_ADD, || Ok(Operation::FetchAdd { remote, add }));
}

unsafe extern "C" fn bind_mw(qp: Qp, mw: *mut ibv_mw, key: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: the program's window and structure.
    begin(qp, wr::BIND_MW, || unsafe { mw::bind(mw, key, entry::read(info)?) });
}

unsafe extern "C" fn local_inv(qp: Qp, key: u32) {
    begin(qp, wr::LOCAL_INV, || Ok(Operation::LocalInvalidate { key: RKey(key) }));
}

unsafe extern "C" fn rdma_read(qp: Qp, key: u32, address: u64) {
    let remote = remote(address, key);
    begin(qp, wr::RDMA_READ, || Ok(Operation::Read { remote }));
}

unsafe extern "C" fn rdma_write(qp: Qp, key: u32, address: u64) {
    let remote = remote(address, key);
    begin(qp, wr::RDMA_WRITE, || Ok(Operation::Write { remote, immediate: None }));
}

unsafe extern "C" fn rdma_write_imm(qp: Qp, key: u32, address: u64, value: u32) {
    let (remote, immediate) = (remote(address, key), immediate(value));
    begin(qp, wr::RDMA_WRITE_WITH_IMM, || Ok(Operation::Write { remote, immediate }));
}

unsafe extern "C" fn send_plain(qp: Qp) {
    begin(qp, wr::SEND, || Ok(Operation::SEND));
}

unsafe extern "C" fn send_imm(qp: Qp, value: u32) {
    let immediate = immediate(value);
    begin(qp, wr::SEND_WITH_IMM, || Ok(Operation::Send { immediate, invalidate: None }));
}

unsafe extern "C" fn send_inv(qp: Qp, key: u32) {
    let invalidate = Some(RKey(key));
    begin(qp, wr::SEND_WITH_INV, || Ok(Operation::Send { immediate: None, invalidate }));
}

/// TCP segmentation offload of raw packets: not supported.
unsafe extern "C" fn send_tso(qp: Qp, _header: *mut c_void, _size: u16, _mss: u16) {
    with(qp, |_, _| Err(Errno::UNSUPPORTED));
}

unsafe extern "C" fn flush(
    qp: Qp,
    key: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    /// `IBV_FLUSH_MR`: the length is ignored.
    const REGION: u8 = 1;
    begin(qp, wr::FLUSH, || {
        let known = matches!(placement, 1..=3) && level <= REGION;
        let length = u32::try_from(if level == REGION { 0 } else { length }).ok();
        Ok(Operation::Flush {
            remote: remote(address, key),
            length: length.filter(|_| known).ok_or_else(|| {
                invalid(format_args!("FLUSH with level {level}, type {placement:#x}"))
            })?,
            selectivity: FlushSelectivity(level),
            placement: FlushPlacement(placement),
        })
    });
}

/// Copies the program's 8 bytes.
unsafe extern "C" fn atomic_write(qp: Qp, key: u32, address: u64, value: *const c_void) {
    let remote = remote(address, key);
    begin(qp, wr::ATOMIC_WRITE, || Ok(Operation::AtomicWrite { remote }));
    amend(qp, |newest| {
        let mut bytes = Vec::with_capacity(8);
        // SAFETY: 8 bytes of the program.
        unsafe { gather(&mut bytes, value.expose_provenance(), 8) }?;
        newest.request.data = Data::Inline(bytes.into());
        Ok(())
    });
}

unsafe extern "C" fn set_ud_addr(qp: Qp, ah: *mut ibv_ah, number: u32, key: u32) {
    amend(qp, |newest| {
        // SAFETY: the program's address handle.
        unsafe { AhHandle::of(ah) }?;
        newest.datagram = Some((ah.expose_provenance(), Qpn(number), QKey(key)));
        Ok(())
    });
}

unsafe extern "C" fn set_xrc_srqn(qp: Qp, number: u32) {
    amend(qp, |newest| {
        newest.request.receive_queue = Some(Qpn(number));
        Ok(())
    });
}

unsafe extern "C" fn set_inline_data(qp: Qp, address: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr: address, length };
    // SAFETY: the program's buffer.
    unsafe { set_inline_data_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn set_inline_data_list(qp: Qp, length: usize, list: *const ibv_data_buf) {
    amend(qp, |newest| {
        let mut bytes = Vec::new();
        // SAFETY: the program's list.
        for one in unsafe { entry::list(list, length) }? {
            // SAFETY: the program's bytes.
            unsafe { gather(&mut bytes, one.addr.expose_provenance(), one.length) }?;
        }
        newest.request.data = Data::Inline(bytes.into());
        Ok(())
    });
}

unsafe extern "C" fn set_sge(qp: Qp, key: u32, address: u64, length: u32) {
    let one = ibv_sge { addr: address, length, lkey: key };
    // SAFETY: one local entry.
    unsafe { set_sge_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn set_sge_list(qp: Qp, length: usize, list: *const ibv_sge) {
    amend(qp, |newest| {
        // SAFETY: the program's list.
        newest.request.data = Data::SgList(unsafe { sg_list(list, length) }?);
        Ok(())
    });
}

unsafe extern "C" fn start(qp: Qp) {
    with(qp, |_, batch| {
        batch.requests.clear();
        batch.failed = None;
        Ok(())
    });
}

/// Posts the whole batch, or nothing.
unsafe extern "C" fn complete(qp: Qp) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp) }?;
        let mut batch = lock(handle.batch.as_ref().ok_or(Errno::INVALID)?);
        let requests = std::mem::take(&mut batch.requests);
        if let Some(error) = batch.failed.take() {
            return Err(error);
        }
        if handle.queue_pair.send_room() < requests.len() {
            return Err(Errno::NO_MEMORY);
        }
        let capabilities = handle.queue_pair.capabilities();
        // Checked before the first is posted.
        if !requests.iter().all(|one| fits(&one.request.data, &capabilities)) {
            return Err(invalid(format_args!(
                "a request has more SGEs or inline data than the queue pair was created for ({}, {} bytes)",
                capabilities.max_send_sge, capabilities.max_inline_data
            )));
        }
        let posted = if handle.service == ServiceType::UnreliableDatagram {
            let datagrams: Option<Vec<_>> = requests.into_iter().map(datagram).collect();
            let datagrams = datagrams
                .ok_or_else(|| invalid(format_args!("a datagram without ibv_wr_set_ud_addr")))?;
            handle.queue_pair.post_datagrams(datagrams)
        } else {
            handle.queue_pair.post_sends(requests.into_iter().map(|one| one.request))
        };
        Ok(posted.result?)
    })
}

fn fits(data: &Data, capabilities: &ferroce::Capabilities) -> bool {
    match data {
        Data::Inline(bytes) => bytes.len() <= capabilities.max_inline_data.max(8) as usize,
        Data::SgList(sg_list) => sg_list.as_slice().len() <= capabilities.max_send_sge as usize,
    }
}

fn datagram(one: BatchedRequest) -> Option<UdSendRequest> {
    let (handle, destination, queue_key) = one.datagram?;
    // SAFETY: it was checked when it was set, and the program keeps it until the WR is posted.
    let handle = unsafe { AhHandle::of(std::ptr::with_exposed_provenance(handle)) }.ok()?;
    let Operation::Send { immediate, .. } = one.request.operation else { return None };
    Some(UdSendRequest {
        immediate,
        signaled: one.request.signaled,
        solicited: one.request.solicited,
        ..handle.address.request(one.request.id, destination, queue_key, one.request.data)
    })
}

unsafe extern "C" fn abort(qp: Qp) {
    // SAFETY: as for `start`, which discards the batch.
    unsafe { start(qp) };
}

//! Posting: a list of the program's WRs is converted and posted by one call.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

use ferroce::{
    Data, Immediate, LKey, Operation, Posted, QKey, Qpn, RKey, ReceiveRequest, RemoteAddress,
    SendRequest, ServiceType, SgList, Sge, UdSendRequest, Uncancellable, VirtualAddress, WorkId,
};

use crate::abi::constants::{send, wr};
use crate::abi::objects::ibv_qp;
use crate::abi::work::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use crate::entry::{self, Errno, Result};
use crate::handle::Handle;
use crate::handle::ah::AhHandle;
use crate::handle::qp::QpHandle;
use crate::reason::invalid;
use crate::verbs::mw;

/// Converts an SG list.
///
/// # Safety
/// The list has this length.
#[inline]
pub(crate) unsafe fn sg_list(list: *const ibv_sge, length: usize) -> Result<SgList> {
    // SAFETY: as the caller promises.
    let list = unsafe { entry::list(list, length) }?;
    let sge = |one: &ibv_sge| Sge {
        key: LKey(one.lkey),
        address: VirtualAddress(one.addr),
        length: one.length,
    };
    Ok(match list {
        [] => SgList::NONE,
        [one] => sge(one).into(),
        many => many.iter().map(sge).collect::<Vec<_>>().as_slice().into(),
    })
}

/// Appends the program's bytes at this address.
///
/// # Safety
/// The program may read them.
pub(crate) unsafe fn gather(out: &mut Vec<u8>, address: usize, length: usize) -> Result<()> {
    // SAFETY: as the caller promises.
    out.extend_from_slice(unsafe { inline_bytes(address, length, out.len()) }?);
    Ok(())
}

/// The program's bytes at this address, which follow `before` others. More bytes than any QP takes inline are not read: they
/// may not exist.
///
/// # Safety
/// The program may read them.
#[inline]
unsafe fn inline_bytes<'a>(address: usize, length: usize, before: usize) -> Result<&'a [u8]> {
    let max = ferroce::Limits::MAX_INLINE_DATA as usize;
    if length > max.saturating_sub(before) {
        let given = before.saturating_add(length);
        return Err(invalid(format_args!("{given} bytes of inline data; the device allows {max}")));
    }
    // SAFETY: as the caller promises.
    unsafe { entry::list(ptr::with_exposed_provenance::<u8>(address), length) }
}

/// The local data of a WR.
///
/// # Safety
/// The WR is the program's, with everything that it points to.
#[inline]
unsafe fn data(request: &ibv_send_wr) -> Result<Data> {
    let length = sges(request.num_sge)?;
    if request.send_flags & send::INLINE == 0 {
        // SAFETY: as the caller promises.
        return Ok(Data::SgList(unsafe { sg_list(request.sg_list, length) }?));
    }
    // SAFETY: as the caller promises.
    let list = unsafe { entry::list(request.sg_list, length) }?;
    if let [one] = list {
        // SAFETY: inline data needs no L_Key, but the program must be able to read it.
        let bytes = unsafe { inline_bytes(one.addr as usize, one.length as usize, 0) }?;
        return Ok(Data::Inline(bytes.into()));
    }
    let total: usize = list.iter().map(|one| one.length as usize).sum();
    let mut bytes = Vec::with_capacity(total.min(ferroce::Limits::MAX_INLINE_DATA as usize));
    for one in list {
        // SAFETY: as above.
        unsafe { gather(&mut bytes, one.addr as usize, one.length as usize) }?;
    }
    Ok(Data::Inline(bytes.into()))
}

/// The length of an SG list.
#[inline]
fn sges(count: c_int) -> Result<usize> {
    usize::try_from(count).map_err(|_| invalid(format_args!("num_sge is {count}")))
}

fn immediate(request: &ibv_send_wr) -> Option<Immediate> {
    Some(Immediate(u32::from_be(request.imm_data)))
}

/// The operation and the data of a WR.
///
/// # Safety
/// The WR is the program's, with everything that it points to.
#[inline]
unsafe fn operation(request: &ibv_send_wr) -> Result<(Operation, Data)> {
    // SAFETY: any bytes are a valid value of these.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = RemoteAddress { address: VirtualAddress(rdma.remote_addr), key: RKey(rdma.rkey) };
    let word =
        RemoteAddress { address: VirtualAddress(atomic.remote_addr), key: RKey(atomic.rkey) };
    let operation = match request.opcode {
        wr::SEND => Operation::SEND,
        wr::SEND_WITH_IMM => Operation::Send { immediate: immediate(request), invalidate: None },
        wr::SEND_WITH_INV => {
            Operation::Send { immediate: None, invalidate: Some(RKey(request.imm_data)) }
        }
        wr::RDMA_WRITE => Operation::Write { remote, immediate: None },
        wr::RDMA_WRITE_WITH_IMM => Operation::Write { remote, immediate: immediate(request) },
        wr::RDMA_READ => Operation::Read { remote },
        wr::ATOMIC_CMP_AND_SWP => {
            Operation::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
        }
        wr::ATOMIC_FETCH_AND_ADD => Operation::FetchAdd { remote: word, add: atomic.compare_add },
        wr::ATOMIC_WRITE => Operation::AtomicWrite { remote },
        wr::LOCAL_INV => {
            return Ok((Operation::LocalInvalidate { key: RKey(request.imm_data) }, Data::NONE));
        }
        wr::BIND_MW => {
            let bind = &request.bind_mw;
            // SAFETY: as the caller promises.
            let operation = unsafe { mw::bind(bind.mw, bind.rkey, &bind.bind_info) }?;
            return Ok((operation, Data::NONE));
        }
        unknown => return Err(invalid(format_args!("opcode {unknown} is unknown"))),
    };
    // Data that a response writes cannot be inline.
    if request.send_flags & send::INLINE != 0
        && operation.wants_response()
        && request.opcode != wr::ATOMIC_WRITE
    {
        let why = "IBV_SEND_INLINE with an operation whose response writes to the SG list";
        return Err(invalid(format_args!("{why}")));
    }
    // SAFETY: as the caller promises.
    Ok((operation, unsafe { data(request) }?))
}

/// Converts a WR of the most common kind: a SEND or RDMA WRITE of one SGE, without immediate data. `None` if it is another, or has to
/// be refused: [`operation`] decides.
///
/// # Safety
/// The WR is the program's, with everything that it points to.
#[inline(always)]
unsafe fn message(request: &ibv_send_wr) -> Option<(Operation, Data)> {
    let has_one = request.num_sge == 1 && request.send_flags & send::INLINE == 0;
    // SAFETY: as the caller promises.
    let sge = unsafe { request.sg_list.as_ref() }.filter(|_| has_one)?;
    let sge = Sge { key: LKey(sge.lkey), address: VirtualAddress(sge.addr), length: sge.length };
    let operation = match request.opcode {
        wr::SEND => Operation::SEND,
        wr::RDMA_WRITE => {
            // SAFETY: any bytes are a valid value.
            let rdma = unsafe { request.wr.rdma };
            let address = VirtualAddress(rdma.remote_addr);
            Operation::Write {
                remote: RemoteAddress { address, key: RKey(rdma.rkey) },
                immediate: None,
            }
        }
        _ => return None,
    };
    Some((operation, Data::SgList(sge.into())))
}

/// An iterator over a list of WRs that converts each one. It ends at one that cannot be converted, and keeps the error.
struct Requests<'a> {
    next: *mut ibv_send_wr,
    failed: &'a Cell<Option<Errno>>,
}

impl Requests<'_> {
    /// Converts the next WR, if there is one.
    ///
    /// # Safety
    /// The list is the program's.
    #[inline]
    unsafe fn step<T>(&mut self, translate: impl FnOnce(&ibv_send_wr) -> Result<T>) -> Option<T> {
        // SAFETY: as the caller promises.
        let request = unsafe { self.next.as_ref() }?;
        self.next = request.next;
        translate(request).map_err(|error| self.failed.set(Some(error))).ok()
    }
}

/// An iterator over a list of WRs that are all [messages](message). Each request is written once, directly to the send queue.
struct Messages<'a>(Requests<'a>);

impl Iterator for Messages<'_> {
    type Item = SendRequest;

    #[inline(always)]
    fn next(&mut self) -> Option<SendRequest> {
        // SAFETY: the list is the program's.
        let request = unsafe { self.0.next.as_ref() }?;
        self.0.next = request.next;
        // SAFETY: as above.
        let Some((operation, data)) = (unsafe { message(request) }) else {
            // Another thread has changed the WR meanwhile.
            self.0.failed.set(Some(Errno::INVALID));
            return None;
        };
        Some(send_request(request, operation, data, None))
    }
}

/// Whether all WRs of a list are [messages](message).
///
/// # Safety
/// The list is the program's.
#[inline(always)]
unsafe fn are_messages(mut next: *const ibv_send_wr) -> bool {
    // SAFETY: as the caller promises.
    while let Some(request) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        if unsafe { message(request) }.is_none() {
            return false;
        }
        next = request.next;
    }
    true
}

/// WRs of connected services.
struct Connected<'a> {
    requests: Requests<'a>,
    xrc: bool,
}

impl Iterator for Connected<'_> {
    type Item = SendRequest;

    fn next(&mut self) -> Option<SendRequest> {
        let xrc = self.xrc;
        // SAFETY: the list is the program's.
        unsafe {
            self.requests.step(|request| {
                let (operation, data) = operation(request)?;
                let names_queue = xrc && !operation.is_local();
                let receive_queue = names_queue.then_some(Qpn(request.remote_srqn));
                Ok(send_request(request, operation, data, receive_queue))
            })
        }
    }
}

#[inline(always)]
fn send_request(
    request: &ibv_send_wr,
    operation: Operation,
    data: Data,
    receive_queue: Option<Qpn>,
) -> SendRequest {
    let flags = request.send_flags;
    SendRequest {
        id: WorkId(request.wr_id),
        operation,
        data,
        signaled: flags & send::SIGNALED != 0,
        solicited: flags & send::SOLICITED != 0,
        fence: flags & send::FENCE != 0,
        receive_queue,
    }
}

/// WRs of UD.
struct Datagrams<'a>(Requests<'a>);

impl Iterator for Datagrams<'_> {
    type Item = UdSendRequest;

    #[inline]
    fn next(&mut self) -> Option<UdSendRequest> {
        // SAFETY: the list is the program's, with the address handles that it names.
        unsafe {
            self.0.step(|request| {
                let ud = request.wr.ud;
                let immediate = match request.opcode {
                    wr::SEND => None,
                    wr::SEND_WITH_IMM => immediate(request),
                    other => {
                        let why = "a UD queue pair has no operation but SEND";
                        return Err(invalid(format_args!("opcode {other}: {why}")));
                    }
                };
                let (id, to) = (WorkId(request.wr_id), Qpn(ud.remote_qpn));
                let address = &AhHandle::of(ud.ah)?.address;
                Ok(UdSendRequest {
                    immediate,
                    signaled: request.send_flags & send::SIGNALED != 0,
                    solicited: request.send_flags & send::SOLICITED != 0,
                    ..address.request(id, to, QKey(ud.remote_qkey), data(request)?)
                })
            })
        }
    }
}

/// Not inlined, so that the common case has less code.
#[inline(never)]
fn post_any(handle: &QpHandle, requests: Connected<'_>) -> Posted {
    handle.queue_pair.post_sends(requests)
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    entry::number_without_cancellation_points(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp.cast()) }?;
        let failed = Cell::new(None);
        let requests = Requests { next: list, failed: &failed };
        let posted = if handle.service == ServiceType::UnreliableDatagram {
            // A process that is sent to for the first time may be asked whether it shares memory.
            let _guard = Uncancellable::new();
            handle.queue_pair.post_datagrams(Datagrams(requests))
        } else {
            let xrc = handle.service == ServiceType::XrcInitiator;
            // SAFETY: the program's list.
            if !xrc && unsafe { are_messages(list) } {
                handle.queue_pair.post_sends(Messages(requests))
            } else {
                post_any(handle, Connected { requests, xrc })
            }
        };
        let Some(error) = posted.result.err().map(Errno::from).or(failed.get()) else {
            return Ok(());
        };
        let mut stopped = list;
        for _ in 0..posted.count {
            // SAFETY: the list has at least the entries that were posted.
            stopped = unsafe { (*stopped).next };
        }
        // SAFETY: the program's pointer.
        *unsafe { entry::write(bad) }? = stopped;
        Err(error)
    })
}

/// Posts a list of receives one by one, and reports the first that is refused.
///
/// # Safety
/// The list and the pointer for the refused WR are the program's.
pub(crate) unsafe fn post_receives(
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(ReceiveRequest) -> Result<()>,
) -> Result<()> {
    let mut next = list;
    // SAFETY: as the caller promises.
    while let Some(request) = unsafe { next.as_ref() } {
        let posted = sges(request.num_sge);
        // SAFETY: as the caller promises.
        let posted = posted.and_then(|length| unsafe { sg_list(request.sg_list, length) });
        let posted =
            posted.and_then(|sg_list| post(ReceiveRequest { id: WorkId(request.wr_id), sg_list }));
        if let Err(error) = posted {
            // SAFETY: as the caller promises.
            *unsafe { entry::write(bad) }? = next;
            return Err(error);
        }
        next = request.next;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    entry::number_without_cancellation_points(|| {
        // SAFETY: the program's queue pair.
        let handle = unsafe { QpHandle::of(qp.cast()) }?;
        // SAFETY: the program's list.
        unsafe { post_receives(list, bad, |request| Ok(handle.queue_pair.post_receive(request)?)) }
    })
}

//! Conversion of CM events.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce::cm::{DatagramPeer, Established, Event, EventKind, PeerParameters, Request};

use crate::abi::Abi;
use crate::abi::rdmacm::{
    cm_event, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_param, rdma_ud_param,
};
use crate::acknowledge::Unacknowledged;
use crate::convert::vector_out;
use crate::entry::Result;
use crate::handle::{Handle, Shown};
use crate::rdmacm::channel::{EventHandle, PRIVATE_DATA};
use crate::rdmacm::id::{self, IdHandle, NewId};
use crate::rdmacm::{group, queue_pair};
use crate::sync::lock;

/// The content of an event.
struct EventContent {
    event: u32,
    status: c_int,
    param: Param,
    private_data: Vec<u8>,
    /// The new id of a connect request.
    child: *mut rdma_cm_id,
    group: Option<Arc<Unacknowledged>>,
}

enum Param {
    Nothing,
    Connection(PeerParameters),
    Datagram(Option<DatagramPeer>),
    /// With the program's context pointer.
    Group(DatagramPeer, usize),
    /// The value that the program wrote.
    User(u64),
}

fn content(event: u32, status: c_int) -> EventContent {
    let (param, private_data, child) = (Param::Nothing, Vec::new(), ptr::null_mut());
    EventContent { event, status, param, private_data, child, group: None }
}

/// A failure: the status is a negative number of `errno`, as in the kernel.
fn failed(event: u32, error: &ferroce::cm::Error) -> EventContent {
    content(event, -error.errno())
}

/// Converts an event. Returns `None` if its id is destroyed, or the event is not for the program.
pub(super) fn deliver(event: Event) -> Option<*mut rdma_cm_event> {
    let (pointer, about) = id::find(event.id)?;
    // SAFETY: it is not destroyed before the event is acknowledged.
    let handle = unsafe { IdHandle::of(pointer) }.ok()?;
    let Some(content) = translate(handle, event.kind) else {
        about.acknowledge(1);
        return None;
    };
    Some(give(pointer, about, content))
}

fn give(
    about_id: *mut rdma_cm_id,
    about: Arc<Unacknowledged>,
    content: EventContent,
) -> *mut rdma_cm_event {
    let mut private_data = [0; PRIVATE_DATA];
    let length = content.private_data.len().min(PRIVATE_DATA);
    private_data[..length].copy_from_slice(&content.private_data[..length]);
    let is_request = !content.child.is_null();
    let handle = EventHandle {
        shown: Shown::new(rdma_cm_event {
            id: if is_request { content.child } else { about_id },
            listen_id: if is_request { about_id } else { ptr::null_mut() },
            event: content.event,
            status: content.status,
            param: Abi::zeroed(),
        }),
        private_data,
        about,
        group: content.group,
    };
    let pointer = handle.give::<rdma_cm_event>();
    // SAFETY: just allocated, and not passed to the program yet.
    let given = unsafe { &mut *pointer.cast::<EventHandle>() };
    let data = given.private_data.as_ptr();
    let data = if length > 0 { data.cast() } else { ptr::null() };
    let length = length.min(u8::MAX.into()) as u8;
    given.shown.change(|shown| {
        shown.param = match &content.param {
            Param::Nothing => {
                let private = rdma_conn_param {
                    private_data: data,
                    private_data_len: length,
                    ..Abi::zeroed()
                };
                rdma_event_param { conn: private }
            }
            Param::Connection(peer) => rdma_event_param {
                conn: rdma_conn_param {
                    private_data: data,
                    private_data_len: length,
                    responder_resources: peer.responder_resources,
                    initiator_depth: peer.initiator_depth,
                    flow_control: peer.flow_control.into(),
                    retry_count: peer.retry_count,
                    rnr_retry_count: peer.rnr_retry.0,
                    srq: peer.shared_receives.into(),
                    qp_num: peer.queue_pair.0,
                },
            },
            Param::Datagram(peer) => {
                let private =
                    rdma_ud_param { private_data: data, private_data_len: length, ..Abi::zeroed() };
                rdma_event_param { ud: peer.map_or(private, |peer| datagram(&peer, private)) }
            }
            Param::Group(peer, context) => {
                let private_data = ptr::with_exposed_provenance(*context);
                let private = rdma_ud_param { private_data, ..Abi::zeroed() };
                rdma_event_param { ud: datagram(peer, private) }
            }
            Param::User(arg) => rdma_event_param { arg: *arg },
        };
    });
    pointer
}

fn datagram(peer: &DatagramPeer, private: rdma_ud_param) -> rdma_ud_param {
    rdma_ud_param {
        ah_attr: vector_out(&peer.address),
        qp_num: peer.queue_pair.0,
        qkey: peer.queue_key.0,
        ..private
    }
}

fn translate(handle: &IdHandle, kind: EventKind) -> Option<EventContent> {
    Some(match kind {
        EventKind::AddressResolved => shown(handle.refresh(), cm_event::ADDR_RESOLVED),
        EventKind::AddressError(error) => failed(cm_event::ADDR_ERROR, &error),
        EventKind::RouteResolved => shown(handle.show_path(), cm_event::ROUTE_RESOLVED),
        EventKind::RouteError(error) => failed(cm_event::ROUTE_ERROR, &error),
        EventKind::ConnectRequest(request) => requested(handle, *request)?,
        EventKind::ConnectResponse(established) => responded(handle, *established),
        EventKind::ConnectError(error) => failed(cm_event::CONNECT_ERROR, &error),
        EventKind::Unreachable(status) => {
            // The kernel passes the status of a SIDR REP on unchanged.
            let status = status.map_or(-libc::ETIMEDOUT, |status| status.0.into());
            content(cm_event::UNREACHABLE, status)
        }
        EventKind::Rejected { reason, private_data } => {
            if lock(&handle.details).failed {
                return None;
            }
            queue_pair::fail(handle);
            EventContent { private_data, ..content(cm_event::REJECTED, reason.0.into()) }
        }
        EventKind::Established(established) => arrived(handle, *established),
        EventKind::Disconnected(_) => {
            let mut details = lock(&handle.details);
            if details.failed {
                return None;
            }
            details.over = true;
            content(cm_event::DISCONNECTED, 0)
        }
        EventKind::TimewaitExit => content(cm_event::TIMEWAIT_EXIT, 0),
        EventKind::MulticastJoined(joined) => {
            let (context, group, attached) = group::joined(handle, joined.gid)?;
            let (event, status) = match attached {
                Ok(()) => (cm_event::MULTICAST_JOIN, 0),
                Err(error) => (cm_event::MULTICAST_ERROR, -error.0),
            };
            let param = Param::Group(joined.peer, context);
            EventContent { param, group: Some(group), ..content(event, status) }
        }
        EventKind::MulticastError(error) => failed(cm_event::MULTICAST_ERROR, &error),
        EventKind::User(event) => {
            EventContent { param: Param::User(event.value), ..content(event.kind, event.status) }
        }
        // Programs do not know kinds that are added later.
        _ => return None,
    })
}

/// The event of a resolution whose result was written to the id, or the matching error event.
fn shown(done: Result<()>, event: u32) -> EventContent {
    match done {
        Ok(()) => content(event, 0),
        // The number of the error event follows that of the success event.
        Err(error) => content(event + 1, -error.0),
    }
}

/// A connect request: creates the id of the passive side.
fn requested(listener: &IdHandle, request: Request) -> Option<EventContent> {
    let above = listener.fields();
    let datagrams = listener.is_datagram();
    let Request { id, parameters, private_data, .. } = request;
    let synchronous = lock(&listener.details).synchronous;
    let new = NewId {
        channel: above.channel,
        synchronous: false,
        context: above.context,
        ps: above.ps,
        qp_type: above.qp_type,
    };
    let child = id::give(&new, id);
    // SAFETY: just allocated.
    let handle = unsafe { IdHandle::of(child) }.ok()?;
    {
        let mut details = lock(&handle.details);
        // The parameters are named from this side's point of view already.
        details.initiator_depth = parameters.initiator_depth;
        details.responder_resources = parameters.responder_resources;
        details.remote = parameters.enhancements;
        details.ack_timeout = lock(&listener.details).ack_timeout;
    }
    let own = ptr::null_mut();
    // SAFETY: just allocated; it gets a channel of its own, as its listener has.
    let moved = if synchronous { unsafe { id::migrate(child, own) } } else { Ok(()) };
    let ready = moved.and_then(|()| handle.refresh()).and_then(|()| handle.show_path());
    if ready.is_err() {
        // SAFETY: the program does not have it; destroying it rejects the request.
        unsafe { id::destroy_id(child) };
        return None;
    }
    let param = match datagrams {
        true => Param::Datagram(None),
        false => Param::Connection(parameters),
    };
    Some(EventContent { param, private_data, child, ..content(cm_event::CONNECT_REQUEST, 0) })
}

/// The peer accepted: brings the QP to RTS if the id has one; otherwise the program does.
fn responded(handle: &IdHandle, established: Established) -> EventContent {
    let Established { parameters, private_data, .. } = established;
    lock(&handle.details).remote = parameters.enhancements;
    let answer = EventContent {
        param: Param::Connection(parameters),
        private_data,
        ..content(cm_event::CONNECT_RESPONSE, 0)
    };
    if handle.fields().qp.is_null() {
        return answer;
    }
    let up = queue_pair::bring_up(handle, None, None);
    match up.and_then(|()| Ok(handle.id.establish()?)) {
        Ok(()) => EventContent { event: cm_event::ESTABLISHED, ..answer },
        Err(error) => {
            queue_pair::fail(handle);
            lock(&handle.details).failed = true;
            content(cm_event::CONNECT_ERROR, -error.0)
        }
    }
}

/// The connection is established, or the UD QP resolved.
fn arrived(_handle: &IdHandle, established: Established) -> EventContent {
    let Established { parameters, private_data, datagram, .. } = established;
    let param = match datagram {
        Some(peer) => Param::Datagram(Some(peer)),
        None => Param::Connection(parameters),
    };
    EventContent { param, private_data, ..content(cm_event::ESTABLISHED, 0) }
}

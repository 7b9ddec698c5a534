//! What becomes of the library's events.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ferroce::cm::{DatagramPeer, Established, Event, EventKind, PeerParameters, Request};

use crate::abi::Abi;
use crate::abi::rdmacm::{
    cm_event, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_param, rdma_ud_param,
};
use crate::acknowledge::Unacknowledged;
use crate::address::vector_out;
use crate::context::lock;
use crate::entry::Result;
use crate::handle::{Handle, Shown};
use crate::rdmacm::channel::{EventHandle, PRIVATE_DATA};
use crate::rdmacm::id::{self, IdHandle, New};
use crate::rdmacm::{group, queue_pair};

/// What a program is told.
struct Told {
    event: u32,
    status: c_int,
    param: Param,
    private_data: Vec<u8>,
    /// The new id of a request.
    child: *mut rdma_cm_id,
    group: Option<Arc<Unacknowledged>>,
}

enum Param {
    Nothing,
    Connection(PeerParameters),
    Datagram(Option<DatagramPeer>),
    /// With the program's own pointer.
    Group(DatagramPeer, usize),
    /// What the program has written.
    User(u64),
}

fn told(event: u32, status: c_int) -> Told {
    let (param, private_data, child) = (Param::Nothing, Vec::new(), ptr::null_mut());
    Told { event, status, param, private_data, child, group: None }
}

/// As the kernel has it: a negative number of `errno`.
fn failed(event: u32, error: &ferroce::cm::Error) -> Told {
    told(event, -error.errno())
}

/// Makes an event of the program's. `None` when what it is about is gone, or it is none of the program's business.
pub(super) fn deliver(event: Event) -> Option<*mut rdma_cm_event> {
    let (pointer, about) = id::find(event.id)?;
    // SAFETY: it is not destroyed before the event is acknowledged.
    let handle = unsafe { IdHandle::of(pointer) }.ok()?;
    let Some(told) = translate(handle, event.kind) else {
        about.acknowledge(1);
        return None;
    };
    Some(give(pointer, about, told))
}

fn give(about_id: *mut rdma_cm_id, about: Arc<Unacknowledged>, told: Told) -> *mut rdma_cm_event {
    let mut private_data = [0; PRIVATE_DATA];
    let length = told.private_data.len().min(PRIVATE_DATA);
    private_data[..length].copy_from_slice(&told.private_data[..length]);
    let is_request = !told.child.is_null();
    let handle = EventHandle {
        shown: Shown::new(rdma_cm_event {
            id: if is_request { told.child } else { about_id },
            listen_id: if is_request { about_id } else { ptr::null_mut() },
            event: told.event,
            status: told.status,
            param: Abi::zeroed(),
        }),
        private_data,
        about,
        group: told.group,
    };
    let pointer = handle.give::<rdma_cm_event>();
    // SAFETY: just given, and nobody has it yet.
    let given = unsafe { &mut *pointer.cast::<EventHandle>() };
    let data = given.private_data.as_ptr();
    let data = if length > 0 { data.cast() } else { ptr::null() };
    let length = length.min(u8::MAX.into()) as u8;
    given.shown.change(|shown| {
        shown.param = match &told.param {
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

fn translate(handle: &IdHandle, kind: EventKind) -> Option<Told> {
    Some(match kind {
        EventKind::AddressResolved => shown(handle.refresh(), cm_event::ADDR_RESOLVED),
        EventKind::AddressError(error) => failed(cm_event::ADDR_ERROR, &error),
        EventKind::RouteResolved => shown(handle.show_path(), cm_event::ROUTE_RESOLVED),
        EventKind::RouteError(error) => failed(cm_event::ROUTE_ERROR, &error),
        EventKind::ConnectRequest(request) => requested(handle, *request)?,
        EventKind::ConnectResponse(established) => responded(handle, *established),
        EventKind::ConnectError(error) => failed(cm_event::CONNECT_ERROR, &error),
        EventKind::Unreachable(status) => {
            // The kernel gives the status of an answer as it is.
            let status = status.map_or(-libc::ETIMEDOUT, |status| status.0.into());
            told(cm_event::UNREACHABLE, status)
        }
        EventKind::Rejected { reason, private_data } => {
            if lock(&handle.details).failed {
                return None;
            }
            queue_pair::fail(handle);
            Told { private_data, ..told(cm_event::REJECTED, reason.0.into()) }
        }
        EventKind::Established(established) => arrived(handle, *established),
        EventKind::Disconnected => {
            let mut details = lock(&handle.details);
            if details.failed {
                return None;
            }
            details.over = true;
            told(cm_event::DISCONNECTED, 0)
        }
        EventKind::TimewaitExit => told(cm_event::TIMEWAIT_EXIT, 0),
        EventKind::MulticastJoined(joined) => {
            let (context, group, attached) = group::joined(handle, joined.gid)?;
            let (event, status) = match attached {
                Ok(()) => (cm_event::MULTICAST_JOIN, 0),
                Err(error) => (cm_event::MULTICAST_ERROR, -error.0),
            };
            let param = Param::Group(joined.peer, context);
            Told { param, group: Some(group), ..told(event, status) }
        }
        EventKind::MulticastError(error) => failed(cm_event::MULTICAST_ERROR, &error),
        EventKind::User(event) => {
            Told { param: Param::User(event.value), ..told(event.kind, event.status) }
        }
        // What a later library tells, these programs do not know.
        _ => return None,
    })
}

/// What was found out is shown to the program, or that it cannot be.
fn shown(done: Result<()>, event: u32) -> Told {
    match done {
        Ok(()) => told(event, 0),
        // The error follows what it is the error of.
        Err(error) => told(event + 1, -error.0),
    }
}

/// A peer's request, with an id for this side.
fn requested(listener: &IdHandle, request: Request) -> Option<Told> {
    let above = listener.look();
    let datagrams = listener.is_datagram();
    let Request { id, parameters, private_data } = request;
    let synchronous = lock(&listener.details).synchronous;
    let new = New {
        channel: above.channel,
        synchronous: false,
        context: above.context,
        ps: above.ps,
        qp_type: above.qp_type,
    };
    let child = id::give(&new, id);
    // SAFETY: just given.
    let handle = unsafe { IdHandle::of(child) }.ok()?;
    {
        let mut details = lock(&handle.details);
        // What the peer can take is what we may do, and the other way round: the names are the peer's own.
        details.initiator_depth = parameters.initiator_depth;
        details.responder_resources = parameters.responder_resources;
        details.remote = parameters.enhancements;
        details.ack_timeout = lock(&listener.details).ack_timeout;
    }
    let own = ptr::null_mut();
    // SAFETY: just given; it gets a channel of its own as its listener has.
    let moved = if synchronous { unsafe { id::migrate(child, own) } } else { Ok(()) };
    let ready = moved.and_then(|()| handle.refresh()).and_then(|()| handle.show_path());
    if ready.is_err() {
        // SAFETY: nobody has it: the peer is told no.
        unsafe { id::destroy_id(child) };
        return None;
    }
    let param = match datagrams {
        true => Param::Datagram(None),
        false => Param::Connection(parameters),
    };
    Some(Told { param, private_data, child, ..told(cm_event::CONNECT_REQUEST, 0) })
}

/// The peer accepts: the queue pair is brought up, if the id has one; else that is left to the program.
fn responded(handle: &IdHandle, established: Established) -> Told {
    let Established { parameters, private_data, .. } = established;
    lock(&handle.details).remote = parameters.enhancements;
    let answer = Told {
        param: Param::Connection(parameters),
        private_data,
        ..told(cm_event::CONNECT_RESPONSE, 0)
    };
    if handle.look().qp.is_null() {
        return answer;
    }
    let up = queue_pair::bring_up(handle, None, None);
    match up.and_then(|()| Ok(handle.id.establish()?)) {
        Ok(()) => Told { event: cm_event::ESTABLISHED, ..answer },
        Err(error) => {
            queue_pair::fail(handle);
            lock(&handle.details).failed = true;
            told(cm_event::CONNECT_ERROR, -error.0)
        }
    }
}

/// The connection is up, or the datagram queue pair known.
fn arrived(_handle: &IdHandle, established: Established) -> Told {
    let Established { parameters, private_data, datagram, .. } = established;
    let param = match datagram {
        Some(peer) => Param::Datagram(Some(peer)),
        None => Param::Connection(parameters),
    };
    Told { param, private_data, ..told(cm_event::ESTABLISHED, 0) }
}

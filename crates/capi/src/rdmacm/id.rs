//! CM ids: one end of a connection, or a listener.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex};

use ferroce::cm::{CmId, Enhancements, IdName, PortSpace};
use ferroce::{Gid, ServiceType};

use crate::abi::Abi;
use crate::abi::attributes::ibv_qp_init_attr;
use crate::abi::constants::qp_type;
use crate::abi::rdmacm::{ibv_path_data, port_space, rdma_cm_id, rdma_event_channel};
use crate::acknowledge::Unacknowledged;
use crate::convert::{gid_out, service_of};
use crate::entry::{self, Errno, Result};
use crate::handle::{Handle, Shown, handle};
use crate::rdmacm::group::Membership;
use crate::rdmacm::user_event::Resolution;
use crate::rdmacm::{channel, devices};
use crate::socket_address;
use crate::sync::lock;

/// The default P_Key, which all of RoCE uses, in network byte order.
pub(super) const PARTITION: u16 = 0xffff;

#[repr(C)]
pub(crate) struct IdHandle {
    pub(super) shown: Shown<rdma_cm_id>,
    pub(super) id: CmId,
    pub(super) events: Arc<Unacknowledged>,
    pub(super) details: Mutex<Details>,
}

handle!(IdHandle, shown, rdma_cm_id);

/// The private state of an id.
#[derive(Default)]
pub(super) struct Details {
    /// It has a channel of its own, and its calls wait for their event.
    pub(super) synchronous: bool,
    /// The attributes for QPs of requests, of a listener created by `rdma_create_ep`.
    pub(super) template: Option<ibv_qp_init_attr>,
    /// Precedes the program's private data.
    pub(super) connect_data: Vec<u8>,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) ack_timeout: Option<u8>,
    /// The path, if the program has set one.
    pub(super) path: Option<ibv_path_data>,
    pub(super) local: Enhancements,
    pub(super) remote: Enhancements,
    /// A local failure was reported to the program: later events of the connection are dropped.
    pub(super) failed: bool,
    /// The end of the connection was reported to the program.
    pub(super) over: bool,
    /// The program has disconnected it.
    pub(super) disconnected: bool,
    pub(super) groups: Vec<Membership>,
    pub(super) resolution: Resolution,
}

/// The address of the program's object, and its unacknowledged events.
type Known = (usize, Arc<Unacknowledged>);

/// The program's ids by the library's names.
static IDS: Mutex<Option<HashMap<IdName, Known>>> = Mutex::new(None);

/// Returns the id of an event, and counts the event as unacknowledged: destroying the id waits for it.
pub(super) fn find(name: IdName) -> Option<(*mut rdma_cm_id, Arc<Unacknowledged>)> {
    let ids = lock(&IDS);
    let (pointer, events) = ids.as_ref()?.get(&name)?;
    events.add();
    Some((ptr::with_exposed_provenance_mut(*pointer), Arc::clone(events)))
}

/// Disconnects all ids when the process ends, as the kernel does when it closes a program's descriptors. Takes no lock
/// that a terminated thread could hold.
pub(crate) fn disconnect_all() {
    let ids = IDS.try_lock().ok().and_then(|mut ids| ids.take());
    for (pointer, events) in ids.into_iter().flatten().map(|(_, entry)| entry) {
        events.add();
        let pointer = ptr::with_exposed_provenance_mut::<rdma_cm_id>(pointer);
        // SAFETY: it was in the list, so it is not destroyed, and the event counted above keeps it from being
        // destroyed.
        if let Ok(handle) = unsafe { IdHandle::of(pointer) } {
            handle.id.close();
        }
    }
}

/// The parameters of a new id.
pub(super) struct NewId {
    pub(super) channel: *mut rdma_event_channel,
    pub(super) synchronous: bool,
    pub(super) context: *mut c_void,
    pub(super) ps: u32,
    pub(super) qp_type: u32,
}

/// Allocates the handle of an id for the program.
pub(super) fn give(new: &NewId, id: CmId) -> *mut rdma_cm_id {
    let (name, events) = (id.name(), Arc::<Unacknowledged>::default());
    let shown = Shown::new(rdma_cm_id {
        channel: new.channel,
        context: new.context,
        ps: new.ps,
        qp_type: new.qp_type,
        ..Abi::zeroed()
    });
    let details = Details { synchronous: new.synchronous, ..Details::default() };
    let handle = IdHandle { shown, id, events: Arc::clone(&events), details: Mutex::new(details) };
    let pointer = handle.give::<rdma_cm_id>();
    let entry = (pointer.expose_provenance(), events);
    lock(&IDS).get_or_insert_default().insert(name, entry);
    pointer
}

fn space_of(ps: u32) -> Result<PortSpace> {
    Ok(match ps {
        port_space::TCP => PortSpace::Tcp,
        port_space::UDP => PortSpace::Udp,
        port_space::IPOIB => PortSpace::Ipoib,
        port_space::IB => PortSpace::Ib,
        _ => return Err(Errno::INVALID),
    })
}

/// Creates an id, with a channel of its own if none is given.
///
/// # Safety
/// The channel is the program's, or null.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> Result<*mut rdma_cm_id> {
    let space = space_of(ps)?;
    let service = service_of(qp_type)?;
    let synchronous = channel.is_null();
    let channel = if synchronous { channel::create()? } else { channel };
    let made = channel::of(channel).and_then(|events| {
        let id = CmId::new(&events, space)?;
        id.set_service(service);
        Ok(give(&NewId { channel, synchronous, context, ps, qp_type }, id))
    });
    if made.is_err() && synchronous {
        // SAFETY: just created, and not passed to the program.
        unsafe { channel::destroy(channel) };
    }
    made
}

pub(crate) unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's pointer.
        let out = unsafe { entry::write(out) }?;
        let datagrams = matches!(ps, port_space::IPOIB | port_space::UDP);
        let kind = if datagrams { qp_type::UD } else { qp_type::RC };
        // SAFETY: the program's channel.
        *out = unsafe { create(channel, context, ps, kind) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    entry::count(|| {
        // SAFETY: the program's id.
        let handle = unsafe { IdHandle::of(id) }?;
        if let Some(ids) = &mut *lock(&IDS) {
            ids.remove(&handle.id.name());
        }
        // SAFETY: the program's id; the library acknowledges the event of a synchronous one.
        unsafe { channel::acknowledge_own(id) };
        handle.events.wait();
        handle.id.close();
        // SAFETY: as above, and it is not used again.
        let handle = unsafe { IdHandle::take(id) };
        // SAFETY: it does not change any more.
        let shown = unsafe { *handle.shown.pointer() };
        let synchronous = lock(&handle.details).synchronous;
        drop(handle);
        // SAFETY: allocated by `calloc`, or null.
        unsafe { libc::free(shown.route.path_rec.cast()) };
        if synchronous {
            // SAFETY: only this id uses it.
            unsafe { channel::destroy(shown.channel) };
        }
        Ok(0)
    })
}

/// Moves an id to another channel, or to one of its own.
///
/// # Safety
/// Both are the program's, or null.
pub(super) unsafe fn migrate(id: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<()> {
    // SAFETY: as the caller promises.
    let handle = unsafe { IdHandle::of(id) }?;
    let was = lock(&handle.details).synchronous;
    if was && to.is_null() {
        return Err(Errno::INVALID);
    }
    let own = to.is_null();
    let to = if own { channel::create()? } else { to };
    handle.id.migrate(&channel::of(to)?);
    let mut old = ptr::null_mut();
    if was {
        // SAFETY: as the caller promises.
        unsafe { channel::acknowledge_own(id) };
    }
    handle.shown.change(|shown| old = std::mem::replace(&mut shown.channel, to));
    lock(&handle.details).synchronous = own;
    if was {
        // SAFETY: only this id used it, and it has moved.
        unsafe { channel::destroy(old) };
    }
    // rdma_migrate_id(3) waits until the reported events are acknowledged.
    handle.events.wait();
    Ok(())
}

pub(crate) unsafe extern "C" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the program's id and channel.
    entry::count(|| unsafe { migrate(id, channel) }.map(|()| 0))
}

impl IdHandle {
    /// A copy of the public fields.
    pub(super) fn fields(&self) -> rdma_cm_id {
        // SAFETY: numbers and pointers, which programs do not change during calls.
        unsafe { *self.shown.pointer() }
    }

    /// The service of its queue pair.
    pub(super) fn service(&self) -> ServiceType {
        // SAFETY: the program's QP, which exists until the program destroys it.
        let kind =
            unsafe { self.fields().qp.as_ref() }.map_or(self.fields().qp_type, |qp| qp.qp_type);
        service_of(kind).unwrap_or(ServiceType::ReliableConnection)
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.service() == ServiceType::UnreliableDatagram
    }

    /// Updates addresses, device and PD in the public fields.
    pub(super) fn refresh(&self) -> Result<()> {
        let (local, peer) = (self.id.local_address(), self.id.peer_address());
        let opened = match self.id.context() {
            Some(context) => Some(devices::open(context.device())?),
            None => None,
        };
        // As in Linux, the GID of a loopback address is one of the device's table (cma.c, cma_bind_loopback).
        let gids = self.id.context().map(|context| context.device().gids()).unwrap_or_default();
        let index = self.id.source_index().unwrap_or(0);
        let carrier = gids.get(usize::from(index)).filter(|own| !own.address.ip().is_loopback());
        let gid = |address: Option<SocketAddr>| {
            let known = address.filter(|address| !address.ip().is_unspecified())?;
            let carrier = carrier.filter(|_| known.ip().is_loopback());
            Some(gid_out(carrier.map_or(Gid::from_ip(known.ip()), |own| own.gid)))
        };
        self.shown.change(|shown| {
            let address = &mut shown.route.addr;
            if let Some(local) = local {
                address.src = socket_address::write(local);
            }
            if let Some(peer) = peer {
                address.dst = socket_address::write(peer);
            }
            if let Some(opened) = opened {
                if shown.verbs.is_null() {
                    shown.verbs = opened.verbs;
                    shown.pd = opened.pd;
                }
                shown.port_num = 1;
                address.ibaddr.sgid = gid(local).unwrap_or_default();
                address.ibaddr.dgid = gid(peer).unwrap_or_default();
                address.ibaddr.pkey = PARTITION;
            }
        });
        Ok(())
    }
}

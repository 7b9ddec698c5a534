//! The link of a cm_id: where the cm_ids meet the device.

use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;

use ferroce_links::route::Route;
use ferroce_proto::cm::ConnectionId;
use ferroce_proto::time::Instant;
use ferroce_sys::neighbour::Neighbour;
use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;

use crate::context::Context;
use crate::device::Device;
use crate::engine::{Adapter, CmEventHandler, Connections, Handle, MadTransport, Manager};
use crate::error::{CmError as Error, OpenError, RouteError};
use crate::options::Options;

/// A link: an address of an open device.
#[derive(Clone, Debug)]
pub(super) struct LocalLink {
    pub(super) context: Context,
    /// Index among the links of the device.
    index: u8,
}

impl LocalLink {
    /// Opens a device, and returns the link of this address.
    pub(super) fn open(device: &Device, ip: IpAddr, options: &Options) -> Result<Self, Error> {
        // The cm_ids of a device share it and its asynchronous events; they have channels for their own events.
        let context = Context::of(Handle::open(device, options)?);
        let index = context.adapter().port.link_of(ip);
        // The device does not listen on an address that was added after it was opened.
        let index = index
            .ok_or_else(|| OpenError::NoAddress { interface: device.interface().name.clone() })?;
        Ok(Self { context, index })
    }

    /// Returns the link of the same device that packets to a destination leave from: loopback addresses reach each other.
    pub(super) fn toward(self, destination: IpAddr) -> Self {
        let index = self.adapter().port.links.toward(self.index, destination);
        Self { index, ..self }
    }

    /// Returns its address, with the UDP port of RoCEv2.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.transport().address(self.index)
    }

    /// Returns its index in the GID table, or that of the GID which replaces it.
    pub(super) fn source_index(&self) -> u8 {
        self.transport().source_index(self.index)
    }

    /// Returns the route of packets to a GID.
    pub(super) fn route_to(&self, destination: Gid) -> Result<Route, RouteError> {
        self.transport().route_to(self.index, destination)
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.adapter().management.connections
    }

    /// Runs a closure with the connection manager of the link.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Manager, Instant) -> T) -> Result<T, Error> {
        self.connections().act(self.transport(), self.index, act).ok_or(Error::Closed)
    }

    /// Delivers pending events. The caller must not hold a cm_id's lock.
    pub(super) fn deliver_events(&self) {
        self.connections().deliver_events(self.transport());
    }

    /// Watches the peer of a new connection: if it is a process of this host, its end ends the connection.
    pub(super) fn watch_peer(&self, connection: ConnectionId) {
        self.connections().watch_peer(self.transport(), self.index, connection);
    }

    /// Lets a cm_id wait for a neighbour. Returns false if there is no need to.
    pub(super) fn wait_for_neighbour(
        &self,
        id: Weak<dyn CmEventHandler>,
        neighbour: Neighbour,
        until: u64,
    ) -> bool {
        let neighbours = &self.adapter().management.neighbours;
        neighbours.wait(self.transport(), id, neighbour, until)
    }

    /// Waits until all messages are sent. The caller must not hold a lock.
    pub(super) fn flush(&self) {
        self.adapter().flush();
    }

    /// Whether it is this link of the device that owns these managers.
    pub(super) fn is(&self, connections: &Connections, index: u8) -> bool {
        self.index == index && std::ptr::eq(self.connections(), connections)
    }

    /// When a QP last received something from its peer.
    pub(super) fn last_heard(&self, number: Qpn) -> Option<Instant> {
        let core = self.context.handle.queue_pair(number)?;
        core.inner.lock().heard
    }

    fn transport(&self) -> &dyn MadTransport {
        self.adapter().mads()
    }

    fn adapter(&self) -> &Adapter {
        self.context.adapter()
    }
}

//! The link of a cm_id: where the cm_ids meet the device.

use std::net::{IpAddr, SocketAddr};

use ferroce_links::route::Route;
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::ServiceId;

use crate::context::Context;
use crate::device::Device;
use crate::engine::{Adapter, CmLink, Handle, Manager};
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
    pub(super) fn address(&self) -> SocketAddr {
        self.manager().address()
    }

    /// Returns its index in the GID table, or that of the GID which replaces it.
    pub(super) fn source_index(&self) -> u8 {
        self.adapter().source_index(self.index)
    }

    /// Returns the route of packets to a GID.
    pub(super) fn route_to(&self, destination: Gid) -> Result<Route, RouteError> {
        self.adapter().mads().route_to(self.index, destination)
    }

    /// Claims a service: no other cm_id or process has it then.
    pub(super) fn claim(&self, service: ServiceId) -> Result<(), Error> {
        Ok(self.manager().connections.services.claim(self.address(), service.0)?)
    }

    pub(super) fn release(&self, service: ServiceId) {
        self.manager().connections.services.release(self.address(), service.0);
    }

    pub(super) fn manager(&self) -> CmLink<'_> {
        self.adapter().cm_link(self.index)
    }

    /// Runs a closure with the connection manager of the link.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Manager, Instant) -> T) -> T {
        self.manager().act(act)
    }

    /// Whether it is this link of the device that owns these managers.
    pub(super) fn is(&self, link: CmLink<'_>) -> bool {
        self.index == link.index && std::ptr::eq(self.manager().connections, link.connections)
    }

    pub(super) fn adapter(&self) -> &Adapter {
        self.context.adapter()
    }
}

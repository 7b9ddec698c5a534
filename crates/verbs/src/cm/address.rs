//! Binding cm_ids, and resolving the route to a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ferroce_proto::qp::PathMtu;
use ferroce_sys::neighbour::Neighbour;
use ferroce_sys::{clock, route};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::ServiceId;
use ferroce_wire::rdmacm::{self, PortSpace};

use super::id::{CmId, EventKind};
use super::link::LocalLink;
use super::parameters::Route;
use super::state::{Stage, State};
use crate::device::{Device, devices, own_name};
use crate::error::{CmError as Error, RouteError, SystemError};
use crate::options::Options;
use ferroce_sys::random::number as random;

/// The range of ports that a bind to port 0 chooses from: the kernel's default for its own.
const FIRST_PORT: u16 = 32_768;
const PORT_COUNT: u16 = 28_232;

fn any_port() -> u16 {
    FIRST_PORT + (random() % u64::from(PORT_COUNT)) as u16
}

/// Returns the links of an address: one, or all of its family for the unspecified address.
fn local_links(
    address: SocketAddr,
    one_family: bool,
    options: &Options,
) -> Result<Vec<LocalLink>, Error> {
    if !address.ip().is_unspecified() {
        let (device, _) = Device::with_address(address)?;
        return Ok(vec![LocalLink::open(&device, address.ip(), options)?]);
    }
    let (mut found, mut failed) = (Vec::new(), None);
    for device in devices()? {
        for own in device.addresses() {
            // The unspecified IPv6 address covers IPv4, as it does for the kernel's sockets, unless `IPV6_ONLY` is set.
            let other = address.is_ipv4() != own.ip.is_ipv4();
            if other && (address.is_ipv4() || one_family) {
                continue;
            }
            match LocalLink::open(&device, own.ip, options) {
                Ok(local_link) => found.push(local_link),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
    match found.is_empty() {
        true => Err(failed.unwrap_or(Error::NoAddressOfFamily)),
        false => Ok(found),
    }
}

/// Claims a service on all links, or on none.
pub(super) fn claim(local_links: &[LocalLink], service: ServiceId) -> Result<(), Error> {
    for (index, local_link) in local_links.iter().enumerate() {
        if let Err(error) = local_link.claim(service) {
            local_links[..index].iter().for_each(|claimed| claimed.release(service));
            return Err(error);
        }
    }
    Ok(())
}

/// Claims the service of a free port on all links, and returns the port.
fn claim_any_port(
    local_links: &[LocalLink],
    service: impl Fn(u16) -> ServiceId,
) -> Result<u16, Error> {
    let mut tries = 1000;
    loop {
        let port = any_port();
        tries -= 1;
        match claim(local_links, service(port)) {
            Err(Error::System(SystemError::ServiceTaken { .. })) if tries > 0 => {}
            claimed => return claimed.map(|()| port),
        }
    }
}

/// Whether an address selects no device: Linux's RDMA-CM treats loopback addresses as unspecified.
fn names_no_device(address: SocketAddr) -> bool {
    address.ip().is_unspecified() || address.ip().is_loopback()
}

/// Converts an IPv4-mapped IPv6 address to IPv4. The C library's resolver returns one for 127.0.0.1 on a host without other
/// IPv4 addresses (getaddrinfo(3), `AI_V4MAPPED` and `AI_ADDRCONFIG`).
fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

impl CmId {
    /// Binds to an address and a port. Port 0 is any free port, the unspecified address all addresses of this host.
    ///
    /// # Errors
    ///
    /// When no device has the address, the port is taken (`EADDRINUSE`), or the cm_id is bound already.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: SocketAddr) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle], "the cm_id is bound already")?;
        self.bind_state(&mut state, unmapped(address))
    }

    pub(super) fn bind_state(&self, state: &mut State, address: SocketAddr) -> Result<(), Error> {
        if self.port_space() == PortSpace::Ipoib && !names_no_device(address) {
            return Err(Error::Ipoib);
        }
        let local_links = local_links(address, state.one_family, &self.shared().channel().options)?;
        let service = |port| rdmacm::service_id(self.port_space(), port);
        let mut local = address;
        if address.port() == 0 {
            local.set_port(claim_any_port(&local_links, service)?);
        } else if !state.shares_port {
            claim(&local_links, service(address.port()))?;
        }
        // A shared port is claimed when the cm_id listens.
        state.claimed = !state.shares_port || address.port() == 0;
        state.local = Some(local);
        state.service_id = service(local.port());
        if !address.ip().is_unspecified() {
            state.local_link = local_links.first().cloned();
        }
        state.bound = local_links;
        state.stage = Stage::Bound;
        Ok(())
    }

    /// Finds the device on the route to a destination. [`EventKind::AddressResolved`] or [`EventKind::AddressError`] follows.
    ///
    /// A given source is bound first; its port may be 0. If the kernel has no neighbour entry for the next hop, it is
    /// resolved until the timeout.
    ///
    /// # Errors
    ///
    /// When the address is resolved already, or the source cannot be bound.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle, Stage::Bound], "the cm_id has an address already")?;
        let (source, mut destination) = (source.map(unmapped), unmapped(destination));
        if destination.ip().is_unspecified() {
            destination.set_ip(match destination {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let source = source.filter(|source| !source.ip().is_unspecified() || source.port() != 0);
        if let (Some(source), Stage::Idle) = (source, state.stage) {
            if source.is_ipv4() != destination.is_ipv4() {
                return Err(RouteError::AddressFamily.into());
            }
            if self.port_space() == PortSpace::Ipoib && !names_no_device(source) {
                return Err(Error::Ipoib);
            }
            if source.port() != 0 {
                self.bind_state(&mut state, source)?;
            } else {
                state.local_link =
                    local_links(source, true, &self.shared().channel().options)?.into_iter().next();
            }
        }
        match self.find_route(&mut state, destination) {
            Ok(()) if self.wait_for_next_hop(&state, destination, timeout) => {
                state.stage = Stage::Resolving;
            }
            Ok(()) => {
                state.stage = Stage::AddressResolved;
                self.shared().raise(EventKind::AddressResolved);
            }
            Err(error) => self.shared().raise(EventKind::AddressError(error)),
        }
        Ok(())
    }

    /// Waits for the neighbour entry of the next hop, if there is none. Returns whether the cm_id waits.
    fn wait_for_next_hop(&self, state: &State, destination: SocketAddr, timeout: Duration) -> bool {
        let Some(local_link) = &state.local_link else { return false };
        let to_itself = state.local.is_some_and(|local| local.ip() == destination.ip());
        if to_itself || !local_link.context.device().interface().neighbours {
            return false;
        }
        // If the next hop cannot be determined, the first packet resolves it.
        let Ok(Some(next)) = Neighbour::next_hop(destination) else { return false };
        let until = clock::now().saturating_add(timeout.as_nanos() as u64);
        let adapter = local_link.adapter();
        adapter.management.neighbours.wait(adapter.mads(), self.shared().handler(), next, until)
    }

    fn find_route(&self, state: &mut State, mut destination: SocketAddr) -> Result<(), Error> {
        if self.port_space() == PortSpace::Ipoib {
            return Err(Error::Ipoib);
        }
        let local_link = match state.local_link.clone() {
            Some(local_link) => local_link.toward(destination.ip()),
            None => {
                let source = route::source_for(destination)?;
                let (device, _) = Device::with_address(source)?;
                LocalLink::open(&device, source.ip(), &self.shared().channel().options)?
            }
        };
        let mut local = local_link.address();
        destination.set_ip(own_name(destination.ip()));
        if destination.ip().is_loopback() && !local.ip().is_loopback() {
            // Another device carries the loopback addresses: this one sends to itself.
            destination.set_ip(local.ip());
        }
        if local.is_ipv4() != destination.is_ipv4() {
            return Err(RouteError::AddressFamily.into());
        }
        // Nothing is ever sent to the port in our request, so it need not be unique.
        local.set_port(state.local.map_or_else(any_port, |bound| bound.port()));
        local_link.route_to(Gid::from_ip(destination.ip()))?;
        state.local = Some(local);
        state.peer = Some(destination);
        state.local_link = Some(local_link);
        Ok(())
    }

    /// Determines the path MTU. [`EventKind::RouteResolved`] or [`EventKind::RouteError`] follows. The kernel has the routes,
    /// so the call does not wait.
    ///
    /// # Errors
    ///
    /// When the address is not resolved, or the route is resolved already.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, _timeout: Duration) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::AddressResolved], "resolve an address first")?;
        match self.path_mtu_of(&state) {
            Ok(mtu) => {
                state.path_mtu = mtu;
                state.stage = Stage::RouteResolved;
                self.shared().raise(EventKind::RouteResolved);
            }
            Err(error) => self.shared().raise(EventKind::RouteError(error)),
        }
        Ok(())
    }

    /// Sets the route instead of [`CmId::resolve_route`]. [`EventKind::RouteResolved`] follows.
    ///
    /// # Errors
    ///
    /// When the address is not resolved, or the route is resolved already, or the path MTU is too large.
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    pub fn set_route(&self, route: &Route) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::AddressResolved], "resolve an address first")?;
        let max = self.path_mtu_of(&state)?;
        if route.mtu.bytes().is_none() || route.mtu.bytes() > max.bytes() {
            return Err(Error::PathMtu { given: route.mtu, max });
        }
        state.path_mtu = route.mtu;
        state.traffic_class = route.traffic_class;
        state.route = Some(Route { flow_label: route.flow_label & 0x000f_ffff, ..*route });
        state.stage = Stage::RouteResolved;
        self.shared().raise(EventKind::RouteResolved);
        Ok(())
    }

    /// Returns the path MTU of device and route. UD queue pairs send to any peer: theirs is the device's.
    fn path_mtu_of(&self, state: &State) -> Result<PathMtu, Error> {
        let local_link = state.local_link()?;
        let peer = state.peer.ok_or(Error::NoDevice)?;
        let path = local_link.context.path_mtu_to(peer)?;
        let device = local_link.context.mtu();
        let datagram = self.shared().is_datagram(state) && device.bytes() < path.bytes();
        Ok(if datagram { device } else { path })
    }
}

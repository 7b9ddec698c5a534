//! Where an id is, and the way to its peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ferroce_proto::qp::PathMtu;
use ferroce_sys::neighbour::Neighbour;
use ferroce_sys::{clock, route};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::ServiceId;
use ferroce_wire::rdmacm::{self, PortSpace};

use super::event::EventKind;
use super::id::{CmId, Place, Stage, State};
use super::parameters::Route;
use crate::context::Context;
use crate::device::{Device, devices, own_name};
use crate::engine::Adapter;
use crate::error::{CmError as Error, OpenError, SystemError};
use crate::options::Options;
use ferroce_sys::random::number as random;

/// Ports that are given to who asks for any, as the system does for its own.
const FIRST_PORT: u16 = 32_768;
const PORTS: u16 = 28_232;

fn any_port() -> u16 {
    FIRST_PORT + (random() % u64::from(PORTS)) as u16
}

impl Place {
    fn open(device: &Device, ip: IpAddr, options: &Options) -> Result<Self, Error> {
        // Ids of one device share it, with its events: they have a channel of their own for news.
        let context = Context::of(Adapter::open(device, options)?);
        let link = context.adapter().link_of(ip);
        // An address that came after the device was opened is not one that it listens on.
        let link = link
            .ok_or_else(|| OpenError::NoAddress { interface: device.interface().name.clone() })?;
        Ok(Self { context, link })
    }

    /// The same device, by the address that packets to a destination leave from: a loopback address for another.
    fn toward(self, destination: IpAddr) -> Self {
        let is_loopback = self.address().is_some_and(|own| own.ip().is_loopback());
        let link = match destination.is_loopback() && !is_loopback {
            true => self.adapter().loopback_link(destination.is_ipv4()).unwrap_or(self.link),
            false => self.link,
        };
        Self { link, ..self }
    }
}

/// All places that an address stands for: one, or every one of its family if it is that for "any".
fn places(address: SocketAddr, one_family: bool, options: &Options) -> Result<Vec<Place>, Error> {
    if !address.ip().is_unspecified() {
        let device = Device::carrying(address)?;
        return Ok(vec![Place::open(&device, address.ip(), options)?]);
    }
    let (mut found, mut failed) = (Vec::new(), None);
    for device in devices()? {
        for own in device.addresses() {
            // IPv6's "any" is IPv4's as well, as with the system's own ports, unless told otherwise.
            let other = address.is_ipv4() != own.is_ipv4();
            if other && (address.is_ipv4() || one_family) {
                continue;
            }
            match Place::open(&device, own.ip(), options) {
                Ok(place) => found.push(place),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
    match (found.is_empty(), failed) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(Error::NoAddressOfFamily),
        (false, _) => Ok(found),
    }
}

/// Claims a service at all places, or at none.
pub(super) fn claim(places: &[Place], service: ServiceId) -> Result<(), Error> {
    for (index, place) in places.iter().enumerate() {
        let address = place.address().ok_or(Error::Closed)?;
        if let Err(error) = place.connections().services.claim(address, service.0) {
            for place in &places[..index] {
                if let Some(address) = place.address() {
                    place.connections().services.release(address, service.0);
                }
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Whether an address stands for no device of its own: Linux's connection manager takes the loopback's for "any".
fn names_no_device(address: SocketAddr) -> bool {
    address.ip().is_unspecified() || address.ip().is_loopback()
}

/// An address as it is, or IPv4's where that is mapped into IPv6: what the C library's resolver makes of 127.0.0.1 on a host
/// without other IPv4 addresses (getaddrinfo(3), `AI_V4MAPPED` and `AI_ADDRCONFIG`).
fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

impl CmId {
    /// Takes an address and a port for itself. Port 0 stands for any that is free, an unspecified address for all of
    /// this machine's.
    ///
    /// # Errors
    ///
    /// When the address is not ours, the port is taken (`EADDRINUSE`), or the id is bound already.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: SocketAddr) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle], "the id is bound already")?;
        self.bind_state(&mut state, unmapped(address))
    }

    pub(super) fn bind_state(&self, state: &mut State, address: SocketAddr) -> Result<(), Error> {
        if self.port_space() == PortSpace::Ipoib && !names_no_device(address) {
            return Err(Error::Ipoib);
        }
        let places = places(address, state.one_family, &self.shared().channel().options)?;
        let service = |port| rdmacm::service_id(self.port_space(), port);
        let mut port = address.port();
        let mut tries = if port == 0 { 1000 } else { 1 };
        loop {
            let wanted = if address.port() == 0 { any_port() } else { port };
            tries -= 1;
            // Who shares a port needs it alone no sooner than it listens.
            let claimed = match state.shares_port && address.port() != 0 {
                true => Ok(()),
                false => claim(&places, service(wanted)),
            };
            match claimed {
                Ok(()) => {
                    state.claimed = !state.shares_port || address.port() == 0;
                    port = wanted;
                    break;
                }
                Err(Error::System(SystemError::ServiceTaken { .. })) if tries > 0 => {}
                Err(error) => return Err(error),
            }
        }
        let mut local = address;
        local.set_port(port);
        state.local = Some(local);
        state.service_id = service(port);
        if !address.ip().is_unspecified() {
            state.place = places.first().cloned();
        }
        state.bound = places;
        state.stage = Stage::Bound;
        Ok(())
    }

    /// Finds the device that leads to a destination. [`EventKind::AddressResolved`] or [`EventKind::AddressError`] follows.
    ///
    /// A source that is given is bound first; its port may be 0. Where the next host on the way, the peer or a router, is
    /// not known to the system, it is looked for until the timeout is over.
    ///
    /// # Errors
    ///
    /// When the id is past that already, or the source cannot be bound.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle, Stage::Bound], "the id has an address already")?;
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
                return Err(Error::AddressFamily);
            }
            if self.port_space() == PortSpace::Ipoib && !names_no_device(source) {
                return Err(Error::Ipoib);
            }
            if source.port() != 0 {
                self.bind_state(&mut state, source)?;
            } else {
                state.place =
                    places(source, true, &self.shared().channel().options)?.into_iter().next();
            }
        }
        match self.find_way(&mut state, destination) {
            Ok(()) if self.waits(&state, destination, timeout) => {
                (state.before, state.stage) = (state.stage, Stage::Resolving);
            }
            Ok(()) => {
                state.stage = Stage::AddressResolved;
                self.shared().raise(EventKind::AddressResolved);
            }
            Err(error) => self.shared().raise(EventKind::AddressError(error)),
        }
        Ok(())
    }

    /// Lets the id wait for the next host on the way, where that is not known.
    fn waits(&self, state: &State, destination: SocketAddr, timeout: Duration) -> bool {
        let Some(place) = &state.place else { return false };
        let at_home = state.local.is_some_and(|local| local.ip() == destination.ip());
        if at_home || !place.context.device().interface().neighbours {
            return false;
        }
        // Who cannot find out who is next has the first packet show it.
        let Ok(Some(next)) = Neighbour::next_hop(destination) else { return false };
        let until = clock::now().saturating_add(timeout.as_nanos() as u64);
        let neighbours = &place.adapter().management.neighbours;
        neighbours.wait(place.adapter(), self.shared().handler(), next, until)
    }

    fn find_way(&self, state: &mut State, destination: SocketAddr) -> Result<(), Error> {
        if self.port_space() == PortSpace::Ipoib {
            return Err(Error::Ipoib);
        }
        let place = match state.place.clone() {
            Some(place) => place.toward(destination.ip()),
            None => {
                let source = route::source_for(destination)?;
                let device = Device::carrying(source)?;
                Place::open(&device, source.ip(), &self.shared().channel().options)?
            }
        };
        let mut local = place.address().ok_or(Error::Closed)?;
        let mut destination = destination;
        destination.set_ip(own_name(destination.ip()));
        if destination.ip().is_loopback() && !local.ip().is_loopback() {
            // Another device carries the loopback's addresses: this one reaches itself.
            destination.set_ip(local.ip());
        }
        if local.is_ipv4() != destination.is_ipv4() {
            return Err(Error::AddressFamily);
        }
        // The peer is told a port, and nothing ever comes to it: it need not be ours alone.
        local.set_port(state.local.map_or_else(any_port, |bound| bound.port()));
        place.adapter().route_to(place.link, Gid::from_ip(destination.ip()))?;
        state.local = Some(local);
        state.peer = Some(destination);
        state.place = Some(place);
        Ok(())
    }

    /// Finds out what packets the way takes. [`EventKind::RouteResolved`] or [`EventKind::RouteError`] follows. The routes are
    /// the system's, so that there is nothing to wait for.
    ///
    /// # Errors
    ///
    /// When the address is not resolved, or the route is already.
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

    /// Sets what packets the way takes, in place of [`CmId::resolve_route`]. [`EventKind::RouteResolved`] follows.
    ///
    /// # Errors
    ///
    /// When the address is not resolved, or the route is already; when the device has no packets of that size.
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    pub fn set_route(&self, route: &Route) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::AddressResolved], "resolve an address first")?;
        let most = self.path_mtu_of(&state)?;
        if route.mtu.bytes().is_none() || route.mtu.bytes() > most.bytes() {
            return Err(Error::PathMtu { given: route.mtu, max: most });
        }
        state.path_mtu = route.mtu;
        state.traffic_class = route.traffic_class;
        state.route = Some(Route { flow_label: route.flow_label & 0x000f_ffff, ..*route });
        state.stage = Stage::RouteResolved;
        self.shared().raise(EventKind::RouteResolved);
        Ok(())
    }

    /// The largest payload that device and way take. Datagram queue pairs send to anyone: theirs is the device's.
    fn path_mtu_of(&self, state: &State) -> Result<PathMtu, Error> {
        let place = state.place()?;
        let peer = state.peer.ok_or(Error::NoDevice)?;
        let way = place.context.path_mtu_to(peer)?;
        let device = place.context.mtu();
        let datagram = self.shared().is_datagram(state) && device.bytes() < way.bytes();
        Ok(if datagram { device } else { way })
    }
}

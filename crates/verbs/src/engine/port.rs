//! The port of a device: its addresses with their sockets, its multicast groups, and its state.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ferroce_links::udp::{Address, Addresses, Senders, first_port};
use ferroce_sys::interface::{Interface, interface_of, is_active};
use ferroce_sys::{NetlinkGroup, NetlinkMonitor, Slot, Socket};
use ferroce_wire::address::Gid;

use super::queue_pair::Core;
use crate::device::{Device, position};
use crate::error::{OpenError, SystemError};
use crate::event::{AsyncEvent, EventKind, Events, Source};
use crate::options::Options;
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Port {
    /// One per entry of the GID table, in its order, then the loopback addresses.
    pub(crate) links: Addresses,
    pub(crate) groups: Groups,
    pub(crate) state: Arc<PortState>,
}

impl Port {
    /// The index of the link with this address.
    pub(crate) fn link_of(&self, address: IpAddr) -> Option<u8> {
        position(self.links.iter().map(|link| link.address.ip()), address)
    }
}

/// How long to wait for the only address of an interface, and how often to try it meanwhile: duplicate address detection takes
/// up to two seconds (RFC 4862, section 5.4).
const TENTATIVE: Duration = Duration::from_secs(4);
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// Opens the sockets of all addresses that can be used, and leaves the others out. Another user may have the port on the
/// loopback: the device is of use without it. An address that is the interface's only one is waited for: it was listed.
pub(super) fn open_links(
    mut device: Device,
    options: &Options,
) -> Result<(Device, Addresses), OpenError> {
    let until = Instant::now() + TENTATIVE;
    loop {
        let addresses: Vec<_> = device.addresses().map(|own| own.with_port(options.port)).collect();
        if device.gids().is_empty() {
            return Err(OpenError::NoAddress { interface: device.interface().name.clone() });
        }
        match Slot::open_all(&addresses, &options.sockets) {
            Ok(opened) => {
                let mut links = Vec::new();
                for ((slot, receiver), address) in opened.into_iter().zip(addresses) {
                    let sender = open_sender(first_port(address), device.interface(), options)?;
                    links.push(Address { address, receiver, senders: Senders::new(sender), slot });
                }
                return Ok((device, Addresses(links.into())));
            }
            Err(SystemError::AddressNotLocal { address })
                if matches!(&device.interface().addresses[..], [own] if own.ip == address)
                    && Instant::now() < until
                    && is_assigned(address) =>
            {
                std::thread::sleep(TRY_INTERVAL);
            }
            Err(SystemError::AddressNotLocal { address }) if addresses.len() > 1 => {
                device = device.without(address);
            }
            Err(SystemError::PortTaken { address })
                if address.ip().is_loopback() && !device.loopback.is_empty() =>
            {
                tracing::info!(%address, "loopback addresses skipped: their port is taken");
                device.loopback.clear();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an IPv6 address is assigned to an interface, although it may be tentative.
fn is_assigned(address: IpAddr) -> bool {
    address.is_ipv6() && interface_of(SocketAddr::new(address, 0)).is_ok()
}

/// Opens a send socket at this address, on its port or the next free one.
pub(super) fn open_sender(
    address: SocketAddr,
    interface: &Interface,
    options: &Options,
) -> Result<Socket, SystemError> {
    let sender = Socket::source(address, &options.sockets)?;
    if interface.multicast || interface.loopback {
        // On an interface without multicast, sending to a group fails later.
        let _ = sender.multicast_out(interface.index, true);
    }
    Ok(sender)
}

/// A multicast group: its socket and the attached QPs.
#[derive(Debug)]
struct Group {
    gid: Gid,
    address: SocketAddr,
    socket: Arc<Socket>,
    members: Vec<Arc<Core>>,
}

#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Mutex<Vec<Group>>,
    /// The number of groups. Spares a pass the lock.
    count: AtomicUsize,
    /// Tells the device thread when to watch other sockets.
    version: AtomicU64,
}

impl Groups {
    /// Attaches a QP. The first one opens the group's socket.
    pub(crate) fn attach(
        &self,
        gid: Gid,
        core: &Arc<Core>,
        interface: u32,
        options: &Options,
    ) -> Result<(), SystemError> {
        let mut groups = lock(&self.groups);
        if let Some(group) = groups.iter_mut().find(|group| group.gid == gid) {
            if !group.members.iter().any(|member| Arc::ptr_eq(member, core)) {
                group.members.push(Arc::clone(core));
            }
            return Ok(());
        }
        let mut address = SocketAddr::new(gid.to_ip(), options.port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(interface);
        }
        let socket = Arc::new(Socket::group(address, interface, &options.sockets)?);
        groups.push(Group { gid, address, socket, members: vec![Arc::clone(core)] });
        self.changed(&groups);
        Ok(())
    }

    /// Detaches a QP from a group, or from all. The last one closes the group's socket.
    pub(crate) fn detach(&self, gid: Option<Gid>, core: &Core) {
        let mut groups = lock(&self.groups);
        for group in groups.iter_mut().filter(|group| gid.is_none_or(|gid| gid == group.gid)) {
            group.members.retain(|member| member.number != core.number);
        }
        groups.retain(|group| !group.members.is_empty());
        self.changed(&groups);
    }

    fn changed(&self, groups: &[Group]) {
        self.count.store(groups.len(), Ordering::Release);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn members(&self, gid: Gid) -> Vec<Arc<Core>> {
        let groups = lock(&self.groups);
        let group = groups.iter().find(|group| group.gid == gid);
        group.map(|group| group.members.clone()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The sockets of all groups. The lock is not held while they are used: the handler of a packet takes it again, which
    /// would deadlock with a thread that waits to change the groups.
    pub(crate) fn sockets(&self) -> Vec<(Arc<Socket>, SocketAddr)> {
        let groups = lock(&self.groups);
        groups.iter().map(|group| (Arc::clone(&group.socket), group.address)).collect()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }
}

/// Whether the interface of a port is up, and the contexts notified when that changes.
#[derive(Debug)]
pub(crate) struct PortState {
    /// `None` if the kernel offers no such notifications; the port state then never changes.
    pub(super) monitor: Option<NetlinkMonitor>,
    active: AtomicBool,
    /// The contexts that have opened the device.
    subscribers: Mutex<Vec<Weak<Events>>>,
}

impl PortState {
    pub(crate) fn new(device: &Device) -> Self {
        let monitor = NetlinkMonitor::new(NetlinkGroup::Interfaces)
            .ok()
            .filter(|monitor| monitor.set_subscribed(true).is_ok());
        // After subscribing, so that no change is missed.
        let active = is_active(&device.interface().name);
        Self { monitor, active: AtomicBool::new(active), subscribers: Mutex::default() }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Notifies a context of changes from now on.
    pub(crate) fn subscribe(&self, events: &Arc<Events>) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|one| one.strong_count() > 0);
        subscribers.push(Arc::downgrade(events));
    }

    /// Reads the interface's state after a netlink notification. Returns it if it has changed.
    pub(crate) fn refresh(&self, device: &Device) -> Option<bool> {
        if let Some(monitor) = &self.monitor {
            monitor.drain();
        }
        let active = is_active(&device.interface().name);
        if self.active.swap(active, Ordering::Relaxed) == active {
            return None;
        }
        tracing::info!(device = device.name(), active, "port state changed");
        self.raise(if active { EventKind::PortActive } else { EventKind::PortError });
        Some(active)
    }

    /// Raises an event in all contexts that have opened the device.
    pub(crate) fn raise(&self, kind: EventKind) {
        for events in lock(&self.subscribers).iter().filter_map(Weak::upgrade) {
            events.raise(AsyncEvent { source: Source::Device, kind });
        }
    }
}

//! The fabric: hosts, switches and virtual time.

mod failures;
mod frames;
mod notifications;
mod run;
mod steering;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;

use ferroce_proto::time::Instant;

use crate::event::{Event, EventQueue};
use crate::event_log::EventLog;
use crate::fault::{ActivePartitions, Change, Partition};
use crate::flight::{FlightId, Flights};
use crate::hash::RunHash;
use crate::host::{Host, HostId};
use crate::limit::{EventCounter, Limit, Limits};
use crate::link::Link;
use crate::probability::Probability;
use crate::random::Random;
use crate::settings::{LinkConfig, Settings};
use crate::statistics::{HostStatistics, LinkStatistics, Totals};
use crate::topology::{Topology, TrunkId};
use steering::Members;

/// Hosts of type `H`, each with an uplink to a switch and a downlink from it, and the [`Topology`] between them.
///
/// Nothing happens until one of the `run` methods or [`Fabric::step`] is called. Time is virtual, starts at
/// [`Instant::ZERO`] and advances from event to event.
pub struct Fabric<H, T = ()> {
    now: Instant,
    hosts: Vec<Slot<H>>,
    routes: BTreeMap<IpAddr, HostId>,
    /// Addresses that several hosts share.
    machines: BTreeMap<IpAddr, Members>,
    missteering: Probability,
    steering: Random,
    groups: BTreeMap<IpAddr, BTreeSet<HostId>>,
    events: EventQueue,
    flights: Flights,
    changes: Vec<Change>,
    partitions: Vec<Partition>,
    active_partitions: ActivePartitions,
    random: Random,
    uplink: LinkConfig,
    downlink: LinkConfig,
    topology: Topology,
    /// Links between switches, by [`TrunkId`].
    trunks: Vec<Link>,
    /// Differs by seed, as switches differ: the same flows do not always share a path.
    ecmp_salt: u64,
    send_buffer: Option<usize>,
    factory: Option<Factory<H>>,
    limits: Limits,
    counter: EventCounter,
    /// A limit that was reached in the middle of an event.
    exceeded: Option<Limit>,
    totals: Totals,
    hash: RunHash,
    hashed_bytes: Option<usize>,
    event_log: T,
}

/// Creates the host that replaces one that crashed.
type Factory<H> = Box<dyn FnMut(HostId, Instant) -> H>;

/// A host and its links.
struct Slot<H> {
    /// `None` after a crash.
    host: Option<H>,
    uplink: Link,
    downlink: Link,
    /// Pauses in effect.
    pauses: u32,
    /// Pauses in effect that drop arriving frames.
    dropping: u32,
    /// Frames that arrived during a pause.
    waiting: VecDeque<FlightId>,
    /// The earliest timer event in the queue that is not stale.
    timer: Option<Instant>,
    /// A poll is scheduled for when the uplink has space.
    poll_scheduled: bool,
    /// It was notified during a pause.
    notified: bool,
    statistics: HostStatistics,
}

/// The error of adding a host with an address that another host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressInUse {
    /// The address.
    pub address: IpAddr,
    /// The host that has it.
    pub host: HostId,
}

impl fmt::Display for AddressInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is already the address of {}", self.address, self.host)
    }
}

impl std::error::Error for AddressInUse {}

impl<H: Host> Fabric<H> {
    /// Creates a fabric without hosts.
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self::with_event_log(seed, settings, ())
    }
}

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Creates a fabric without hosts that reports to an event log, such as a [`crate::Capture`].
    pub fn with_event_log(seed: u64, settings: Settings, event_log: T) -> Self {
        let mut events = EventQueue::default();
        let mut changes = Vec::new();
        // First in the queue: failures come before all other events of the same time.
        for (number, (at, change)) in (0..).zip(settings.faults.changes()) {
            events.push(at, Event::Fault(number));
            changes.push(change);
        }
        let random = Random::new(seed).stream("fabric");
        let trunks = match settings.topology {
            Topology::Star => 0,
            Topology::LeafSpine(network) => network.trunks(),
        };
        let trunk = |number: u32| {
            let random = random.stream("trunk").substream(u64::from(number));
            Link::new(settings.trunk.clone(), &random)
        };
        Self {
            now: Instant::ZERO,
            hosts: Vec::new(),
            routes: BTreeMap::new(),
            machines: BTreeMap::new(),
            missteering: settings.missteering,
            steering: random.stream("steering"),
            groups: BTreeMap::new(),
            events,
            flights: Flights::default(),
            changes,
            partitions: settings.faults.partitions,
            active_partitions: ActivePartitions::default(),
            topology: settings.topology,
            trunks: (0..trunks).map(trunk).collect(),
            ecmp_salt: random.stream("ecmp").next_u64(),
            random,
            uplink: settings.uplink,
            downlink: settings.downlink,
            send_buffer: settings.send_buffer,
            factory: None,
            limits: settings.limits,
            counter: EventCounter::default(),
            exceeded: None,
            totals: Totals::default(),
            hash: RunHash::default(),
            hashed_bytes: settings.hashed_bytes,
            event_log,
        }
    }

    /// Adds a host with these addresses. The fabric polls it for frames when it runs.
    pub fn add_host(&mut self, host: H, addresses: &[IpAddr]) -> Result<HostId, AddressInUse> {
        for address in addresses {
            if let Some(&host) = self.routes.get(&address.to_canonical()) {
                return Err(AddressInUse { address: *address, host });
            }
        }
        let id = self.insert_host(host, addresses);
        self.routes.extend(addresses.iter().map(|address| (address.to_canonical(), id)));
        Ok(id)
    }

    fn insert_host(&mut self, host: H, addresses: &[IpAddr]) -> HostId {
        let id = HostId(self.hosts.len() as u32);
        // Random streams derive from the host's number: other hosts change nothing for it.
        let random = self.random.substream(u64::from(id.0));
        self.hosts.push(Slot {
            host: Some(host),
            uplink: Link::new(self.uplink.clone(), &random.stream("up")),
            downlink: Link::new(self.downlink.clone(), &random.stream("down")),
            pauses: 0,
            dropping: 0,
            waiting: VecDeque::new(),
            timer: None,
            poll_scheduled: false,
            notified: false,
            statistics: HostStatistics::default(),
        });
        self.event_log.host_added(id, addresses);
        self.events.push(self.now, Event::Poll(id));
        id
    }

    /// Adds a host to a multicast group. The switch copies frames to all members except the sender.
    pub fn join(&mut self, group: IpAddr, host: HostId) {
        self.groups.entry(group.to_canonical()).or_default().insert(host);
    }

    /// Removes a host from a multicast group.
    pub fn leave(&mut self, group: IpAddr, host: HostId) {
        if let Some(members) = self.groups.get_mut(&group.to_canonical()) {
            members.remove(&host);
        }
    }

    /// Replaces the uplink configuration of a host. Frames in flight are not affected.
    pub fn set_uplink(&mut self, host: HostId, config: LinkConfig) {
        if let Some(slot) = self.hosts.get_mut(host.index()) {
            slot.uplink.configure(config);
        }
    }

    /// Replaces the downlink configuration of a host. Frames in flight are not affected.
    pub fn set_downlink(&mut self, host: HostId, config: LinkConfig) {
        if let Some(slot) = self.hosts.get_mut(host.index()) {
            slot.downlink.configure(config);
        }
    }

    /// Sets the factory of hosts that a [`crate::FaultPlan`] restarts. Without one they stay down.
    pub fn on_restart(&mut self, make: impl FnMut(HostId, Instant) -> H + 'static) {
        self.factory = Some(Box::new(make));
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of hosts added.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Returns a host, unless it is down.
    pub fn host(&self, host: HostId) -> Option<&H> {
        self.hosts.get(host.index())?.host.as_ref()
    }

    /// Returns all hosts that are up.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &H)> {
        let numbered = (0..).map(HostId).zip(&self.hosts);
        numbered.filter_map(|(id, slot)| Some((id, slot.host.as_ref()?)))
    }

    /// Calls `act` on a host, for example to post work, and then sends its frames. Returns `None` if it is down.
    pub fn with_host<R>(
        &mut self,
        id: HostId,
        act: impl FnOnce(&mut H, Instant) -> R,
    ) -> Option<R> {
        let now = self.now;
        let result = act(self.hosts.get_mut(id.index())?.host.as_mut()?, now);
        self.drain(id);
        Some(result)
    }

    /// Returns the counters of the whole fabric.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the counters of a host.
    pub fn host_statistics(&self, host: HostId) -> Option<HostStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.statistics)
    }

    /// Returns the counters of a host's uplink.
    pub fn uplink_statistics(&self, host: HostId) -> Option<LinkStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.uplink.statistics)
    }

    /// Returns the counters of a host's downlink.
    pub fn downlink_statistics(&self, host: HostId) -> Option<LinkStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.downlink.statistics)
    }

    /// Returns the counters of one direction of a link between switches.
    pub fn trunk_statistics(&self, trunk: TrunkId) -> Option<LinkStatistics> {
        self.trunks.get(trunk.index()).map(|link| link.statistics)
    }

    /// Returns the counters of all links between switches.
    pub fn trunks(&self) -> impl Iterator<Item = (TrunkId, LinkStatistics)> {
        (0..).map(TrunkId).zip(self.trunks.iter().map(|link| link.statistics))
    }

    /// Returns the bytes queued now for a host, at its switch.
    pub fn downlink_backlog(&mut self, host: HostId) -> usize {
        let now = self.now;
        self.hosts.get_mut(host.index()).map_or(0, |slot| slot.downlink.backlog(now))
    }

    /// Returns the bytes queued now in one direction of a link between switches.
    pub fn trunk_backlog(&mut self, trunk: TrunkId) -> usize {
        let now = self.now;
        self.trunks.get_mut(trunk.index()).map_or(0, |link| link.backlog(now))
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.counter.events
    }

    /// Returns the hash of all frames sent, delivered and dropped so far, with their times: equal for equal runs.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Returns the event log.
    pub fn event_log(&self) -> &T {
        &self.event_log
    }

    /// Ends the run and returns the event log.
    pub fn into_event_log(self) -> T {
        self.event_log
    }
}

impl<H, T> fmt::Debug for Fabric<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric")
            .field("now", &self.now)
            .field("hosts", &self.hosts.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

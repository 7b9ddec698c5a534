//! The fabric: hosts around one switch, and the time that passes for them.

mod failures;
mod frames;
mod run;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::IpAddr;

use ferroce_proto::time::Instant;

use crate::event::{Event, EventQueue};
use crate::fault::{Change, Cuts, Partition};
use crate::flight::{FlightId, Flights};
use crate::hash::TraceHash;
use crate::host::{Host, HostId};
use crate::limit::{Limit, Limits, Progress};
use crate::link::Link;
use crate::random::Random;
use crate::settings::{LinkConfig, Settings};
use crate::statistics::{HostStatistics, LinkStatistics, Totals};
use crate::trace::Trace;

/// Hosts of type `H` around a switch, each with a link up to it and one down from it.
///
/// Nothing happens until one of the `run` methods or [`Fabric::step`] is called. Time is virtual, starts at
/// [`Instant::ZERO`] and jumps from event to event.
pub struct Fabric<H, T = ()> {
    now: Instant,
    hosts: Vec<Slot<H>>,
    routes: BTreeMap<IpAddr, HostId>,
    groups: BTreeMap<IpAddr, BTreeSet<HostId>>,
    events: EventQueue,
    flights: Flights,
    changes: Vec<Change>,
    partitions: Vec<Partition>,
    cuts: Cuts,
    random: Random,
    uplink: LinkConfig,
    downlink: LinkConfig,
    send_buffer: Option<usize>,
    factory: Option<Factory<H>>,
    limits: Limits,
    progress: Progress,
    /// A limit that was met in the middle of an event.
    exceeded: Option<Limit>,
    totals: Totals,
    hash: TraceHash,
    trace: T,
}

/// Makes the host that takes the place of one that crashed.
type Factory<H> = Box<dyn FnMut(HostId, Instant) -> H>;

/// A place for a host, and its links.
struct Slot<H> {
    /// `None` while it is down.
    host: Option<H>,
    uplink: Link,
    downlink: Link,
    /// Pauses in force.
    pauses: u32,
    /// Those of them that drop what arrives.
    dropping: u32,
    /// What arrived during a pause.
    waiting: VecDeque<FlightId>,
    /// The earliest timer event in the queue that is not stale.
    timer: Option<Instant>,
    /// A poll is in the queue, for when the uplink has room.
    awaits_room: bool,
    statistics: HostStatistics,
}

/// Two hosts cannot have one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressInUse {
    /// The address.
    pub address: IpAddr,
    /// Who has it.
    pub host: HostId,
}

impl fmt::Display for AddressInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is the address of {}", self.address, self.host)
    }
}

impl std::error::Error for AddressInUse {}

impl<H: Host> Fabric<H> {
    /// An empty fabric.
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self::with_trace(seed, settings, ())
    }
}

impl<H: Host, T: Trace> Fabric<H, T> {
    /// An empty fabric, and somebody who looks on, such as a [`crate::Capture`].
    pub fn with_trace(seed: u64, settings: Settings, trace: T) -> Self {
        let mut events = EventQueue::default();
        let mut changes = Vec::new();
        // First in the queue: at their moment they come before all else.
        for (number, (at, change)) in (0..).zip(settings.faults.changes()) {
            events.push(at, Event::Fault(number));
            changes.push(change);
        }
        Self {
            now: Instant::ZERO,
            hosts: Vec::new(),
            routes: BTreeMap::new(),
            groups: BTreeMap::new(),
            events,
            flights: Flights::default(),
            changes,
            partitions: settings.faults.partitions,
            cuts: Cuts::default(),
            random: Random::new(seed).stream("fabric"),
            uplink: settings.uplink,
            downlink: settings.downlink,
            send_buffer: settings.send_buffer,
            factory: None,
            limits: settings.limits,
            progress: Progress::default(),
            exceeded: None,
            totals: Totals::default(),
            hash: TraceHash::default(),
            trace,
        }
    }

    /// Adds a host that frames for these addresses go to. It is asked for frames when the fabric runs.
    pub fn add_host(&mut self, host: H, addresses: &[IpAddr]) -> Result<HostId, AddressInUse> {
        for address in addresses {
            if let Some(&host) = self.routes.get(&address.to_canonical()) {
                return Err(AddressInUse { address: *address, host });
            }
        }
        let id = HostId(self.hosts.len() as u32);
        self.routes.extend(addresses.iter().map(|address| (address.to_canonical(), id)));
        // Streams go by the host's number: how many others there are changes nothing for it.
        let random = self.random.substream(u64::from(id.0));
        self.hosts.push(Slot {
            host: Some(host),
            uplink: Link::new(self.uplink.clone(), &random.stream("up")),
            downlink: Link::new(self.downlink.clone(), &random.stream("down")),
            pauses: 0,
            dropping: 0,
            waiting: VecDeque::new(),
            timer: None,
            awaits_room: false,
            statistics: HostStatistics::default(),
        });
        self.trace.host_added(id, addresses);
        self.events.push(self.now, Event::Poll(id));
        Ok(id)
    }

    /// Lets a host get what is sent to a multicast address. The switch copies such frames to all members but the
    /// sender.
    pub fn join(&mut self, group: IpAddr, host: HostId) {
        self.groups.entry(group.to_canonical()).or_default().insert(host);
    }

    /// Undoes [`Fabric::join`].
    pub fn leave(&mut self, group: IpAddr, host: HostId) {
        if let Some(members) = self.groups.get_mut(&group.to_canonical()) {
            members.remove(&host);
        }
    }

    /// Gives one host another link to the switch. Frames under way are not touched.
    pub fn set_uplink(&mut self, host: HostId, config: LinkConfig) {
        if let Some(slot) = self.hosts.get_mut(host.index()) {
            slot.uplink.configure(config);
        }
    }

    /// Gives one host another link from the switch. Frames under way are not touched.
    pub fn set_downlink(&mut self, host: HostId, config: LinkConfig) {
        if let Some(slot) = self.hosts.get_mut(host.index()) {
            slot.downlink.configure(config);
        }
    }

    /// Sets what makes the hosts that a [`crate::FaultPlan`] restarts. Without it they stay down.
    pub fn on_restart(&mut self, make: impl FnMut(HostId, Instant) -> H + 'static) {
        self.factory = Some(Box::new(make));
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many hosts were added.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// A host, unless it is down.
    pub fn host(&self, host: HostId) -> Option<&H> {
        self.hosts.get(host.index())?.host.as_ref()
    }

    /// All hosts that are up.
    pub fn hosts(&self) -> impl Iterator<Item = (HostId, &H)> {
        let numbered = (0..).map(HostId).zip(&self.hosts);
        numbered.filter_map(|(id, slot)| Some((id, slot.host.as_ref()?)))
    }

    /// Does something with a host, such as giving it work, and sends what it then has to send. `None` if it is down.
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

    /// All frames counted together.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What a host did, and what became of its frames.
    pub fn host_statistics(&self, host: HostId) -> Option<HostStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.statistics)
    }

    /// What a host's link to the switch did.
    pub fn uplink_statistics(&self, host: HostId) -> Option<LinkStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.uplink.statistics)
    }

    /// What a host's link from the switch did.
    pub fn downlink_statistics(&self, host: HostId) -> Option<LinkStatistics> {
        self.hosts.get(host.index()).map(|slot| slot.downlink.statistics)
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.progress.events
    }

    /// The hash of all that was sent, delivered and dropped so far, with its times: equal for equal runs.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Who looks on.
    pub fn trace(&self) -> &T {
        &self.trace
    }

    /// Ends the run and gives back who looked on.
    pub fn into_trace(self) -> T {
        self.trace
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

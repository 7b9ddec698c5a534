//! Flow control for UC and UD between local processes: caps the bytes in flight at the receiver's socket buffer (ADR
//! 0010). The pools of [`super::flow`] count the same bytes, because RC packets go to the same buffer.
//!
//! A socket drops packets that do not fit into its buffer, and the sender is not told. RC has acknowledgements. UC and
//! UD senders instead send a probe every half window: it follows the packets through the same socket to a QPN reserved
//! in each process's slot, and the receiver acknowledges it when it reads it. While the receiver is busy, packets wait
//! at the sender.
//!
//! Remote hosts are never probed: the network may lose packets anyway, and the peer may not be Ferroce.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::congestion::{Window, cost};
use ferroce_proto::time::Instant;
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::setup::QUEUE_KEY;
use ferroce_wire::transport::{Bth, Deth};

use super::adapter::Adapter;
use super::driver::Driver;
use super::flow::Receiver;
use super::link::{Link, Route, receive_share};
use super::port::Port;
use super::queue_pair::{Core, Inner};
use super::rx::ReceivedPacket;

/// The QPN within each slot that sends and receives probes. It is never allocated to a QP.
const QPN_IN_SLOT: u32 = 3;

const PROBE: [u8; 4] = *b"FeE?";
const PROBE_ACK: [u8; 4] = *b"FeE!";

/// The length of a probe or its acknowledgement: headers, type, number.
const LENGTH: usize = 12 + 8 + 8;

/// The interval after which a probe is repeated, as it may be lost like any packet.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// How often a probe is sent before it is given up.
const MAX_PROBES: u32 = 20;

/// After this many abandoned probes in a row the receiver is considered gone, and the window is no longer enforced.
const MAX_UNANSWERED: u32 = 3;

/// A probe and its route.
pub(crate) type ProbePacket = (Route, [u8; LENGTH]);

/// The windows of all local receivers.
#[derive(Debug)]
pub(crate) struct LocalFlow {
    window: u64,
    slot: u8,
    flows: HashMap<Receiver, Flow>,
}

#[derive(Debug)]
struct Flow {
    route: Route,
    /// Bytes ever sent, and bytes known to have been received.
    sent: u64,
    taken: u64,
    probe: Option<Probe>,
    /// The number of the next probe.
    next: u32,
    /// Probes given up since the last acknowledgement.
    unanswered: u32,
    /// QPs with more to send; those that could send nothing in the last window come first.
    waiting: VecDeque<Arc<Core>>,
    /// The number of these first QPs.
    starved: usize,
    /// How often the window was opened.
    opened: u64,
}

/// The wait of a QP for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Throttled {
    process: Receiver,
    /// The value of `Flow::opened` when it began to wait. If it is higher now, the wait is over.
    opened: u64,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u32,
    /// Bytes sent before the probe.
    sent: u64,
    /// When it is repeated or given up.
    due: Instant,
    tries: u32,
}

impl LocalFlow {
    pub(crate) fn new(links: &[Link], slot: u8) -> Self {
        let window = receive_share(links).max(2 * Window::MIN_SIZE) as u64;
        Self { window, slot, flows: HashMap::new() }
    }

    /// Records a sent packet. Returns a probe to send behind it if one is due.
    pub(crate) fn sent(
        &mut self,
        process: Receiver,
        route: Route,
        length: usize,
        now: Instant,
    ) -> Option<ProbePacket> {
        let flow = self.flows.entry(process).or_insert_with(|| Flow::new(route));
        flow.sent += cost(length, 1) as u64;
        flow.probe(process, self.window, self.slot, now)
    }

    /// The bytes in flight to a receiver; none to one that is considered gone.
    fn in_flight(&self, process: Receiver) -> u64 {
        let flow = self.flows.get(&process).filter(|flow| flow.unanswered < MAX_UNANSWERED);
        flow.map_or(0, |flow| flow.sent - flow.taken)
    }

    /// Whether the window of a receiver is used up, if RC has `others` bytes in flight to it. RC leaves at least a half: at
    /// that point a probe is sent, which opens the window again.
    fn is_closed(&self, process: Receiver, others: u64) -> bool {
        let window = self.window - others.min(self.window / 2);
        self.in_flight(process) >= window
    }

    /// Whether a QP must wait before it sends to a receiver. If so, it is queued and resumed when the window opens; QPs
    /// that have not `sent` anything in the current window are resumed first.
    pub(crate) fn must_wait(
        &mut self,
        process: Receiver,
        others: usize,
        core: &Arc<Core>,
        throttled: &mut Option<Throttled>,
        sent: bool,
    ) -> bool {
        let closed = self.is_closed(process, others as u64);
        let Some(flow) = self.flows.get_mut(&process).filter(|_| closed) else { return false };
        let here = Some(Throttled { process, opened: flow.opened });
        if *throttled != here {
            *throttled = here;
            let index = if sent { flow.waiting.len() } else { flow.starved };
            flow.waiting.insert(index, Arc::clone(core));
            flow.starved += usize::from(!sent);
        }
        true
    }

    /// Handles the acknowledgement of a probe: resumes waiting QPs, and returns the next probe if one is due.
    fn handle_probe_ack(
        &mut self,
        process: Receiver,
        number: u32,
        now: Instant,
        resume: &mut impl FnMut(&Arc<Core>),
    ) -> Option<ProbePacket> {
        let flow = self.flows.get_mut(&process)?;
        let probe = flow.probe.take_if(|probe| probe.number == number)?;
        flow.unanswered = 0;
        flow.open(probe.sent, resume);
        flow.probe(process, self.window, self.slot, now)
    }

    /// When [`LocalFlow::expire`] is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.flows.values().filter_map(|flow| flow.probe).map(|probe| probe.due).min()
    }

    /// Repeats unacknowledged probes or gives them up, which counts the packets before them as received.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        mut resume: impl FnMut(&Arc<Core>),
        mut send: impl FnMut(ProbePacket),
    ) {
        for (&process, flow) in &mut self.flows {
            let Some(probe) = flow.probe.as_mut().filter(|probe| probe.due <= now) else {
                continue;
            };
            probe.due = now + PROBE_INTERVAL;
            probe.tries += 1;
            // A receiver that is considered gone is probed only once.
            if probe.tries < MAX_PROBES && flow.unanswered < MAX_UNANSWERED {
                send((flow.route, packet(PROBE, probe.number, probe_number(process), self.slot)));
                continue;
            }
            let sent = probe.sent;
            flow.probe = None;
            flow.unanswered = flow.unanswered.saturating_add(1);
            flow.open(sent, &mut resume);
            flow.probe(process, self.window, self.slot, now).into_iter().for_each(&mut send);
        }
    }
}

impl Flow {
    fn new(route: Route) -> Self {
        Self {
            route,
            sent: 0,
            taken: 0,
            probe: None,
            next: 0,
            unanswered: 0,
            waiting: VecDeque::new(),
            starved: 0,
            opened: 0,
        }
    }

    /// Opens the window: bytes up to `taken` are no longer in flight.
    fn open(&mut self, taken: u64, resume: &mut impl FnMut(&Arc<Core>)) {
        self.taken = taken;
        self.opened += 1;
        self.starved = 0;
        self.waiting.drain(..).for_each(|core| resume(&core));
    }

    /// Returns a probe if half a window is in flight and no probe is.
    fn probe(
        &mut self,
        process: Receiver,
        window: u64,
        slot: u8,
        now: Instant,
    ) -> Option<ProbePacket> {
        if self.probe.is_some() || self.sent - self.taken < window / 2 {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.probe = Some(Probe { number, sent: self.sent, due: now + PROBE_INTERVAL, tries: 0 });
        Some((self.route, packet(PROBE, number, probe_number(process), slot)))
    }
}

/// The QPN of a receiver's probes.
fn probe_number(receiver: Receiver) -> Qpn {
    Qpn(u32::from(receiver.slot) << 16 | QPN_IN_SLOT)
}

/// Builds a probe or its acknowledgement.
fn packet(kind: [u8; 4], number: u32, destination: Qpn, slot: u8) -> [u8; LENGTH] {
    let bth = Bth {
        opcode: Opcode::UD_SEND_ONLY,
        partition: PKey(0xffff),
        destination,
        ..Bth::default()
    };
    let source = Qpn(u32::from(slot) << 16 | QPN_IN_SLOT);
    let deth = Deth { queue_key: QUEUE_KEY, source, ..Deth::default() };
    let mut bytes = [0; LENGTH];
    bytes[..12].copy_from_slice(&bth.to_bytes());
    bytes[12..20].copy_from_slice(&deth.to_bytes());
    bytes[20..24].copy_from_slice(&kind);
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The type and number of a packet to the reserved QPN, and the QPN it came from.
fn parse(packet: &Packet<'_>) -> Option<([u8; 4], u32, Qpn)> {
    let deth = packet.extensions.deth.filter(|deth| deth.queue_key == QUEUE_KEY)?;
    let (kind, number) = packet.payload.split_first_chunk::<4>()?;
    Some((*kind, u32::from_be_bytes(number.try_into().ok()?), deth.source))
}

/// Whether a QPN is the reserved one.
pub(crate) fn is_for(number: Qpn) -> bool {
    number.0 & 0xffff == QPN_IN_SLOT
}

impl Inner {
    /// The local process that the next packet of a QP goes to, if that packet is not acknowledged.
    pub(super) fn local_receiver_of_next(&self, port: &Port) -> Option<Receiver> {
        let (destination, route) = self.endpoint.next_unacknowledged()?;
        let host = route.or(self.route)?.destination.ip();
        let process = Receiver::new(host, destination);
        (destination != Qpn::MULTICAST && port.is_here(host)).then_some(process)
    }
}

impl Driver {
    /// Lets the pool of a receiver count what UC and UD have in flight to it.
    pub(super) fn count_unacknowledged(&mut self, process: Receiver) {
        let Self { flow, local_flow, schedule, .. } = self;
        let bytes = local_flow.in_flight(process) as usize;
        flow.set_unacknowledged(process, bytes, &mut |core| schedule.push(core));
    }

    /// Repeats probes or gives them up.
    pub(super) fn expire_probes(&mut self, adapter: &Adapter, now: Instant) {
        if self.local_flow.next_timer().is_none_or(|due| due > now) {
            return;
        }
        let Self { local_flow, schedule, .. } = self;
        let resume = |core: &Arc<Core>| schedule.push(Arc::clone(core));
        local_flow.expire(now, resume, |(route, packet)| adapter.outbox.push(route, packet.into()));
        let processes: Vec<_> = self.local_flow.flows.keys().copied().collect();
        processes.into_iter().for_each(|process| self.count_unacknowledged(process));
    }

    /// Handles a probe to this process, or the acknowledgement of one of its own.
    pub(super) fn handle_local_flow(
        &mut self,
        adapter: &Adapter,
        one: &ReceivedPacket<'_>,
        local: SocketAddr,
    ) {
        let source = one.info.source.ip();
        let parsed = parse(one.packet).filter(|_| adapter.port.is_here(source));
        let Some((kind, number, sender)) = parsed else { return };
        if kind == PROBE {
            let links = &adapter.port.links;
            let index = links.iter().position(|link| link.address == local).unwrap_or(0);
            let route = Route {
                link: index as u8,
                sender: 0,
                flow_label: 0,
                destination: SocketAddr::new(source, local.port()),
                traffic_class: 0,
                hop_limit: None,
            };
            let slot = adapter.tables.slot();
            adapter.outbox.push(route, packet(PROBE_ACK, number, sender, slot).into());
        } else if kind == PROBE_ACK {
            let process = Receiver::new(source, sender);
            let Self { local_flow, schedule, .. } = self;
            let mut resume = |core: &Arc<Core>| schedule.push(Arc::clone(core));
            let next = local_flow.handle_probe_ack(process, number, one.now, &mut resume);
            if let Some((route, packet)) = next {
                adapter.outbox.push(route, packet.into());
            }
            self.count_unacknowledged(process);
        }
    }
}

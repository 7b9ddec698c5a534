//! Modifying and connecting queue pairs.

use ferroce_links::route::Route;
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::{
    AckTimeout, AddressVector, AttributeMask, PathMtu, QueuePairAttributes, RnrRetry, RnrTimer,
    ServiceType, State, rule,
};
use ferroce_proto::reason::Reason;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Psn, Qpn};

use super::QueuePair;
use crate::error::ModifyError;
use crate::report;
use crate::time::now;

/// Returns what a transition on the way from RESET to RTS requires of `all`.
pub(crate) fn required(
    service: ServiceType,
    to: State,
    all: &QueuePairAttributes,
) -> QueuePairAttributes {
    let from = match to {
        State::Init => State::Reset,
        State::ReadyToReceive => State::Init,
        _ => State::ReadyToReceive,
    };
    let mut change = QueuePairAttributes { state: Some(to), ..*all };
    if let Some(rule) = rule(service, from, to) {
        change.clear(change.attributes() - rule.required - AttributeMask::STATE);
    }
    change
}

impl QueuePair {
    /// Changes the state and attributes. A path MTU above that of the route is lowered: see [`QueuePair::attributes`].
    ///
    /// # Errors
    ///
    /// When the state transition or an attribute is not allowed.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, change: &QueuePairAttributes) -> Result<State, ModifyError> {
        let adapter = &self.shared.adapter;
        let limits = self.context().limits();
        if let Some(port) = change.port.filter(|&port| port != 1) {
            return Err(ModifyError::NoSuchPort { port });
        }
        if let Some(index) = change.partition.filter(|&index| index != 0) {
            return Err(ModifyError::NoSuchPartition { index });
        }
        let max = limits.max_rd_atomic;
        let given = change.max_rd_atomic.max(change.max_dest_rd_atomic).unwrap_or(0);
        if given > max {
            return Err(ModifyError::TooManyRdAtomic { given, max });
        }
        let route = change.path.map(|path| adapter.route(&path)).transpose()?;
        let change = &QueuePairAttributes { path_mtu: self.path_mtu(change, route), ..*change };
        let core = &self.shared.core;
        let now = now();
        let mut inner = core.inner.lock();
        let state = inner.endpoint.modify(change)?;
        if state == State::Reset {
            debug_assert_eq!(inner.endpoint.unfinished(), 0, "its memory is still accessed");
            inner.disconnect();
            // IBA 10.3.1.1: RESET discards the work requests and completions.
            core.sends.forget(core.number);
            core.receive_completions.forget(core.number);
            inner.stats.reset();
            report::forget(core.number);
            if core.receives.number.is_none() {
                let mut receives = core.receives.queue.lock();
                *receives = ReceiveQueue::new(receives.capacity());
            }
        }
        if !matches!(state, State::Error | State::SendQueueError) {
            inner.ended_by = 0;
        }
        let remote = inner.endpoint.attributes().destination;
        if let (Some(route), Some(remote)) = (route, remote) {
            let traffic_class = route.traffic_class | inner.endpoint.ecn().0;
            let route = Route { traffic_class, ..route };
            let route = adapter.with_sender(route, core.number, remote);
            let ring = adapter.rings.route(&adapter.port.links, &route, remote);
            inner.set_route(route, remote, ring);
        }
        let peer = inner.route.zip(remote);
        let mtu = inner.endpoint.attributes().path_mtu.and_then(|mtu| mtu.bytes());
        let through_memory = inner.queue.is_some();
        inner.stats.set_peer(peer, through_memory, mtu.unwrap_or(0));
        let lossless = through_memory && adapter.options.faults.is_none();
        inner.endpoint.set_lossless(lossless);
        // Only rings carry runs.
        inner.endpoint.set_max_run(1);
        adapter.publish(core, &mut inner, now);
        drop(inner);
        adapter.kick(core);
        Ok(state)
    }

    /// Brings a connected QP from RESET to RTS, with defaults for all attributes: `source_index` is the index of the local
    /// GID, `peer` the remote GID and `number` the remote QPN.
    ///
    /// Both sides call it, after they exchanged GID and QPN by other means, for example a TCP connection. The peer may
    /// READ, WRITE and do atomics where the access flags of memory regions permit it. PSNs start at 0: between hosts that
    /// do not trust their network, use [`cm`](crate::cm), which chooses random ones.
    ///
    /// # Errors
    ///
    /// When the QP is not in RESET, is of the UD service, or there is no route to the peer.
    pub fn connect_to(&self, source_index: u8, peer: Gid, number: Qpn) -> Result<(), ModifyError> {
        let remote =
            AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        let path =
            AddressVector { port: 1, source_index, destination: peer, ..AddressVector::default() };
        let all = QueuePairAttributes {
            access: Some(AccessFlags::LOCAL_WRITE | remote),
            partition: Some(0),
            port: Some(1),
            path: Some(path),
            path_mtu: Some(self.context().mtu()),
            destination: Some(number),
            receive_psn: Some(Psn(0)),
            send_psn: Some(Psn(0)),
            max_rd_atomic: Some(16),
            max_dest_rd_atomic: Some(16),
            // 0.64 ms (IBA table 45).
            min_rnr_timer: RnrTimer::from_code(12),
            // 67 ms (IBA 9.7.6.1.3).
            timeout: Some(AckTimeout(14)),
            retry_count: Some(7),
            rnr_retry: Some(RnrRetry::FOR_EVER),
            ..QueuePairAttributes::default()
        };
        self.bring_up(&all)
    }

    /// Brings a QP from RESET to RTS. Each transition takes the attributes that it requires from `all`.
    ///
    /// # Errors
    ///
    /// When the QP is not in RESET, an attribute is missing or invalid, or there is no route to the peer.
    pub fn bring_up(&self, all: &QueuePairAttributes) -> Result<(), ModifyError> {
        let mut states = [State::Init, State::ReadyToReceive, State::ReadyToSend].into_iter();
        states.try_for_each(|state| self.enter(state, all))
    }

    /// Brings a QP from RESET to INIT, or to RTS if it is UD, which needs no peer.
    pub(crate) fn prepare(&self, all: &QueuePairAttributes) -> Result<(), ModifyError> {
        match self.service() {
            ServiceType::UnreliableDatagram => self.bring_up(all),
            _ => self.enter(State::Init, all),
        }
    }

    /// Makes one transition on the way from RESET to RTS.
    pub(crate) fn enter(&self, to: State, all: &QueuePairAttributes) -> Result<(), ModifyError> {
        self.modify(&required(self.service(), to, all)).map(drop)
    }

    /// Moves it to ERR. The requests that this flushes get the number of the reason.
    pub(crate) fn end(&self, reason: &Reason) {
        let mut inner = self.shared.core.inner.lock();
        if inner.ended_by == 0 && inner.endpoint.state() != State::Error {
            inner.ended_by = reason.number();
        }
        drop(inner);
        let state = Some(State::Error);
        let _ = self.modify(&QueuePairAttributes { state, ..QueuePairAttributes::default() });
    }

    /// Returns the path MTU to set. A path MTU above the device's is possible only to peers on this host, by the loopback
    /// interface; otherwise it is lowered to the device's.
    fn path_mtu(&self, change: &QueuePairAttributes, route: Option<Route>) -> Option<PathMtu> {
        let (wanted, device) = (change.path_mtu?, self.context().mtu());
        if wanted.bytes() <= device.bytes() {
            return Some(wanted);
        }
        let path = route.and_then(|route| self.context().path_mtu_to(route.destination).ok());
        let max = path.unwrap_or(device);
        Some(if wanted.bytes() > max.bytes() { max } else { wanted })
    }
}

//! A queue pair that comes and goes: what connections and datagrams have in common.

use std::time::Duration;

use ferroce_proto::memory::Token;
use ferroce_proto::qp::State;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Completion;

use super::BOUND;
use super::memory::{Buffers, SharedReceives};
use super::requests::Requests;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::Summary;
use crate::rdma::host::{EndpointRq, QpConfig, RdmaHost};
use crate::rdma::layout::{RC_SRQ, srq_number};
use crate::rdma::memory::FailureKind;

/// Requests of a queue.
pub(super) const CAPACITY: usize = 16;

/// Where a QP receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receives {
    /// Its own RQ, with buffers of this size.
    Own(usize),
    /// The SRQ that RC and UD share.
    Shared,
    /// The SRQ that a packet of XRC names.
    Named,
}

/// A QP with its requests, whose success means `T`.
#[derive(Debug)]
pub(super) struct QueuePair<T> {
    pub(super) host: usize,
    /// The endpoint; `None` when it is destroyed.
    pub(super) index: Option<usize>,
    receives: Receives,
    /// The buffers of its own RQ.
    buffers: Option<Buffers>,
    pub(super) requests: Requests<T>,
    /// Why it waits for accesses to memory that have not finished, and since when.
    leaving: Option<(Leaving, Instant)>,
    /// A copy of it failed.
    failure: Option<(FailureKind, Instant)>,
    /// The last access of requests that were flushed before the SQ was resumed.
    resumed: Token,
}

/// What returns to the program when no access to memory is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Reset,
    Destroy,
}

impl<T> QueuePair<T> {
    pub(super) fn new(host: usize, receives: Receives) -> Self {
        Self {
            host,
            index: None,
            receives,
            buffers: None,
            requests: Requests::default(),
            leaving: None,
            failure: None,
            resumed: Token(0),
        }
    }

    /// Returns the endpoint, unless it is destroyed or about to be reset or destroyed.
    pub(super) fn index(&self) -> Option<usize> {
        self.index.filter(|_| self.leaving.is_none())
    }

    pub(super) fn id(&self) -> HostId {
        HostId(self.host as u32)
    }

    pub(super) fn receives(&self) -> Receives {
        self.receives
    }

    /// Creates it if it is destroyed, otherwise resets it. Returns the index of its endpoint, unless it has to wait.
    pub(super) fn renew<L: EventLog>(
        &mut self,
        config: &QpConfig,
        fabric: &mut Fabric<RdmaHost, L>,
    ) -> Option<usize> {
        if self.index.is_some() {
            self.change(State::Reset, fabric);
            return self.index();
        }
        let (receives, buffers) = (self.receives, &mut self.buffers);
        self.index = fabric.with_host(HostId(self.host as u32), |host, _| {
            let rq = match receives {
                Receives::Named => EndpointRq::Xrc,
                Receives::Shared => EndpointRq::Shared(RC_SRQ),
                Receives::Own(size) => {
                    let memory = &mut host.memory;
                    buffers.get_or_insert_with(|| Buffers::new(memory, CAPACITY, size));
                    EndpointRq::Own(CAPACITY)
                }
            };
            host.create(rq, config)
        });
        self.index
    }

    /// Changes its state.
    pub(super) fn change<L: EventLog>(&mut self, to: State, fabric: &mut Fabric<RdmaHost, L>) {
        let Some(index) = self.index() else { return };
        fabric.with_host(self.id(), |host, _| host.change(index, to));
        if to == State::Reset {
            self.leave(Leaving::Reset, fabric);
        }
    }

    /// Changes it from SQE to RTS.
    pub(super) fn resume<L: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, L>) {
        let Some(index) = self.index() else { return };
        let stopped = fabric.with_host(self.id(), |host, _| {
            if !host.endpoints[index].in_error() {
                host.change(index, State::ReadyToSend);
            }
            (host.endpoints[index].send_stopped(), Token(host.memory.begun()))
        });
        let Some((stopped, begun)) = stopped else { return };
        self.requests.failed &= stopped;
        self.resumed = begun;
        self.forgive();
    }

    /// Destroys it. Returns whether that is done.
    pub(super) fn destroy<L: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, L>) -> bool {
        let Some(index) = self.index else { return false };
        fabric.with_host(self.id(), |host, _| {
            if host.endpoints[index].unfinished() > 0 {
                host.change(index, State::Reset);
            }
        });
        self.leave(Leaving::Destroy, fabric)
    }

    /// Waits until nothing accesses memory any more: only then, buffers may be used again, and the QP is destroyed.
    fn leave<L: EventLog>(&mut self, how: Leaving, fabric: &mut Fabric<RdmaHost, L>) -> bool {
        self.requests = Requests::default();
        self.failure = None;
        let since = self.leaving.map_or(fabric.now(), |(_, since)| since);
        self.leaving = Some((how, since));
        self.settle(fabric)
    }

    /// Resets or destroys it if it waited for accesses to memory, and they have finished. Returns whether it is destroyed now.
    pub(super) fn settle<L: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, L>) -> bool {
        let (Some((how, _)), Some(index)) = (self.leaving, self.index) else { return false };
        let waits = fabric.with_host(self.id(), |host, _| {
            let waits = host.endpoints[index].unfinished() > 0;
            if how == Leaving::Destroy && !waits {
                host.destroy(index);
                let endpoint = &mut host.endpoints[index];
                endpoint.send_completions.clear();
                endpoint.receive_completions.clear();
            }
            // Those of its previous life concern nobody.
            host.memory.take_failures(host.qpn(index));
            waits
        });
        if waits.unwrap_or(false) {
            return false;
        }
        self.leaving = None;
        if let Some(buffers) = &mut self.buffers {
            buffers.reset();
        }
        if how == Leaving::Destroy {
            self.index = None;
        }
        how == Leaving::Destroy
    }

    /// The process of its host has ended.
    pub(super) fn process_ended(&mut self) {
        *self = Self::new(self.host, self.receives);
    }

    /// Returns what failed of the copies that it began longer than `bound` ago.
    pub(super) fn failure(&self, now: Instant, bound: Duration) -> Option<FailureKind> {
        self.failure.filter(|(_, at)| now.since(*at) >= bound).map(|(kind, _)| kind)
    }

    /// A reset of the peer explains what becomes of a copy that failed.
    pub(super) fn forgive(&mut self) {
        self.failure = None;
    }

    /// Posts receive requests to its own RQ.
    pub(super) fn post_receives<L: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, L>,
        random: &mut Random,
    ) {
        let id = self.id();
        let (Some(index), Some(buffers)) = (self.index(), &mut self.buffers) else { return };
        fabric.with_host(id, |host, _| {
            for _ in 0..random.between(1..=8) {
                buffers.post(|request| host.post_receive(index, request));
            }
        });
    }

    /// Takes the completions and verifies them. `succeeded` gets the effect of each request that succeeded, `received` each
    /// message.
    pub(super) fn collect<L: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, L>,
        shared: &mut [SharedReceives],
        summary: &mut Summary,
        mut succeeded: impl FnMut(T),
        mut received: impl FnMut(&Completion, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(index) = self.index else { return Ok(()) };
        let (now, number) = (fabric.now(), self.host);
        let done = fabric.with_host(self.id(), |host, _| {
            let (counted, begun) =
                (host.endpoints[index].unfinished(), host.memory.unfinished(host.qpn(index)));
            if counted != begun {
                return Err(format!("it counts {counted} unfinished accesses of {begun}"));
            }
            let failures = host.memory.take_failures(host.qpn(index));
            let endpoint = &mut host.endpoints[index];
            if let Some((how, since)) = self.leaving {
                let done = endpoint.send_completions.len() + endpoint.receive_completions.len();
                return match done == 0 && now.since(since) <= BOUND {
                    true => Ok(()),
                    false => Err(format!("{how:?} since {since}, {done} completions")),
                };
            }
            let first = failures.iter().find(|one| one.token.0 > self.resumed.0);
            if let (None, Some(first)) = (self.failure, first) {
                self.failure = Some((first.kind, now));
            }
            let sends = std::mem::take(&mut endpoint.send_completions);
            let receives = std::mem::take(&mut endpoint.receive_completions);
            for done in &sends {
                self.requests.complete(done, summary)?.into_iter().for_each(&mut succeeded);
            }
            for done in &receives {
                let buffers = match &mut self.buffers {
                    Some(buffers) => buffers,
                    None => {
                        let named =
                            done.receive_queue.map(|named| (named.0 - srq_number(0).0) as usize);
                        let srq = named.unwrap_or(RC_SRQ);
                        let found =
                            shared.iter_mut().find(|one| one.host == number && one.srq == srq);
                        &mut found.ok_or_else(|| format!("{done:?} of an unknown SRQ"))?.buffers
                    }
                };
                if let Some(message) = buffers.complete(&host.memory, done)? {
                    received(done, &message)?;
                }
            }
            let flushed = host.endpoints[index].in_error() && counted == 0;
            if let (true, Some(buffers)) = (flushed, &self.buffers) {
                if buffers.posted() > 0 {
                    return Err(format!("{} receive requests were not flushed", buffers.posted()));
                }
            }
            Ok(())
        });
        done.unwrap_or(Ok(()))?;
        self.requests.verify(now)
    }
}

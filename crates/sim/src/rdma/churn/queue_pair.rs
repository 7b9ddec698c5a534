//! A queue pair that comes and goes: what connections and datagrams have in common.

use ferroce_proto::qp::State;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::work::Completion;

use super::memory::{Buffers, SharedReceives};
use super::requests::Requests;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::random::Random;
use crate::rdma::Summary;
use crate::rdma::host::{EndpointRq, QpConfig, RdmaHost};
use crate::rdma::layout::{RC_SRQ, address, srq_number};

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
}

impl<T> QueuePair<T> {
    pub(super) fn new(host: usize, receives: Receives) -> Self {
        Self { host, index: None, receives, buffers: None, requests: Requests::default() }
    }

    pub(super) fn id(&self) -> HostId {
        HostId(self.host as u32)
    }

    pub(super) fn receives(&self) -> Receives {
        self.receives
    }

    /// Creates it if it is destroyed, otherwise resets it. Returns the index of its endpoint.
    pub(super) fn renew<L: EventLog>(
        &mut self,
        config: &QpConfig,
        fabric: &mut Fabric<RdmaHost, L>,
    ) -> usize {
        if let Some(index) = self.index {
            self.change(State::Reset, fabric);
            return index;
        }
        let (receives, buffers) = (self.receives, &mut self.buffers);
        self.index = fabric.with_host(HostId(self.host as u32), |host, _| {
            let rq = match receives {
                Receives::Named => EndpointRq::Xrc,
                Receives::Shared => EndpointRq::Shared(RC_SRQ),
                Receives::Own(size) => {
                    let memory = &mut host.memory;
                    buffers.get_or_insert_with(|| Buffers::new(memory, CAPACITY, size));
                    EndpointRq::Own(ReceiveQueue::new(CAPACITY))
                }
            };
            host.create(rq, config)
        });
        self.index.unwrap_or(0)
    }

    /// Changes its state.
    pub(super) fn change<L: EventLog>(&mut self, to: State, fabric: &mut Fabric<RdmaHost, L>) {
        let Some(index) = self.index else { return };
        fabric.with_host(self.id(), |host, _| host.change(index, to));
        if to == State::Reset {
            self.discard();
        }
    }

    /// Changes it from SQE to RTS.
    pub(super) fn resume<L: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, L>) {
        let Some(index) = self.index else { return };
        let stopped = fabric.with_host(self.id(), |host, _| {
            if !host.endpoints[index].in_error() {
                host.change(index, State::ReadyToSend);
            }
            host.endpoints[index].send_stopped()
        });
        self.requests.failed &= stopped.unwrap_or(true);
    }

    /// Destroys it. Returns whether it existed.
    pub(super) fn destroy<L: EventLog>(&mut self, fabric: &mut Fabric<RdmaHost, L>) -> bool {
        let Some(index) = self.index.take() else { return false };
        fabric.with_host(self.id(), |host, _| {
            host.destroy(index);
            let endpoint = &mut host.endpoints[index];
            endpoint.send_completions.clear();
            endpoint.receive_completions.clear();
        });
        self.discard();
        true
    }

    /// All requests were discarded.
    fn discard(&mut self) {
        self.requests = Requests::default();
        if let Some(buffers) = &mut self.buffers {
            buffers.reset();
        }
    }

    /// Posts receive requests to its own RQ.
    pub(super) fn post_receives<L: EventLog>(
        &mut self,
        fabric: &mut Fabric<RdmaHost, L>,
        random: &mut Random,
    ) {
        let id = self.id();
        let (Some(index), Some(buffers)) = (self.index, &mut self.buffers) else { return };
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
        let now = fabric.now();
        let done = fabric.with_host(self.id(), |host, _| {
            let endpoint = &mut host.endpoints[index];
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
                        let found = shared
                            .iter_mut()
                            .find(|one| one.host == index_of(host) && one.srq == srq);
                        &mut found.ok_or_else(|| format!("{done:?} of an unknown SRQ"))?.buffers
                    }
                };
                if let Some(message) = buffers.complete(&host.memory, done)? {
                    received(done, &message)?;
                }
            }
            if let (true, Some(buffers)) = (host.endpoints[index].in_error(), &self.buffers) {
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

/// Returns the number of a host.
fn index_of(host: &RdmaHost) -> usize {
    (host.address.to_bits() - address(0).to_bits()) as usize
}

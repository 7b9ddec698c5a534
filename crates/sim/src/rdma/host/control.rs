//! What a program does with the queue pairs of a host while it runs: create, connect, reset, destroy, post; and the credit
//! that they share.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::credit::Credit;
use ferroce_proto::qp::{ModifyError, QueuePairAttributes, State};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_proto::work::{ReceiveRequest, SendRequest};

use super::endpoint::QpConfig;
use super::{EndpointRq, QueuePair, RdmaHost};

impl RdmaHost {
    /// Sets how many bytes may be in flight to one receiver.
    pub(in crate::rdma) fn set_share(&mut self, share: usize) {
        self.share = share;
        self.credit = Credit::new(share, 0);
    }

    /// Returns the bytes of credit in use, and the number of QPs that wait for some.
    pub(in crate::rdma) fn credit(&self) -> (usize, usize) {
        (self.credit.in_use(), self.credit.waiting())
    }

    /// Creates a QP in RESET, and returns the index of its endpoint. The number of a destroyed QP is not used again.
    pub(in crate::rdma) fn create(&mut self, rq: EndpointRq, config: &QpConfig) -> usize {
        let index = self.add_endpoint(Ipv4Addr::UNSPECIFIED, rq);
        let mut settings = config.settings.clone();
        settings.number = super::qpn(index);
        self.endpoints[index].qp = Some(QueuePair::new(settings));
        index
    }

    /// Changes a QP from RESET to RTS.
    pub(in crate::rdma) fn connect(
        &mut self,
        index: usize,
        peer: Ipv4Addr,
        config: &QpConfig,
    ) -> Result<(), ModifyError> {
        self.interrupt_turn();
        let endpoint = &mut self.endpoints[index];
        endpoint.peer = peer;
        let Some(qp) = &mut endpoint.qp else { return Ok(()) };
        config.connect(qp)
    }

    /// Changes a QP to RESET, which discards its requests and completions (IBA 10.3.1.1), or to ERR.
    pub(in crate::rdma) fn change(&mut self, index: usize, to: State) {
        self.interrupt_turn();
        let endpoint = &mut self.endpoints[index];
        let Some(qp) = &mut endpoint.qp else { return };
        // Possible in every state.
        let _ =
            qp.modify(&QueuePairAttributes { state: Some(to), ..QueuePairAttributes::default() });
        if to == State::Reset {
            if let EndpointRq::Own(queue) = &mut endpoint.rq {
                *queue = ReceiveQueue::new(queue.capacity());
            }
            endpoint.send_completions.clear();
            endpoint.receive_completions.clear();
        }
        // As in the engine: its credit is returned when it is served.
        self.schedule.push(Arc::clone(&endpoint.core));
        self.update(index);
    }

    /// Destroys a QP.
    pub(in crate::rdma) fn destroy(&mut self, index: usize) {
        self.interrupt_turn();
        let Self { endpoints, credit, schedule, memory, .. } = self;
        let endpoint = &mut endpoints[index];
        if !std::mem::replace(&mut endpoint.destroyed, true) {
            credit.leave(&endpoint.core, &mut endpoint.membership, schedule);
            memory.registry().forget_queue_pair(super::qpn(index));
        }
    }

    /// Posts send requests. Returns how many were accepted.
    pub(in crate::rdma) fn post(&mut self, index: usize, work: Vec<SendRequest>) -> usize {
        self.interrupt_turn();
        let endpoint = &mut self.endpoints[index];
        let Some(qp) = &mut endpoint.qp else { return 0 };
        let accepted = work.into_iter().take_while(|one| qp.post_send(one.clone()).is_ok()).count();
        self.schedule.push(Arc::clone(&endpoint.core));
        self.update(index);
        accepted
    }

    /// Posts requests of a UD QP. Returns how many were accepted.
    pub(in crate::rdma) fn post_datagrams(
        &mut self,
        index: usize,
        work: Vec<ud::SendRequest<Ipv4Addr>>,
    ) -> usize {
        self.interrupt_turn();
        let endpoint = &mut self.endpoints[index];
        let Some(qp) = &mut endpoint.qp else { return 0 };
        let accepted = work.into_iter().take_while(|one| qp.post_datagram(one.clone()).is_ok());
        let accepted = accepted.count();
        self.schedule.push(Arc::clone(&endpoint.core));
        self.update(index);
        accepted
    }

    /// Posts a receive request to the RQ of an endpoint. Returns whether it was accepted.
    pub(in crate::rdma) fn post_receive(&mut self, index: usize, request: ReceiveRequest) -> bool {
        let endpoint = &mut self.endpoints[index];
        let permitted = endpoint.qp.as_ref().is_some_and(|qp| qp.permits_receive().is_allowed());
        match &mut endpoint.rq {
            EndpointRq::Own(queue) if permitted => queue.post(request).is_ok(),
            _ => false,
        }
    }
}

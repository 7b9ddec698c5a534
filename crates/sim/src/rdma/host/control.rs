//! What a program does with the queue pairs of a host while it runs: create, connect, reset, destroy, post; and the credit
//! that they share.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::credit::Credit;
use ferroce_device::{Object, ReceiveSource};
use ferroce_proto::qp::{ModifyError, QueuePairAttributes, State};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_proto::work::{ReceiveRequest, SendRequest};

use super::endpoint::{QpConfig, Transport};
use super::{EndpointRq, RdmaHost};

impl RdmaHost {
    /// Sets how many bytes may be in flight to one receiver.
    pub(in crate::rdma) fn set_share(&mut self, share: usize) {
        self.share = share;
        self.device.credit = Credit::new(share, self.shared.tables.slot());
    }

    /// Lets packets without ACKs need room in the window of their receiver, as between processes of one host.
    pub(in crate::rdma) fn use_windows(&mut self) {
        self.shared.has_windows = true;
    }

    /// Returns the bytes of credit in use, and the number of QPs that wait for some.
    pub(in crate::rdma) fn credit(&self) -> (usize, usize) {
        (self.device.credit.in_use(), self.device.credit.waiting())
    }

    /// Creates a QP in RESET, and returns the index of its endpoint. The number of a destroyed QP is not used again.
    pub(in crate::rdma) fn create(&mut self, rq: EndpointRq, config: &QpConfig) -> usize {
        let index = self.add_endpoint(Ipv4Addr::UNSPECIFIED, rq);
        let mut settings = config.settings.clone();
        settings.number = self.qpn(index);
        self.endpoints[index].lock().queue_pair.endpoint = Transport::new(settings);
        self.shared.open(&self.endpoints[index].core);
        index
    }

    /// Changes a QP from RESET to RTS.
    pub(in crate::rdma) fn connect(
        &mut self,
        index: usize,
        peer: Ipv4Addr,
        config: &QpConfig,
    ) -> Result<(), ModifyError> {
        let endpoint = &mut self.endpoints[index];
        endpoint.peer = peer;
        let mut served = endpoint.lock();
        let number = config.attributes.destination;
        served.set_peer(peer, number);
        let queue_pair = &mut served.queue_pair;
        config.connect(&mut queue_pair.endpoint)?;
        let queue = number.filter(|_| config.uses_queue);
        queue_pair.queue = queue.and_then(|number| self.shared.queue_to(peer, number));
        queue_pair.endpoint.set_lossless(queue_pair.queue.is_some());
        served.queues_datagrams = config.uses_queue;
        Ok(())
    }

    /// Changes a QP to RESET, which discards its requests and completions (IBA 10.3.1.1), or to ERR.
    pub(in crate::rdma) fn change(&mut self, index: usize, to: State) {
        let endpoint = &mut self.endpoints[index];
        let mut served = endpoint.core.state().lock();
        let change = QueuePairAttributes { state: Some(to), ..QueuePairAttributes::default() };
        // Possible in every state.
        let _ = served.queue_pair.endpoint.modify(&change);
        if to == State::Reset {
            served.queue_pair.disconnect();
            (served.sent, served.received) = (Vec::new(), Vec::new());
            if let EndpointRq::Own(capacity) = endpoint.rq {
                *endpoint.core.receives().queue().lock() = ReceiveQueue::new(capacity);
            }
            endpoint.send_completions.clear();
            endpoint.receive_completions.clear();
        }
        drop(served);
        // As in the engine: its credit is returned when it is served.
        self.device.schedule.push(Arc::clone(&endpoint.core));
        self.update(index);
    }

    /// Destroys a QP.
    pub(in crate::rdma) fn destroy(&mut self, index: usize) {
        let endpoint = &self.endpoints[index];
        let mut served = endpoint.lock();
        if !served.queue_pair.destroyed {
            self.device.forget(&endpoint.core, &mut served.queue_pair);
            let number = self.qpn(index);
            self.with_member(|member| member.destroyed(number));
            self.memory.registry().forget_queue_pair(number);
            self.shared.tables.remove_queue_pair(number);
        }
    }

    /// Posts send requests. Returns how many were accepted.
    pub(in crate::rdma) fn post(&mut self, index: usize, work: Vec<SendRequest>) -> usize {
        self.post_all(index, work, |qp, one| qp.post_send(one).is_ok())
    }

    /// Posts requests of a UD QP. Returns how many were accepted.
    pub(in crate::rdma) fn post_datagrams(
        &mut self,
        index: usize,
        work: Vec<ud::SendRequest<Ipv4Addr>>,
    ) -> usize {
        // As in the library, the post creates the transmit queue to a process of this machine.
        if self.endpoints[index].lock().queues_datagrams {
            let to = work.iter().map(|one| &one.address);
            to.for_each(|to| _ = self.shared.queue_to(to.route, to.destination));
        }
        self.post_all(index, work, |qp, one| qp.post_datagram(one).is_ok())
    }

    fn post_all<T>(
        &mut self,
        index: usize,
        work: Vec<T>,
        post: impl Fn(&mut Transport, T) -> bool,
    ) -> usize {
        let core = Arc::clone(&self.endpoints[index].core);
        let mut served = core.state().lock();
        let qp = &mut served.queue_pair.endpoint;
        let accepted = work.into_iter().map(|one| post(qp, one)).take_while(|posted| *posted);
        let accepted = accepted.count();
        drop(served);
        self.device.schedule.push(core);
        self.update(index);
        accepted
    }

    /// Posts a receive request to the RQ of an endpoint. Returns whether it was accepted.
    pub(in crate::rdma) fn post_receive(&mut self, index: usize, request: ReceiveRequest) -> bool {
        let endpoint = &self.endpoints[index];
        let permitted = endpoint.lock().queue_pair.endpoint.permits_receive().is_allowed();
        let is_own = matches!(endpoint.rq, EndpointRq::Own(_));
        permitted && is_own && endpoint.receives().post(request).is_ok()
    }
}

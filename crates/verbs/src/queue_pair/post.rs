//! Posting work requests, and the address handles (AH) of UD requests.

use std::sync::Arc;

use ferroce_links::route::Route;
use ferroce_proto::endpoint::Endpoint;
use ferroce_proto::qp::{AddressVector, Permission, State};
use ferroce_proto::ud;
use ferroce_proto::work::{Data, Operation, ReceiveRequest, SendRequest, WorkId};
use ferroce_wire::number::{QKey, Qpn};

use super::QueuePair;
use crate::error::{CreateError, PostError};
use crate::pd::{Domain, ProtectionDomain};
use crate::time::now;

/// An address handle (AH): the route of UD packets to a host or multicast group.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, source_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// # let context = Context::open(&device, &Options::default())?;
/// # let pd = context.protection_domain();
/// let destination = device.gids()[usize::from(source_index)].gid;
/// let vector = AddressVector { port: 1, source_index, destination, ..Default::default() };
/// let handle = pd.address_handle(&vector)?;
/// // `request` returns a datagram to the QPN and Q_Key of the receiving queue pair.
/// assert_eq!(handle.vector().destination, destination);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_ah")]
pub struct AddressHandle {
    _pd: Arc<Domain>,
    pub(crate) route: Route,
    vector: AddressVector,
}

impl ProtectionDomain {
    /// Creates an address handle.
    ///
    /// # Errors
    ///
    /// When the source is not in the GID table, or of another address family than the destination.
    #[doc(alias = "ibv_create_ah")]
    pub fn address_handle(&self, vector: &AddressVector) -> Result<AddressHandle, CreateError> {
        let route = self.context().adapter().route(vector)?;
        Ok(AddressHandle { _pd: self.join(), route, vector: *vector })
    }
}

impl AddressHandle {
    /// Returns the address vector it was created from.
    pub fn vector(&self) -> &AddressVector {
        &self.vector
    }

    /// Returns a send request to a QP of the host, or to [`Qpn::MULTICAST`] in a multicast group: signaled, not solicited, and
    /// without immediate data.
    #[inline]
    pub fn request(
        &self,
        id: WorkId,
        destination: Qpn,
        queue_key: QKey,
        data: Data,
    ) -> UdSendRequest {
        let address = ud::AddressHandle { route: self.route, destination, queue_key };
        UdSendRequest { id, address, immediate: None, data, signaled: true, solicited: false }
    }
}

/// A send request of a UD queue pair, which [`AddressHandle::request`] returns.
#[doc(alias = "ibv_send_wr")]
pub type UdSendRequest = ud::SendRequest<Route>;

/// The outcome of posting a list of work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Posted {
    /// How many requests were posted, from the front of the list.
    pub count: usize,
    /// Why the next request was refused, or `Ok` when all were posted.
    pub result: Result<(), PostError>,
}

impl QueuePair {
    /// Posts a send request to a connected QP.
    ///
    /// # Errors
    ///
    /// When the send queue is full, the QP's state takes no requests, or the service does not have the operation.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        self.post_sends([request]).result
    }

    /// Posts several send requests, up to the first that is refused, and drives the device once.
    pub fn post_sends(&self, requests: impl IntoIterator<Item = SendRequest>) -> Posted {
        let length = |request: &SendRequest| request.data.len();
        self.post_list(requests, length, |endpoint, request| {
            // An atomic write may be inline whatever `max_inline_data` is: its 8 bytes are not payload.
            let atomic = matches!(request.operation, Operation::AtomicWrite { .. });
            if !(atomic && request.data.len() == 8) {
                self.check_data(&request.data)?;
            }
            endpoint.post_send(request).map_err(|error| PostError::of(error, endpoint.state()))
        })
    }

    /// Posts a send request to a UD QP, as [`QueuePair::post_send`] does to others.
    pub fn post_datagram(&self, datagram: UdSendRequest) -> Result<(), PostError> {
        self.post_datagrams([datagram]).result
    }

    /// Posts several UD send requests, as [`QueuePair::post_sends`] does.
    pub fn post_datagrams(&self, datagrams: impl IntoIterator<Item = UdSendRequest>) -> Posted {
        let length = |datagram: &UdSendRequest| datagram.data.len();
        self.post_list(datagrams, length, |endpoint, datagram| {
            self.check_data(&datagram.data)?;
            let (adapter, to) = (&self.shared.adapter, &datagram.address);
            adapter.rings.prepare_datagram(&adapter.port.links, &to.route, to.destination);
            let posted = endpoint.post_datagram(datagram);
            posted.map_err(|error| PostError::of(error, endpoint.state()))
        })
    }

    fn post_list<T>(
        &self,
        list: impl IntoIterator<Item = T>,
        length: impl Fn(&T) -> u64,
        post: impl Fn(&mut Endpoint<Route>, T) -> Result<(), PostError>,
    ) -> Posted {
        let core = &self.shared.core;
        let (mut count, mut bytes) = (0, 0);
        let mut result = Ok(());
        let mut inner = core.inner.lock();
        for request in list {
            let more = length(&request);
            result = post(&mut inner.endpoint, request);
            if result.is_err() {
                break;
            }
            count += 1;
            bytes += more;
        }
        inner.stats.posted(count);
        if inner.endpoint.state() == State::Error {
            self.shared.adapter.publish(core, &mut inner, now());
        }
        if inner.holds(count, bytes) {
            drop(inner);
            self.shared.adapter.hold(core);
        } else {
            self.shared.adapter.kick_locked(core, inner);
        }
        Posted { count, result }
    }

    /// Returns the number of requests that the send queue has room for.
    pub fn send_room(&self) -> usize {
        let queued = self.shared.core.inner.lock().endpoint.send_queue_len();
        (self.shared.capabilities.max_send_wr as usize).saturating_sub(queued)
    }

    fn check_data(&self, data: &Data) -> Result<(), PostError> {
        let capabilities = &self.shared.capabilities;
        match data {
            Data::SgList(sg_list) => {
                let (given, max) = (sg_list.as_slice().len(), capabilities.max_send_sge as usize);
                if given > max { Err(PostError::TooManySges { given, max }) } else { Ok(()) }
            }
            Data::Inline(bytes) => {
                let (given, max) = (bytes.len(), capabilities.max_inline_data as usize);
                if given > max { Err(PostError::TooMuchInlineData { given, max }) } else { Ok(()) }
            }
        }
    }

    /// Posts a receive request to the QP's receive queue.
    ///
    /// # Errors
    ///
    /// When the receive queue is full, the QP has an SRQ, or its state takes no requests.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        let core = &self.shared.core;
        if core.receives.number.is_some() {
            return Err(PostError::HasSharedReceiveQueue);
        }
        let max = self.shared.capabilities.max_recv_sge as usize;
        let given = request.sg_list.as_slice().len();
        if given > max {
            return Err(PostError::TooManySges { given, max });
        }
        let mut inner = core.inner.lock();
        let permission = inner.endpoint.permits_receive();
        if !matches!(permission, Permission::Allowed | Permission::Queued | Permission::Flushed) {
            return Err(PostError::ReceiveState { state: inner.endpoint.state() });
        }
        core.receives.queue.lock().post(request).map_err(|_| PostError::ReceiveQueueFull)?;
        inner.stats.posted_receive();
        if inner.endpoint.state() == State::Error {
            self.shared.adapter.publish(core, &mut inner, now());
        }
        Ok(())
    }
}

//! UD send requests and address handles.

use ferroce_wire::number::{Immediate, QKey, Qpn};

use crate::transmit::Transmit;
use crate::unacknowledged::SendWork;
use crate::work::{CompletionKind, Data, WorkId};

/// An address handle (AH): the destination of a datagram. `R` is the route in the form that the sender of packets
/// uses, such as an IP address or a table index; here it is only passed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressHandle<R> {
    /// Route to the host or multicast group.
    pub route: R,
    /// The destination QPN; [`Qpn::MULTICAST`] for a group.
    pub destination: Qpn,
    /// The Q_Key of the destination. If its top bit is set, the sending QP's own Q_Key is sent instead, so that only
    /// privileged software can assign controlled Q_Keys (IBA 10.2.5).
    pub queue_key: QKey,
}

/// A UD send work request. UD supports SEND only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest<R> {
    /// The caller's ID of the request.
    pub id: WorkId,
    /// The destination.
    pub address: AddressHandle<R>,
    /// Delivered with the receive completion.
    pub immediate: Option<Immediate>,
    /// The payload, at most one packet.
    pub data: Data,
    /// Whether a successful request generates a completion. Errors always do.
    pub signaled: bool,
    /// Requests a solicited event with the receive completion.
    pub solicited: bool,
}

impl<R> SendWork for SendRequest<R> {
    fn id(&self) -> WorkId {
        self.id
    }

    fn kind(&self) -> CompletionKind {
        CompletionKind::Send
    }

    fn signaled(&self) -> bool {
        self.signaled
    }

    fn data(&self) -> &Data {
        &self.data
    }
}

/// A packet to send, with its route.
#[derive(Debug)]
pub struct UdTransmit<'a, R> {
    /// The route of the request's address handle.
    pub route: R,
    /// The packet.
    pub transmit: Transmit<'a>,
}

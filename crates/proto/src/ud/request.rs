//! A datagram to send, and whom it goes to.

use ferroce_wire::number::{Immediate, QKey, Qpn};

use crate::transmit::Transmit;
use crate::unacknowledged::SendWork;
use crate::work::{CompletionKind, Data, WorkId};

/// Whom a datagram goes to. `R` is the way there as whoever sends packets knows it, an IP address or an entry of its
/// own table: here it is only carried along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressHandle<R> {
    /// The way to the host or the group.
    pub route: R,
    /// The queue pair there; [`Qpn::MULTICAST`] for a group.
    pub destination: Qpn,
    /// The queue key of that queue pair. If its top bit is set the sender's own key goes out in its place, so that
    /// controlled keys are only sent by whom privileged software gave one (IBA 10.2.5).
    pub queue_key: QKey,
}

/// A work request for the send queue. The service has only SEND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest<R> {
    /// The owner's name for it.
    pub id: WorkId,
    /// Whom it goes to.
    pub address: AddressHandle<R>,
    /// Handed to the receiver with its completion.
    pub immediate: Option<Immediate>,
    /// Where the bytes come from: no more than one packet's.
    pub data: Data,
    /// Completes with a completion even when all goes well. Errors always do.
    pub signaled: bool,
    /// The receiver should raise an event when its receive completes.
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

    fn len(&self) -> u64 {
        self.data.len()
    }
}

/// One packet to send, and where to.
#[derive(Debug)]
pub struct UdTransmit<'a, R> {
    /// The way that the request's address named.
    pub route: R,
    /// The packet.
    pub transmit: Transmit<'a>,
}

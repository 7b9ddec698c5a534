//! What a filter distinguishes: planes and operations.

use ferroce_wire::cm::CmMessage;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::packet::Packet;
use ferroce_wire::setup::SetupMessage;
use ferroce_wire::syndrome::SyndromeKind;

use crate::dissect::{cm_message, is_management, is_setup};

/// Defines an enum whose variants have a name on the command line and a meaning.
macro_rules! named {
    ($(#[doc = $doc:literal])+ $type:ident { $( $(#[doc = $meaning:literal])+ $variant:ident = $name:literal; )+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $( $(#[doc = $meaning])+ $variant, )+ }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// One-line description.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+).trim_ascii(),)+ }
            }

            /// The one with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

named! {
    /// The control plane sets up and ends connections; the data plane moves data.
    Plane {
        /// Management datagrams on QP 0 and QP 1 (connection manager) and the set-up exchange.
        Control = "control";
        /// All other RoCE packets, including acknowledgements and CNPs, which belong to data queue pairs.
        Data = "data";
    }
}

named! {
    /// A kind of packet, by operation. `rnr` is included in `nak`, and `cm` in `mad`; otherwise the kinds are disjoint.
    OperationKind {
        /// SEND, other than the messages of the control plane.
        Send = "send";
        /// RDMA WRITE.
        Write = "write";
        /// RDMA READ, requests and responses.
        Read = "read";
        /// Compare-and-swap and fetch-and-add, requests and acknowledgements.
        Atomic = "atomic";
        /// ATOMIC WRITE.
        AtomicWrite = "atomic-write";
        /// FLUSH.
        Flush = "flush";
        /// ACK.
        Ack = "ack";
        /// NAK of any kind, including RNR NAK.
        Nak = "nak";
        /// RNR NAK.
        Rnr = "rnr";
        /// Congestion notification packet.
        Cnp = "cnp";
        /// Message of the connection manager.
        Cm = "cm";
        /// Management datagram of any class, including the connection manager.
        Mad = "mad";
        /// Message of Ferroce's set-up exchange.
        Setup = "setup";
    }
}

impl Plane {
    /// The plane of a packet.
    pub fn of(packet: &Packet<'_>) -> Self {
        match is_management(packet) || is_setup(packet) {
            true => Self::Control,
            false => Self::Data,
        }
    }
}

impl OperationKind {
    /// Whether a packet is of this kind. Reserved opcodes are of no kind.
    pub fn includes(self, packet: &Packet<'_>) -> bool {
        match self {
            Self::Cm => cm_message(packet).is_some(),
            Self::Mad => is_management(packet),
            Self::Setup => is_setup(packet),
            _ if is_management(packet) || is_setup(packet) => false,
            _ => packet.bth.opcode.info().is_some_and(|info| self.is(info.operation, packet)),
        }
    }

    fn is(self, operation: Operation, packet: &Packet<'_>) -> bool {
        let syndrome = || packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
        match operation {
            Operation::Send => self == Self::Send,
            Operation::Write => self == Self::Write,
            Operation::ReadRequest | Operation::ReadResponse => self == Self::Read,
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicAcknowledge => {
                self == Self::Atomic
            }
            Operation::AtomicWrite => self == Self::AtomicWrite,
            Operation::Flush => self == Self::Flush,
            Operation::CongestionNotification => self == Self::Cnp,
            Operation::Acknowledge => match syndrome() {
                Some(SyndromeKind::Nak(_)) => self == Self::Nak,
                Some(SyndromeKind::RnrNak(_)) => matches!(self, Self::Nak | Self::Rnr),
                // A reserved syndrome is shown as "acknowledge".
                Some(SyndromeKind::Ack(_) | SyndromeKind::Reserved) | None => self == Self::Ack,
            },
            Operation::Resync => false,
        }
    }
}

/// The QPNs that a CM message names.
pub(super) fn named_by_cm(message: &CmMessage) -> impl Iterator<Item = Qpn> {
    match message {
        CmMessage::Req(req) => Some(req.local_qpn),
        CmMessage::Rep(rep) => Some(rep.local_qpn),
        CmMessage::Dreq(dreq) => Some(dreq.remote_qpn),
        CmMessage::Lap(lap) => Some(lap.remote_qpn),
        CmMessage::SidrRep(rep) => Some(rep.qpn),
        _ => None,
    }
    .into_iter()
}

/// The QPNs that a message of the set-up exchange names.
pub(super) fn named_by_setup(message: &SetupMessage) -> impl Iterator<Item = Qpn> {
    let (one, other) = match message {
        SetupMessage::QpCreateReq(qp) => (Some(qp.qp_number), None),
        SetupMessage::QpCreateResp(qp) => (Some(qp.qp_number), None),
        SetupMessage::ConnectionReq(it) => (Some(it.client_qp), Some(it.server_qp)),
        SetupMessage::ConnectionAccept(it) => (Some(it.client_qp), Some(it.server_qp)),
        SetupMessage::ConnectionConfirm(it) => (Some(it.client_qp), Some(it.server_qp)),
        _ => (None, None),
    };
    one.into_iter().chain(other)
}

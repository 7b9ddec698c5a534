//! Why the adapter refused a request, dropped a packet or ended a queue pair: what no packet and no status tells.
//!
//! A [`Reason`] is made only where something is refused, and holds numbers, no text: [`Display`](fmt::Display) makes
//! the sentence. Its [number](Reason::number) is the `vendor_err` of the completion that it belongs to.

mod memory;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;

use ferroce_wire::number::{LKey, PKey, Psn, QKey, Qpn, RKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::NakCode;

use crate::memory::{AccessFlags, Accessor, Denied, Memory, RemoteRange};
use crate::qp::State;

pub use memory::{KeyFault, Object, RefusedAccess};
pub use table::{Entry, TABLE, entry};

/// Why the adapter refused a request, dropped a packet or ended a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A key does not allow an access to memory.
    Memory(RefusedAccess, KeyFault),
    /// A memory window was not bound.
    Bind {
        /// The window.
        window: RKey,
        /// The region.
        region: LKey,
        /// Why.
        denied: Denied,
    },
    /// A key was not invalidated.
    Invalidate {
        /// The key.
        key: RKey,
        /// Why.
        denied: Denied,
    },
    /// A packet does not continue the message in progress, or starts one before the last has ended.
    OpcodeSequence(Opcode),
    /// The QP's access flags do not allow the operation.
    NotPermitted {
        /// The operation.
        opcode: Opcode,
        /// The access flags that the QP lacks.
        missing: AccessFlags,
    },
    /// More READs and atomics than `max_dest_rd_atomic`.
    TooManyReads {
        /// `max_dest_rd_atomic` of the responder.
        max: u8,
    },
    /// A payload longer than the path MTU.
    PayloadOverMtu {
        /// Bytes of payload.
        payload: usize,
        /// The path MTU of the QP.
        mtu: u16,
    },
    /// A packet that is not the last of its message is shorter than the path MTU, or the last is empty.
    PayloadUnderMtu {
        /// Bytes of payload.
        payload: usize,
        /// The path MTU of the QP.
        mtu: u16,
    },
    /// A message longer than the receive request that it consumes.
    MessageTooLong {
        /// Bytes of the message so far.
        message: u64,
        /// Bytes of the receive request.
        receive: u64,
    },
    /// A datagram longer than the receive request that it consumes.
    DatagramTooLong {
        /// Bytes of payload.
        payload: usize,
        /// Bytes of the receive request.
        receive: u64,
    },
    /// The payload of a message is not as long as announced.
    LengthMismatch {
        /// Bytes that its RETH announced and that were still to come.
        announced: u64,
        /// Bytes of the packet.
        payload: usize,
    },
    /// A message longer than 2^31 bytes.
    OverMaxMessage {
        /// The announced length.
        length: u32,
    },
    /// An atomic operation at an address that is not a multiple of 8.
    MisalignedAtomic {
        /// The address.
        address: u64,
    },
    /// A FLUSH with a placement or selectivity that is not defined.
    UndefinedFlush,
    /// An XRC message names an SRQ that does not exist in the target's XRC domain.
    NoXrcQueue(Option<Qpn>),
    /// A PSN that the peer cannot have sent.
    PsnOutOfWindow {
        /// The received PSN.
        psn: Psn,
        /// The expected PSN.
        expected: Psn,
    },
    /// No receive request is posted.
    NoReceive {
        /// The number of the SRQ, if the QP uses one. The transports do not know it.
        queue: Option<Qpn>,
        /// Whether an RNR NAK asks the sender to repeat the message; otherwise the message is lost.
        repeated: bool,
    },
    /// A wrong Q_Key.
    WrongQueueKey {
        /// The QPN of the sender.
        source: Qpn,
        /// The received Q_Key.
        received: QKey,
        /// That of the QP.
        expected: QKey,
    },
    /// A multicast datagram for a group that the QP is not attached to.
    NotAttached,
    /// A packet of another service, or a truncated one.
    WrongService(Opcode),
    /// A wrong P_Key.
    WrongPartition(PKey),
    /// A packet for a QP that does not exist.
    UnknownQueuePair(Qpn),
    /// A packet for a connected QP that is not from the peer's address.
    NotPeer,
    /// A packet for a QP that is not in RTR or a later state.
    NotReceiving(State),
    /// The peer refused a request with a NAK.
    PeerRefused {
        /// The NAK code.
        code: NakCode,
        /// The PSN.
        psn: Psn,
        /// The memory of the peer that the request names.
        remote: Option<RemoteRange>,
    },
    /// The peer was not ready through all RNR retries.
    RnrExhausted {
        /// How often the request was sent.
        attempts: u8,
        /// Its PSN.
        psn: Psn,
    },
    /// No response after all retries.
    NoResponse {
        /// How often the request was sent.
        attempts: u8,
        /// Its PSN.
        psn: Psn,
        /// Whether the peer has acknowledged anything before.
        heard: bool,
    },
    /// No usable response after all retries: the peer asked for a PSN that was never sent.
    PeerExpects {
        /// The PSN that its NAK asks for.
        expected: Psn,
        /// The PSN that is sent.
        sent: Psn,
    },
    /// No usable response after all retries: the peer acknowledged a PSN that was never sent. In shared memory it counts the
    /// packets of a message by its own path MTU.
    PeerCountsMore {
        /// The PSN of its ACK.
        acknowledged: Psn,
        /// The PSN that is sent.
        sent: Psn,
        /// The path MTU of the QP.
        mtu: u16,
    },
    /// The peer has disconnected with a DREQ.
    PeerDisconnected,
    /// All retries ended with an ICMP "port unreachable".
    PortUnreachable {
        /// The PSN.
        psn: Psn,
    },
    /// The process of the peer has ended.
    PeerEnded,
    /// The peer of an idle connection did not answer keepalives.
    PeerSilent,
    /// A response that does not match the request.
    BadResponse {
        /// Its opcode.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
    },
    /// A completion queue was full.
    CqOverrun {
        /// The ID of the CQ.
        queue: u64,
        /// Its entries.
        capacity: u32,
    },
    /// The port is down.
    PortDown,
    /// The device failed.
    DeviceFailed,
}

impl Reason {
    /// The number for `vendor_err`. It never changes its meaning.
    pub const fn number(&self) -> u16 {
        match self {
            Self::Memory(_, fault) => fault.number(),
            Self::Bind { .. } => 20,
            Self::Invalidate { .. } => 21,
            Self::OpcodeSequence(_) => 30,
            Self::NotPermitted { .. } => 31,
            Self::TooManyReads { .. } => 32,
            Self::PayloadOverMtu { .. } => 33,
            Self::PayloadUnderMtu { .. } => 34,
            Self::MessageTooLong { .. } => 35,
            Self::LengthMismatch { .. } => 36,
            Self::OverMaxMessage { .. } => 37,
            Self::MisalignedAtomic { .. } => 38,
            Self::UndefinedFlush => 39,
            Self::NoXrcQueue(_) => 40,
            Self::PsnOutOfWindow { .. } => 41,
            Self::NoReceive { .. } => 42,
            Self::WrongQueueKey { .. } => 43,
            Self::NotAttached => 44,
            Self::WrongService(_) => 45,
            Self::WrongPartition(_) => 46,
            Self::UnknownQueuePair(_) => 47,
            Self::NotPeer => 48,
            Self::NotReceiving(_) => 49,
            Self::DatagramTooLong { .. } => 50,
            Self::PeerRefused { .. } => 60,
            Self::RnrExhausted { .. } => 61,
            Self::NoResponse { .. } => 62,
            Self::PeerExpects { .. } => 63,
            Self::PortUnreachable { .. } => 64,
            Self::PeerEnded => 65,
            Self::PeerSilent => 66,
            Self::BadResponse { .. } => 67,
            Self::PeerCountsMore { .. } => 68,
            Self::PeerDisconnected => 69,
            Self::CqOverrun { .. } => 80,
            Self::PortDown => 81,
            Self::DeviceFailed => 82,
        }
    }

    /// The reason of a denied access.
    #[cold]
    pub(crate) fn denied(
        access: RefusedAccess,
        denied: Denied,
        by: Accessor,
        memory: &impl Memory,
    ) -> Self {
        Self::Memory(access, memory.explain(by, &access, denied))
    }

    /// The entry of its number in the [table](TABLE).
    pub fn entry(&self) -> &'static Entry {
        // A test checks that each number has one.
        entry(self.number()).unwrap_or(&TABLE[0])
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Memory(access, fault) => memory::write(f, &access, fault),
            Self::Bind { window, region, denied } => write!(
                f,
                "the memory window {:#x} cannot be bound to the MR with lkey {:#x}: {}",
                window.0,
                region.0,
                memory::bind_refusal(denied)
            ),
            Self::Invalidate { key, denied } => write!(
                f,
                "rkey {:#x} cannot be invalidated: {}",
                key.0,
                memory::invalidate_refusal(denied)
            ),
            Self::OpcodeSequence(opcode) => write!(
                f,
                "{} does not continue the peer's message in progress: packets of two messages are mixed, or the start is missing",
                opcode.name()
            ),
            Self::NotPermitted { opcode, missing } => write!(
                f,
                "refused {}: the queue pair lacks {} (qp_access_flags of ibv_modify_qp)",
                opcode.name(),
                memory::Flags(missing)
            ),
            Self::TooManyReads { max } => write!(
                f,
                "the peer has more than {max} READs and atomics outstanding: raise max_dest_rd_atomic here, or lower its max_rd_atomic"
            ),
            Self::PayloadOverMtu { payload, mtu } => write!(
                f,
                "payload of {payload} bytes over the path MTU of {mtu}: the two queue pairs have different path_mtu"
            ),
            Self::PayloadUnderMtu { payload, mtu } => write!(
                f,
                "payload of {payload} bytes where the path MTU of {mtu} requires another length: the two queue pairs have different path_mtu"
            ),
            Self::MessageTooLong { message, receive } => write!(
                f,
                "the message of at least {message} bytes is longer than the receive request of {receive} bytes"
            ),
            Self::DatagramTooLong { payload, receive } => write!(
                f,
                "a datagram of {payload} bytes needs a receive request of {} bytes, with 40 for the GRH; it has {receive}",
                payload + 40
            ),
            Self::LengthMismatch { announced, payload } => write!(
                f,
                "the packet has {payload} bytes of payload, but {announced} bytes of the announced length are left"
            ),
            Self::OverMaxMessage { length } => {
                write!(f, "the message of {length} bytes is longer than 2^31 bytes")
            }
            Self::MisalignedAtomic { address } => {
                write!(f, "the atomic operation is at {address:#x}, which is no multiple of 8")
            }
            Self::UndefinedFlush => {
                f.write_str("the FLUSH has a placement or selectivity that is not defined")
            }
            Self::NoXrcQueue(Some(queue)) => write!(
                f,
                "the message names SRQ {:#08x}, which does not exist in the XRC domain of the queue pair",
                queue.0
            ),
            Self::NoXrcQueue(None) => f.write_str("the XRC message names no SRQ"),
            Self::PsnOutOfWindow { psn, expected } => write!(
                f,
                "request with PSN {:#x}, expected {:#x}: does rq_psn match the peer's sq_psn?",
                psn.0, expected.0
            ),
            Self::NoReceive { queue, repeated } => {
                match queue {
                    Some(queue) => write!(f, "SRQ {:#08x} is empty: ", queue.0)?,
                    None => f.write_str("no receive request is posted: ")?,
                }
                f.write_str(match repeated {
                    true => "the sender repeats its message",
                    false => "the message is lost",
                })
            }
            Self::WrongQueueKey { source, received, expected } => write!(
                f,
                "dropped a datagram from QP {:#08x}: its Q_Key is {:#x}, the queue pair has {:#x}",
                source.0, received.0, expected.0
            ),
            Self::NotAttached => f.write_str(
                "dropped a multicast datagram: the queue pair is not attached to its group",
            ),
            Self::WrongService(opcode) => {
                write!(f, "dropped {}: the queue pair is of another service", opcode.name())
            }
            Self::WrongPartition(key) => write!(
                f,
                "dropped a packet with P_Key {:#06x}: the device has the default partition 0xffff only",
                key.0
            ),
            Self::UnknownQueuePair(number) => write!(
                f,
                "dropped a packet for QP {:#08x}, which does not exist: was it destroyed, or is dest_qp_num of the sender wrong?",
                number.0
            ),
            Self::NotPeer => {
                f.write_str("dropped a packet that is not from the address of the peer")
            }
            Self::NotReceiving(state) => write!(
                f,
                "dropped a packet: the queue pair is in {}, it needs RTR or RTS to receive",
                state.name()
            ),
            Self::PeerRefused { code, psn, remote } => {
                write!(f, "the peer refused the request with PSN {:#x}: {}", psn.0, nak(code))?;
                match remote {
                    Some(RemoteRange { key, address, length }) => write!(
                        f,
                        " ({length} bytes at {:#x} with rkey {:#x}; its last error says why)",
                        address.0, key.0
                    ),
                    None => f.write_str(" (its last error says why)"),
                }
            }
            Self::RnrExhausted { attempts, psn } => write!(
                f,
                "the peer had no receive request for PSN {:#x} in {}: raise rnr_retry, or post receives earlier",
                psn.0,
                Attempts(attempts)
            ),
            Self::NoResponse { attempts, psn, heard: true } => write!(
                f,
                "no response to PSN {:#x} in {}, though the peer has answered before: its queue pair is gone, or the path is broken",
                psn.0,
                Attempts(attempts)
            ),
            Self::NoResponse { attempts, psn, heard: false } => write!(
                f,
                "no response to PSN {:#x} in {}, and none before: dest_qp_num, the address or rq_psn of the peer is wrong, its queue pair does not receive yet, or the path is broken",
                psn.0,
                Attempts(attempts)
            ),
            Self::PeerExpects { expected, sent } => write!(
                f,
                "the peer expects PSN {:#x}, this queue pair sends {:#x}: does sq_psn match the peer's rq_psn?",
                expected.0, sent.0
            ),
            Self::PeerCountsMore { acknowledged, sent, mtu } => write!(
                f,
                "the peer acknowledged PSN {:#x}, which was never sent, instead of {:#x}: its path_mtu is smaller than {mtu}",
                acknowledged.0, sent.0
            ),
            Self::PortUnreachable { psn } => write!(
                f,
                "no response to PSN {:#x}, and its host reports the UDP port unreachable: no process has an RDMA device open at the address of the peer",
                psn.0
            ),
            Self::PeerDisconnected => {
                f.write_str("the peer disconnected (CM DREQ): the queue pair is in ERR")
            }
            Self::PeerEnded => f.write_str("the process of the peer has ended"),
            Self::PeerSilent => f.write_str("the peer has not answered any keepalive"),
            Self::BadResponse { opcode, psn } => write!(
                f,
                "the response {} with PSN {:#x} does not match the request",
                opcode.name(),
                psn.0
            ),
            Self::CqOverrun { queue, capacity } => write!(
                f,
                "CQ {queue} with {capacity} entries is full: completions are lost, and the queue pair is in ERR; create a larger CQ, or poll it more often"
            ),
            Self::PortDown => {
                f.write_str("the port is down: its interface lost its carrier, or was brought down")
            }
            Self::DeviceFailed => f.write_str("the device failed and has stopped"),
        }
    }
}

/// "1 attempt" or "8 attempts".
struct Attempts(u8);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} attempt{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

const fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error",
        NakCode::InvalidRequest | NakCode::InvalidRdRequest => "invalid request",
        NakCode::RemoteAccessError => "remote access error",
        NakCode::RemoteOperationalError => "remote operational error",
    }
}

//! The checks after the PSN check (IBA 9.7.4.1), in order.

use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position};
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::{Feth, FlushSelectivity};

use super::execute::refused;
use super::{MessageInProgress, Refusal, Reply, Responder, Verdict, has_response, remote_range};
use crate::memory::{AccessFlags, Accessor, Memory};
use crate::rc::queue_pair::Config;
use crate::reason::Reason;
use crate::receive::ReceiveQueue;
use crate::work::MAX_MESSAGE;

/// FLUSH of the whole MR, regardless of address and length (IBA A19).
const REGION: FlushSelectivity = FlushSelectivity(1);

impl Responder {
    /// Step 2, opcode sequence: the packets of a message follow each other, and messages do not interleave (IBA
    /// 9.7.4.1.2).
    ///
    /// With XRC, all packets of a message name the same SRQ (IBA A14).
    pub(super) fn check_sequence(
        &self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        queue: Option<Qpn>,
    ) -> Verdict {
        let fits = (info.position.opens() || queue == self.receive_queue)
            && matches!(
                (&self.message, info.operation, info.position),
                (MessageInProgress::None, _, Position::First | Position::Only)
                    | (MessageInProgress::Send, Operation::Send, Position::Middle | Position::Last)
                    | (
                        MessageInProgress::Write(_),
                        Operation::Write,
                        Position::Middle | Position::Last
                    )
            );
        if fits {
            return Ok(());
        }
        Err(Refusal::Request.because(Reason::OpcodeSequence(packet.bth.opcode)))
    }

    /// Step 4, resources: a receive request where one is consumed, and space for READs and atomics (IBA 9.7.4.1.4).
    pub(super) fn check_resources(
        &mut self,
        info: &OpcodeInfo,
        config: &Config,
        receives: Option<&mut ReceiveQueue>,
    ) -> Verdict {
        let opens_send = info.operation == Operation::Send && info.position.opens();
        if (opens_send || info.immediate) && self.receive.is_none() {
            let request = receives.and_then(ReceiveQueue::take).ok_or(Reply::NotReady)?;
            self.receive = Some(request);
        }
        let is_full =
            || self.responses.pending_requests() >= usize::from(config.max_dest_rd_atomic);
        if has_response(info.operation) && is_full() {
            let max = config.max_dest_rd_atomic;
            return Err(Refusal::Request.because(Reason::TooManyReads { max }));
        }
        Ok(())
    }

    /// Step 5, length: all packets but the last are MTU-sized, and the message fits its announced length and its buffer
    /// (IBA C9-92).
    pub(super) fn check_length(
        &self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
    ) -> Verdict {
        let (length, mtu) = (packet.payload_len as u64, u64::from(config.mtu));
        let packet_fits = match info.position {
            _ if !info.payload => length == 0,
            Position::First => length == mtu,
            Position::Middle => length == mtu * u64::from(self.run),
            Position::Last => (1..=mtu).contains(&length),
            Position::Only => length.div_ceil(mtu).max(1) == u64::from(self.run),
        };
        let announced = packet.extensions.reth.map_or(0, |reth| reth.length);
        let message_fits = match info.operation {
            Operation::Send => {
                let before = if info.position.opens() { 0 } else { self.received };
                let receive = self.receive.as_ref();
                receive.is_some_and(|request| before + length <= request.sg_list.len())
            }
            Operation::Write => {
                let left = match &self.message {
                    MessageInProgress::Write(range) => u64::from(range.length),
                    _ => u64::from(announced),
                };
                if info.position.ends() { length == left } else { length < left }
            }
            // ATOMIC WRITE carries exactly 8 bytes (IBA A19).
            Operation::AtomicWrite => length == 8 && announced == 8,
            _ => true,
        };
        // The message limit (IBA C9-94) does not apply to the length of a FLUSH.
        let within = announced <= MAX_MESSAGE || info.operation == Operation::Flush;
        if packet_fits && message_fits && within {
            return Ok(());
        }
        let (payload, mtu) = (packet.payload_len, config.mtu);
        Err(Refusal::Length.because(match info.operation {
            _ if !packet_fits && payload > usize::from(mtu) * self.run as usize => {
                Reason::PayloadOverMtu { payload, mtu }
            }
            _ if !packet_fits && info.payload => Reason::PayloadUnderMtu { payload, mtu },
            _ if !within => Reason::OverMaxMessage { length: announced },
            Operation::Send => self.too_long(info, length),
            _ => {
                let announced = match &self.message {
                    MessageInProgress::Write(range) => range.length,
                    _ => announced,
                };
                Reason::LengthMismatch { announced: announced.into(), payload }
            }
        }))
    }

    /// The message is longer than its receive request.
    #[cold]
    fn too_long(&self, info: &OpcodeInfo, length: u64) -> Reason {
        let before = if info.position.opens() { 0 } else { self.received };
        let receive = self.receive.as_ref().map_or(0, |request| request.sg_list.len());
        Reason::MessageTooLong { message: before + length, receive }
    }
}

/// Step 3, permission: the QP's access flags allow the operation (IBA 9.7.4.1.3).
///
/// A FLUSH with a placement or selectivity that IBA A19 does not define is an invalid request.
pub(super) fn check_permission(packet: &Packet<'_>, info: &OpcodeInfo, config: &Config) -> Verdict {
    let defined = packet.extensions.feth.is_none_or(|Feth { selectivity, placement, .. }| {
        matches!(placement.0, 1..=3) && selectivity.0 <= REGION.0
    });
    let needed = needed_access(packet, info);
    if defined && config.access.contains(needed) {
        return Ok(());
    }
    let missing = needed.difference(config.access);
    Err(Refusal::Request.because(match defined {
        true => Reason::NotPermitted { opcode: packet.bth.opcode, missing },
        false => Reason::UndefinedFlush,
    }))
}

/// The access right that an operation needs, from the QP and from the MR.
fn needed_access(packet: &Packet<'_>, info: &OpcodeInfo) -> AccessFlags {
    match info.operation {
        Operation::Write | Operation::AtomicWrite => AccessFlags::REMOTE_WRITE,
        Operation::ReadRequest => AccessFlags::REMOTE_READ,
        Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        // Each placement type has its own access right (IBA A19).
        Operation::Flush => match packet.extensions.feth.map_or(0, |feth| feth.placement.0) {
            1 => AccessFlags::FLUSH_GLOBAL,
            2 => AccessFlags::FLUSH_PERSISTENT,
            _ => AccessFlags::FLUSH_GLOBAL | AccessFlags::FLUSH_PERSISTENT,
        },
        _ => AccessFlags::default(),
    }
}

/// Step 6, memory: the rkey allows the whole announced range, before the first byte is accessed (IBA 9.7.4.1.5).
pub(super) fn check_key(
    packet: &Packet<'_>,
    info: &OpcodeInfo,
    by: Accessor,
    memory: &impl Memory,
) -> Verdict {
    let Some(range) = remote_range(packet) else { return Ok(()) };
    let access = needed_access(packet, info);
    let allowed = match info.operation {
        // Its execution checks the same range, and nothing is written if that fails.
        Operation::Write if info.position == Position::Only => return Ok(()),
        // Misaligned atomics (IBA 9.4.5) and ATOMIC WRITEs (IBA A19) are invalid requests.
        Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite
            if range.address.0 % 8 != 0 =>
        {
            let address = range.address.0;
            return Err(Refusal::Request.because(Reason::MisalignedAtomic { address }));
        }
        // A FLUSH needs a valid rkey even for zero bytes.
        Operation::Flush
            if range.length == 0
                || packet.extensions.feth.is_some_and(|feth| feth.selectivity == REGION) =>
        {
            memory.check_remote_key(by, range.key, access)
        }
        // A zero-length READ or WRITE is not checked (IBA C9-88).
        _ if range.length == 0 => Ok(()),
        // The payload is all that is written, so writing it checks the same range.
        Operation::Write if packet.payload.len() == range.length as usize => Ok(()),
        _ => memory.check_remote(by, range, access),
    };
    allowed.map_err(|denied| refused(range, access, denied, by, memory))
}

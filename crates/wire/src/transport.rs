//! The base transport header and its extensions (IBA 9.2 and 9.3).

use crate::field::header;
use crate::number::{
    Hex8, Immediate, Msn, PKey, Psn, QKey, Qpn, RKey, SrqNumber, VirtualAddress, Word, numbers,
};
use crate::opcode::Opcode;
use crate::syndrome::Syndrome;

header! {
    /// Base transport header (IBA 9.2).
    pub struct Bth("BTH", 12) {
        /// Opcode: operation and extension headers.
        opcode: Opcode = 8,
        /// Solicited event: the receiver raises an event when the message completes.
        solicited: bool = 1,
        /// Path migration state.
        migrated: bool = 1,
        /// Pad bytes after the payload, to a multiple of 4.
        pad: u8 = 2,
        /// Transport header version, 0.
        version: u8 = 4,
        /// Partition.
        partition: PKey = 16,
        /// Forward congestion notification (IBA A10); RoCEv2 switches mark the ECN bits of IP instead.
        fecn: bool = 1,
        /// Backward congestion notification: set in a CNP (IBA A17.9.3).
        becn: bool = 1,
        /// Reserved; replaced by ones in the ICRC, with the two bits before it.
        reserved1: u8 = 6,
        /// Destination queue pair.
        destination: Qpn = 24,
        /// Acknowledge request.
        ack_request: bool = 1,
        /// Reserved.
        reserved2: u8 = 7,
        /// Packet sequence number.
        psn: Psn = 24,
    }

    /// Reliable datagram extended transport header (IBA 9.3.1).
    pub struct Rdeth("RDETH", 4) {
        /// Reserved.
        reserved: Hex8 = 8,
        /// End-to-end context.
        context: u32 = 24,
    }

    /// Datagram extended transport header (IBA 9.3.2).
    pub struct Deth("DETH", 8) {
        /// Queue key: must match that of the receiving queue pair.
        queue_key: QKey = 32,
        /// Reserved.
        reserved: Hex8 = 8,
        /// Source queue pair: the destination of replies.
        source: Qpn = 24,
    }

    /// XRC extended transport header (IBA A14).
    pub struct Xrceth("XRCETH", 4) {
        /// Reserved.
        reserved: Hex8 = 8,
        /// Destination SRQ.
        receive_queue: SrqNumber = 24,
    }

    /// Flush extended transport header (IBA A19).
    pub struct Feth("FETH", 4) {
        /// Reserved.
        reserved: u32 = 26,
        /// Range of the flush.
        selectivity: FlushSelectivity = 2,
        /// Placement type: a set of flags.
        placement: FlushPlacement = 4,
    }

    /// RDMA extended transport header (IBA 9.3.3).
    pub struct Reth("RETH", 16) {
        /// Address in the responder's memory.
        address: VirtualAddress = 64,
        /// R_Key of the memory.
        key: RKey = 32,
        /// Length of the message in bytes.
        length: u32 = 32,
    }

    /// Atomic extended transport header (IBA 9.3.4).
    pub struct AtomicEth("AtomicETH", 28) {
        /// Address in the responder's memory, a multiple of 8.
        address: VirtualAddress = 64,
        /// R_Key of the memory.
        key: RKey = 32,
        /// The value to swap in or to add.
        swap_or_add: Word = 64,
        /// The value to compare with; ignored by fetch-and-add.
        compare: Word = 64,
    }

    /// Acknowledge extended transport header (IBA 9.3.5).
    pub struct Aeth("AETH", 4) {
        /// ACK, RNR NAK or NAK.
        syndrome: Syndrome = 8,
        /// Number of messages completed by the responder.
        msn: Msn = 24,
    }

    /// Atomic acknowledge extended transport header (IBA 9.3.5.3).
    pub struct AtomicAckEth("AtomicAckETH", 8) {
        /// The value before the operation.
        original: Word = 64,
    }

    /// Immediate data (IBA 9.3.6).
    pub struct ImmDt("ImmDt", 4) {
        /// Delivered with the receiver's completion.
        value: Immediate = 32,
    }

    /// Invalidate extended transport header (IBA 9.3.7).
    pub struct Ieth("IETH", 4) {
        /// R_Key that the receiver invalidates.
        key: RKey = 32,
    }
}

numbers! {
    /// Range of a FLUSH.
    pub struct FlushSelectivity(u8), 3, |level| match level.0 {
        0 => "the given range",
        1 => "the whole memory region",
        _ => "reserved",
    };
    /// Placement type of a FLUSH.
    pub struct FlushPlacement(u8), 3, |placement| match placement.0 {
        1 => "globally visible",
        2 => "persistent",
        3 => "globally visible and persistent",
        _ => "reserved",
    };
}

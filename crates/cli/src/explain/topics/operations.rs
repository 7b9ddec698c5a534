//! Operations: what a work request can ask for.

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::Ladder;
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(Operation "send", "SEND", ["IBV_WR_SEND", "send only", "RC SEND"],
        "Sends a message to the peer. The receiver decides where it goes: it has posted a buffer beforehand.",
        "A SEND consumes one receive work request at the responder, whose CQE reports the length. The message is cut \
         into packets of the path MTU: First, Middle, Last, or Only. If no receive is posted, RC answers with an RNR NAK.",
        "IBA 9.4.1", ["recv", "rnr", "send_with_imm"], Ladder(Send), ["SEND Only", "ACK", "RECV", "64 bytes"]),
    topic!(Operation "send_with_imm", "SEND with immediate data", ["IBV_WR_SEND_WITH_IMM", "send imm"],
        "A SEND with 4 extra bytes that appear in the receiver's completion.",
        "The last packet carries the ImmDt header. The receiver finds the 32 bits in imm_data, with IBV_WC_WITH_IMM set.",
        "IBA 9.4.1, 9.3.6", ["immdt", "write_with_imm"], Ladder(SendImmediate), ["SEND_WITH_IMM", "immediate 0x2a"]),
    topic!(Operation "send_with_inv", "SEND with invalidate", ["IBV_WR_SEND_WITH_INV", "send inv"],
        "A SEND that also takes a key away: the receiver's rkey no longer works afterwards.",
        "The last packet carries the IETH with the rkey to invalidate, of a type 2 memory window or a fast-registered MR. \
         Storage protocols use it to end a client's access with the reply.",
        "IBA 9.4.1.1", ["ieth", "local_inv", "mw"], Ladder(SendInvalidate), ["SEND_WITH_INV", "invalidated rkey"]),
    topic!(Operation "write", "RDMA WRITE", ["IBV_WR_RDMA_WRITE", "RDMA_WRITE", "rdma write only"],
        "Writes into the memory of the peer, whose program does nothing and notices nothing.",
        "The first packet carries the RETH: virtual address, rkey and length. The responder checks them against the MR and \
         the access flags of the QP; a violation is answered with NAK \"remote access error\". No receive is consumed.",
        "IBA 9.4.3", ["rkey", "reth", "write_with_imm", "read"], Ladder(LongWrite),
        ["RDMA WRITE First", "RDMA WRITE Middle", "RDMA WRITE Last", "ACK", "IBV_WC_SUCCESS (0)"]),
    topic!(Operation "write_with_imm", "RDMA WRITE with immediate data", ["IBV_WR_RDMA_WRITE_WITH_IMM", "write imm", "RDMA_WRITE_WITH_IMM"],
        "An RDMA WRITE that tells the receiver that it is complete, with 4 bytes of information.",
        "Consumes a receive work request, whose buffer stays untouched; its CQE has the opcode IBV_WC_RECV_RDMA_WITH_IMM \
         and the immediate data. All bytes of the WRITE are in memory by then.",
        "IBA 9.4.3, 9.3.6", ["write", "immdt", "recv"], Ladder(WriteImmediate), ["RDMA_WRITE_WITH_IMM", "RECV_RDMA_WITH_IMM", "immediate 0x2a"]),
    topic!(Operation "read", "RDMA READ", ["IBV_WR_RDMA_READ", "RDMA_READ", "read request", "read response"],
        "Fetches bytes from the memory of the peer, whose program does nothing.",
        "One request packet with a RETH; the responder sends the data in READ response packets, which use the PSNs that \
         follow. At most max_rd_atomic READs and atomics are in flight. The responder never sends an ACK beside them.",
        "IBA 9.4.4", ["max_rd_atomic", "reth", "write"], Ladder(LongRead),
        ["RDMA READ request", "READ response First", "READ response Last", "2500 bytes"]),
    topic!(Operation "cmp_swap", "Atomic compare and swap", ["IBV_WR_ATOMIC_CMP_AND_SWP", "compare swap", "compare_and_swap", "cas", "atomic", "atomics", "cmpswap"],
        "Replaces 8 bytes in the memory of the peer if they have the expected value, in one step, and returns the old value.",
        "The AtomicETH carries address, rkey, the swap and the compare value; the original value returns in the \
         AtomicAckETH. The address must be a multiple of 8. The responder executes it once, also if the request is repeated.",
        "IBA 9.4.5", ["fetch_add", "atomiceth", "atomicacketh"], Ladder(CompareSwap), ["ATOMIC_CMP_AND_SWP", "original value, 40", "holds 7"]),
    topic!(Operation "fetch_add", "Atomic fetch and add", ["IBV_WR_ATOMIC_FETCH_AND_ADD", "fetchadd", "faa", "fetch_and_add"],
        "Adds to 8 bytes in the memory of the peer, in one step, and returns the value before.",
        "As compare and swap, with the addend in the swap field of the AtomicETH. Carry beyond 64 bits is lost.",
        "IBA 9.4.5", ["cmp_swap", "atomiceth"], Ladder(FetchAdd), ["ATOMIC_FETCH_AND_ADD", "original value, 40", "holds 42"]),
    topic!(Operation "flush", "FLUSH", ["IBV_WR_FLUSH", "rdma flush"],
        "Makes sure that earlier WRITEs are really visible to all, or survive a power failure, before it completes.",
        "Carries the FETH (placement and selectivity) and a RETH with the range. The MR needs the access flag FLUSH_GLOBAL \
         or FLUSH_PERSISTENT. Completes with an RDMA READ response of zero length.",
        "IBA A19", ["feth", "atomic_write", "write"], Ladder(Flush), ["FLUSH", "RDMA WRITE Only"]),
    topic!(Operation "atomic_write", "ATOMIC WRITE", ["IBV_WR_ATOMIC_WRITE", "atomicwrite"],
        "Writes 8 bytes that no reader ever sees half written: for flags and pointers behind a FLUSH.",
        "A RETH and exactly 8 bytes; the address must be a multiple of 8. Unlike compare and swap it returns no value.",
        "IBA A19", ["flush", "write"], Ladder(AtomicWrite), ["ATOMIC_WRITE", "ATOMIC WRITE"]),
    topic!(Operation "bind_mw", "Memory window bind", ["IBV_WR_BIND_MW", "bind"],
        "Gives a part of a memory region a key of its own, without registering again.",
        "A local operation: no packet is sent. The MR must have been registered with MW_BIND. The new rkey differs from the \
         old one in its low 8 bits, so peers with the old key lose access.",
        "IBA 10.6.7.2", ["mw", "local_inv", "rkey"], Ladder(Bind), ["BIND_MW", "RDMA WRITE Only"]),
    topic!(Operation "local_inv", "Local invalidate", ["IBV_WR_LOCAL_INV", "invalidate"],
        "Takes a key away that was given to peers.",
        "A local operation on a type 2 memory window or a fast-registered MR: no packet is sent. Later requests of peers \
         with the key get NAK \"remote access error\".",
        "IBA 10.6.5", ["send_with_inv", "bind_mw"], Ladder(LocalInvalidate), ["LOCAL_INV", "remote access error"]),
    topic!(Operation "recv", "Receive", ["IBV_WC_RECV", "receive", "post_recv", "recv_wr", "rq", "receive queue"],
        "A buffer that the receiver posts in advance: the next SEND goes into it.",
        "Receives are consumed in order by SENDs and WRITEs with immediate, from the QP's receive queue (RQ) or its SRQ. A \
         message longer than the buffer is an error of the receiver, \"local length error\".",
        "IBA 9.4.1, 11.4.1.2", ["send", "srq", "rnr"], Ladder(Send), ["B posts a receive buffer", "RECV"]),
];

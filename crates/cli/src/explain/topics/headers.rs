//! Headers, in the order in which they are in a packet.

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::{Header, Steps};
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(Header "ip", "IP header", ["ipv4", "ipv6"],
        "Carries the packet between hosts, as any other IP packet: RoCEv2 can be routed.",
        "The source and destination addresses are the GIDs of the two ports. The type of service carries DSCP and the ECN \
         mark. \"Don't fragment\" is set. Fields that routers change are masked in the ICRC.",
        "IBA A17.3.1; RFC 791", ["gid", "ecn", "icrc", "udp"], Header(Write, "IPv4"), ["source", "127.0.0.1"]),
    topic!(Header "udp", "UDP header", ["port 4791", "4791", "roce port"],
        "Says that the packet is RoCEv2: the destination port is 4791.",
        "The source port, 49152 to 65535, is constant for a QP, so that a network with several paths keeps the packets of a \
         QP in order. Receivers accept a checksum of 0.",
        "IBA A17.3.1.1", ["rocev2", "ip", "bth"], Header(Write, "UDP"), ["4791"]),
    topic!(Header "bth", "BTH: base transport header", ["base transport header"],
        "The 12 bytes that every RDMA packet starts with: what it is, for which QP, and its number.",
        "Opcode, solicited event, MigReq, pad count, version, P_Key, destination QPN, ACK request and PSN. The opcode \
         determines which headers follow.",
        "IBA 9.2", ["opcode", "psn", "qpn", "reth", "aeth"], Header(Write, "BTH"), ["opcode", "psn", "0x001000"]),
    topic!(Header "reth", "RETH: RDMA extended transport header", ["rdma extended transport header"],
        "Where in the peer's memory to write or read, and the key that permits it.",
        "16 bytes: virtual address, rkey and the length of the whole message. In the first packet of an RDMA WRITE, in READ \
         requests, FLUSH and ATOMIC WRITE.",
        "IBA 9.3.3", ["write", "read", "rkey"], Header(Write, "RETH"), ["address", "key", "64"]),
    topic!(Header "aeth", "AETH: ACK extended transport header", ["ack extended transport header", "syndrome"],
        "The answer of the responder: arrived, wait, or an error, and how many messages it has completed.",
        "4 bytes. The syndrome is an ACK with credits (0–31), an RNR NAK with a timer (32–63) or a NAK with a code (96–100); \
         then the MSN. In ACKs, and in the first and last READ response.",
        "IBA 9.3.5, 9.7.5.1", ["ack", "nak", "rnr", "msn"], Header(Write, "AETH"), ["syndrome", "msn"]),
    topic!(Header "atomiceth", "AtomicETH: atomic extended transport header", ["atomic extended transport header", "atomic eth"],
        "What an atomic operation does, and where.",
        "28 bytes: virtual address, rkey, the swap (or add) data and the compare data.",
        "IBA 9.3.4", ["cmp_swap", "fetch_add"], Header(CompareSwap, "AtomicETH"), ["address", "swap"]),
    topic!(Header "atomicacketh", "AtomicAckETH: atomic acknowledge header", ["atomic ack eth", "atomicack"],
        "The value that was in memory before an atomic operation.",
        "8 bytes behind the AETH of the response.",
        "IBA 9.3.5.3", ["cmp_swap", "aeth"], Header(CompareSwap, "AtomicAckETH"), ["40"]),
    topic!(Header "immdt", "ImmDt: immediate data", ["immediate", "imm_data", "immediate data"],
        "Four bytes of the sender's choice for the receiver's completion.",
        "4 bytes behind the other headers of the last packet of a SEND or RDMA WRITE with immediate.",
        "IBA 9.3.6", ["send_with_imm", "write_with_imm"], Header(SendImmediate, "ImmDt"), ["0x0000002a"]),
    topic!(Header "ieth", "IETH: invalidate extended transport header", ["invalidate extended transport header"],
        "The key that the receiver of a SEND has to invalidate.",
        "4 bytes, the rkey, in the last packet of a SEND with invalidate.",
        "IBA 9.3.7", ["send_with_inv"], Header(SendInvalidate, "IETH"), ["key"]),
    topic!(Header "deth", "DETH: datagram extended transport header", ["datagram extended transport header"],
        "The sending QP of a datagram, and the Q_Key that permits it.",
        "8 bytes: Q_Key and source QPN. A datagram whose Q_Key differs from that of the destination QP is dropped.",
        "IBA 9.3.2", ["ud", "qkey"], Header(Datagram, "DETH"), ["0x11111111"]),
    topic!(Header "xrceth", "XRCETH: XRC extended transport header", ["xrc extended transport header"],
        "The receive queue that a message of an XRC connection is for.",
        "4 bytes: 8 reserved bits and the number of the SRQ.",
        "IBA A14", ["xrc", "srq"], Header(Xrc, "XRCETH"), ["SRQ"]),
    topic!(Header "feth", "FETH: FLUSH extended transport header", ["flush extended transport header"],
        "What a FLUSH has to achieve.",
        "4 bytes: the selectivity (the range or the whole MR) and the placement (globally visible or persistent).",
        "IBA A19", ["flush"], Header(Flush, "FETH"), ["globally visible"]),
    topic!(Header "icrc", "ICRC: invariant CRC", ["invariant crc", "crc"],
        "The checksum at the end of every packet. A packet with a wrong one is dropped, as if it were lost.",
        "CRC-32 over the packet without the fields that routers change: type of service, TTL, header checksum, and the \
         UDP checksum are taken as ones. 4 bytes, least significant byte first.",
        "IBA 7.8.1, A17.3.3", ["ip", "bth"], Header(Write, "ICRC"), ["correct"]),
    topic!(Header "grh", "GRH: global route header", ["global route header"],
        "The 40 bytes in front of every datagram that a UD QP receives: the address it came from.",
        "On InfiniBand it is a header of the packet. RoCEv2 has the IP header in its place: an IPv6 header fills all 40 \
         bytes, an IPv4 header the last 20. The buffer of a UD receive needs 40 bytes more than the message.",
        "IBA 8.3, 11.4.1.2, A17", ["ud", "ip", "gid"], Steps(Datagram), ["104 bytes", "first 40"]),
    topic!(Header "mad", "MAD: management datagram", ["management datagram"],
        "The 256-byte message by which connection managers talk to each other.",
        "A UD SEND from QP 1 to QP 1 with the Q_Key 0x80010000: 24 bytes of header, then the CM message (REQ, REP, RTU, …).",
        "IBA 13.4", ["cm", "req", "ud"], Header(Connect, "MAD"), ["class"]),
];

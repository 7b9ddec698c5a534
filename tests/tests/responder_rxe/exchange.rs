//! One direction of one connection in a capture: the requests of one side, the answers of the other.

use std::fs::File;
use std::path::Path;

use ferroce_tests::capture;
use ferroce_trace::analysis::report::Conversation;
use ferroce_trace::analysis::{self, Options};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::{OpcodeInfo, Transport};
use ferroce_wire::packet::Packet;

use crate::answer::Answer;

/// A packet from its BTH to its ICRC.
#[derive(Clone)]
pub(crate) struct Sent {
    /// Its number in the file, from 1.
    pub(crate) number: u64,
    source: String,
    bytes: Vec<u8>,
}

/// What one side asked, and what rdma_rxe on the other side answered.
pub(crate) struct Exchange {
    pub(crate) capture: String,
    /// Both queue pairs, requester first.
    pub(crate) title: String,
    pub(crate) mtu: u16,
    pub(crate) requester: Qpn,
    pub(crate) requests: Vec<Sent>,
    pub(crate) answers: Vec<Sent>,
}

impl Sent {
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap_or_else(|error| panic!("packet {}: {error}", self.number))
    }

    pub(crate) fn info(&self) -> &'static OpcodeInfo {
        self.packet().bth.opcode.info().expect("only known opcodes were captured")
    }
}

impl Exchange {
    /// What rdma_rxe answered, in order.
    pub(crate) fn expected(&self) -> Vec<Answer> {
        self.answers.iter().map(|sent| Answer::of(&sent.packet())).collect()
    }
}

/// What a capture has of reliable connections.
pub(crate) struct Reliable {
    /// Those in which something was asked, and whose both ends are known. An end stays unknown when it never said
    /// anything: then nothing was answered, either.
    pub(crate) exchanges: Vec<Exchange>,
    /// Packets that belong to none of them.
    pub(crate) left_over: usize,
}

pub(crate) fn read(path: &Path) -> Reliable {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let report = analysis::analyze("", file, &Options::default(), &mut |_| ());
    let packets = reliable_packets(path);
    let reliable = report.conversations.iter().filter(|one| one.transport == "RC");
    let exchanges: Vec<Exchange> = reliable
        .flat_map(|one| [true, false].map(|from_a| direction(path, &packets, one, from_a)))
        .flatten()
        .collect();
    let told = exchanges.iter().map(|one| one.requests.len() + one.answers.len()).sum::<usize>();
    Reliable { exchanges, left_over: packets.len() - told }
}

fn direction(
    path: &Path,
    packets: &[Sent],
    conversation: &Conversation,
    from_a: bool,
) -> Option<Exchange> {
    let (from, to) = match from_a {
        true => (&conversation.a, &conversation.b),
        false => (&conversation.b, &conversation.a),
    };
    let (requester, responder) = (Qpn(from.qpn?), Qpn(to.qpn?));
    let those = |request: bool, source: &str, destination: Qpn| -> Vec<Sent> {
        let wanted = |sent: &&Sent| {
            let to_it = sent.source == source && sent.packet().bth.destination == destination;
            to_it && sent.info().request == request
        };
        packets.iter().filter(wanted).cloned().collect()
    };
    let requests = those(true, &from.address, responder);
    let answers = those(false, &to.address, requester);
    if requests.is_empty() {
        assert!(answers.is_empty(), "{}: answers without requests", path.display());
        return None;
    }
    Some(Exchange {
        capture: capture::name(path),
        title: format!(
            "{} QP {:#x} to {} QP {:#x}",
            from.address, requester.0, to.address, responder.0
        ),
        // Unknown when every message fits one packet: then any that is large enough will do.
        mtu: conversation.path_mtu.unwrap_or(4096) as u16,
        requester,
        requests,
        answers,
    })
}

fn reliable_packets(path: &Path) -> Vec<Sent> {
    let mut packets = Vec::new();
    for recorded in capture::read(path) {
        let (_, frame) = recorded.frame();
        let packet = frame.packet.expect("only RoCE was captured");
        let (source, _) = frame.addresses().expect("RoCEv2 has addresses");
        if packet
            .bth
            .opcode
            .info()
            .is_some_and(|info| info.transport == Transport::ReliableConnection)
        {
            let bytes = frame.bytes[frame.at.transport..][..packet.wire_len()].to_vec();
            packets.push(Sent { number: recorded.number, source: source.to_string(), bytes });
        }
    }
    packets
}

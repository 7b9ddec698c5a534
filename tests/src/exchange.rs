//! One direction of a connection in a capture: the requests of one side, the responses of the other.

use std::fs::File;
use std::path::Path;

use ferroce_proto::time::Instant;
use ferroce_trace::analysis::report::{Conversation, Endpoint};
use ferroce_trace::analysis::{self, Options};
use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::opcode::{OpcodeInfo, Transport};
use ferroce_wire::packet::Packet;

use crate::capture;

/// A packet from its BTH to its ICRC.
#[derive(Clone)]
pub struct Sent {
    /// Its number in the file, from 1.
    pub number: u64,
    /// The time since the first packet of the file.
    pub time: Instant,
    source: String,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// The requests of one side, and the responses of rdma_rxe on the other side.
pub struct Exchange {
    /// The name of the file.
    pub capture: String,
    /// Both queue pairs, requester first.
    pub title: String,
    /// Path MTU.
    pub mtu: u16,
    /// The requester's QPN. Zero if there was no response, because then the capture does not contain it.
    pub requester: Qpn,
    /// The responder's QPN.
    pub responder: Qpn,
    /// In the order of the file.
    pub requests: Vec<Sent>,
    /// In the order of the file.
    pub responses: Vec<Sent>,
}

impl Sent {
    /// Parses the packet.
    pub fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).unwrap_or_else(|error| panic!("packet {}: {error}", self.number))
    }

    /// Returns the properties of its opcode.
    pub fn info(&self) -> &'static OpcodeInfo {
        self.packet().bth.opcode.info().expect("only known opcodes were captured")
    }
}

impl Exchange {
    /// Returns the requester's first PSN: the first request captured may not be the first one sent.
    pub fn first_psn(&self) -> Psn {
        let psns = self.requests.iter().map(|sent| sent.packet().bth.psn);
        let first = psns.reduce(|first, psn| if psn.is_before(first) { psn } else { first });
        first.expect("an exchange has requests")
    }
}

/// The RC exchanges of a capture.
pub struct Reliable {
    /// Exchanges with requests whose QPNs are both known.
    pub exchanges: Vec<Exchange>,
    /// Exchanges without responses, in which the requester's QPN is not known.
    pub unanswered: Vec<Exchange>,
    /// Packets that belong to no exchange with two known QPNs.
    pub left_over: usize,
}

/// Reads a capture.
pub fn read(path: &Path) -> Reliable {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let report = analysis::analyze("", file, &Options::default(), &mut |_| ());
    let packets = reliable_packets(path);
    let reliable = report.conversations.iter().filter(|one| one.transport == "RC");
    let (exchanges, unanswered): (Vec<Exchange>, Vec<Exchange>) = reliable
        .flat_map(|one| [(one, &one.a, &one.b), (one, &one.b, &one.a)])
        .filter_map(|(one, from, to)| direction(path, &packets, one, from, to))
        .partition(|exchange| exchange.requester != Qpn(0));
    let told = exchanges.iter().map(|one| one.requests.len() + one.responses.len()).sum::<usize>();
    Reliable { exchanges, unanswered, left_over: packets.len() - told }
}

fn direction(
    path: &Path,
    packets: &[Sent],
    conversation: &Conversation,
    from: &Endpoint,
    to: &Endpoint,
) -> Option<Exchange> {
    let (requester, responder) = (Qpn(from.qpn.unwrap_or_default()), Qpn(to.qpn?));
    let those = |request: bool, source: &str, destination: Qpn| -> Vec<Sent> {
        let wanted = |sent: &&Sent| {
            let to_it = sent.source == source && sent.packet().bth.destination == destination;
            to_it && sent.info().request == request
        };
        packets.iter().filter(wanted).cloned().collect()
    };
    let requests = those(true, &from.address, responder);
    let responses = those(false, &to.address, requester);
    if requests.is_empty() {
        assert!(responses.is_empty(), "{}: responses without requests", path.display());
        return None;
    }
    Some(Exchange {
        capture: capture::name(path),
        title: format!(
            "{} QP {:#x} to {} QP {:#x}",
            from.address, requester.0, to.address, responder.0
        ),
        // Unknown if every message fits one packet; then any MTU that is large enough will do.
        mtu: conversation.path_mtu.unwrap_or(4096) as u16,
        requester,
        responder,
        requests,
        responses,
    })
}

fn reliable_packets(path: &Path) -> Vec<Sent> {
    let mut packets = Vec::new();
    let recorded = capture::read(path);
    let start = recorded.first().and_then(|first| first.time).expect("captures have times");
    for recorded in &recorded {
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
            let time = recorded.time.expect("captures have times").nanoseconds_since(start);
            packets.push(Sent {
                number: recorded.number,
                time: Instant::from_nanos(u64::try_from(time).expect("time does not run back")),
                source: source.to_string(),
                bytes,
            });
        }
    }
    packets
}

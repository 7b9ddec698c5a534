//! Messages of the set-up exchange, carried in datagrams to a dedicated queue pair.

use std::fmt::Write;

use ferroce_wire::packet::Packet;
use ferroce_wire::setup::{Magic, ParseError, Prefix, QUEUE_KEY, QUEUE_PAIR, SetupMessage, Status};

use super::build::Builder;
use super::carrier::{bytes, name_or_number};

/// Parses the message in a packet. `None` if the packet does not belong to the exchange: other datagrams may go to the
/// same queue pair, so the Q_Key and the magic number must match as well.
fn message(packet: &Packet<'_>) -> Option<Result<SetupMessage, ParseError>> {
    let deth = packet.extensions.deth?;
    if packet.bth.destination != QUEUE_PAIR || deth.queue_key != QUEUE_KEY {
        return None;
    }
    let (prefix, _) = Prefix::split(packet.payload)?;
    (prefix.magic == Magic::SETUP).then(|| SetupMessage::parse(packet.payload))
}

/// Whether a packet belongs to the exchange.
pub(crate) fn is_setup(packet: &Packet<'_>) -> bool {
    message(packet).is_some()
}

/// Parses the message in a packet, if it carries a valid one.
pub(crate) fn setup_message(packet: &Packet<'_>) -> Option<SetupMessage> {
    message(packet)?.ok()
}

/// The name of the message that a packet carries, if it carries one.
pub(super) fn title(packet: &Packet<'_>) -> Option<&'static str> {
    Some(message(packet)?.map_or("set-up message", |message| message.name()))
}

/// One-line summary of the message that a packet carries.
pub(super) fn summary(packet: &Packet<'_>) -> Option<String> {
    Some(match message(packet)? {
        Ok(message) => format!("{}  {}", message.name(), details(&message)),
        Err(problem) => format!("set-up message  {problem}"),
    })
}

/// Adds the payload of a packet as a message. Returns false if it is none.
pub(super) fn layers(builder: &mut Builder<'_>, packet: &Packet<'_>) -> bool {
    let Some(message) = message(packet) else { return false };
    let len = packet.payload.len();
    match message {
        Ok(message) => {
            builder
                .visited(message.name(), len, details(&message), |visitor| message.visit(visitor));
        }
        Err(problem) => {
            // Truncation by the capture is reported for the packet as a whole.
            if len == packet.payload_len {
                builder.problem(builder.at, problem);
            }
            let end = builder.at + len;
            if let Some((prefix, _)) = Prefix::split(packet.payload) {
                builder.header(&prefix, problem.to_string());
            }
            let left = end - builder.at;
            builder.data("Set-up data", left, bytes(left));
        }
    }
    true
}

fn details(message: &SetupMessage) -> String {
    let prefix = message.prefix();
    let mut line = format!("exchange {}", prefix.exchange);
    // Writing to a string cannot fail.
    let _ = match message {
        SetupMessage::QpCreateReq(qp) => {
            write!(line, "  QP {}  PSN {}", qp.qp_number, qp.starting_psn)
        }
        SetupMessage::QpCreateResp(qp) => {
            write!(line, "  QP {}  PSN {}", qp.qp_number, qp.starting_psn)
        }
        SetupMessage::MrRegisterReq(mr) => {
            write!(line, "  {} bytes at {}", mr.length, mr.virtual_address)
        }
        SetupMessage::MrRegisterResp(mr) => {
            let (length, address, key) = (mr.length, mr.virtual_address, mr.remote_key);
            write!(line, "  {length} bytes at {address} rkey {key}")
        }
        SetupMessage::ConnectionReq(it) => write!(line, "  QP {} → {}", it.client_qp, it.server_qp),
        SetupMessage::ConnectionAccept(it) => {
            write!(line, "  QP {} → {}", it.server_qp, it.client_qp)
        }
        SetupMessage::ConnectionConfirm(it) => {
            write!(line, "  QP {} → {}", it.client_qp, it.server_qp)
        }
        SetupMessage::DeviceDiscoveryReq(_) | SetupMessage::DeviceDiscoveryResp(_) => Ok(()),
    };
    if prefix.attempt != 0 {
        let _ = write!(line, "  attempt {}", u16::from(prefix.attempt) + 1);
    }
    if prefix.status != Status::SUCCESS {
        let _ = write!(line, "  {}", name_or_number(&prefix.status));
    }
    line
}

//! What a packet means, in a sentence or two.

use std::fmt::Write;

use ferroce_wire::cm::CmMessage;
use ferroce_wire::frame::Frame;
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position, Transport};
use ferroce_wire::packet::Packet;
use ferroce_wire::setup::SetupMessage;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use super::carrier::bytes;
use super::summary::is_congestion_marked;
use super::{cm_message, is_management, setup_message};

/// Explains what a frame does, in words for a reader who does not know the protocol by heart. Empty for frames that are
/// not RoCE.
///
/// ```text
/// Middle part of a SEND to queue pair 0x00003c: 1024 bytes for the receive buffer that the message uses.
/// ```
pub fn explain(frame: &Frame<'_>) -> String {
    let Some(packet) = &frame.packet else {
        return match frame.is_roce() {
            true => "A RoCE packet whose headers cannot be read.".to_owned(),
            false => String::new(),
        };
    };
    let mut text = if let Some(message) = cm_message(packet) {
        connection_manager(&message).to_owned()
    } else if let Some(message) = setup_message(packet) {
        set_up(&message).to_owned()
    } else if is_management(packet) {
        "A management datagram: agents of the two hosts talk about the fabric, not about application data.".to_owned()
    } else {
        match packet.bth.opcode.info() {
            Some(info) => operation(info, packet),
            None => "An opcode that the specification does not define: receivers drop the packet."
                .to_owned(),
        }
    };
    let reliable = packet.bth.opcode.info().is_some_and(|info| {
        matches!(info.operation, Operation::Send | Operation::Write)
            && matches!(
                info.transport,
                Transport::ReliableConnection | Transport::ExtendedReliableConnection
            )
    });
    if reliable && packet.bth.ack_request {
        text.push_str(" The sender asks for an acknowledgement.");
    }
    if is_congestion_marked(frame) {
        text.push_str(" A switch marked it because its queue was filling (ECN).");
    }
    text
}

/// What part of a message a packet is: `First part of a SEND`, `A complete SEND`.
fn part(position: Position, message: &str) -> String {
    let article = if message.starts_with("SEND") { "a" } else { "an" };
    match position {
        Position::First => format!("First part of {article} {message}"),
        Position::Middle => format!("Middle part of {article} {message}"),
        Position::Last => format!("Last part of {article} {message}"),
        Position::Only => format!("A complete {message}"),
    }
}

fn operation(info: &OpcodeInfo, packet: &Packet<'_>) -> String {
    let (bth, headers) = (&packet.bth, &packet.extensions);
    let (to, size) = (bth.destination, bytes(packet.payload_len));
    let part = |message| part(info.position, message);
    // Writing to a string cannot fail.
    let mut text = String::new();
    match info.operation {
        Operation::Send => {
            let _ = match info.transport {
                Transport::UnreliableDatagram => write!(
                    text,
                    "A datagram of {size} to queue pair {to}: it is delivered into a posted receive buffer or lost, and \
                     nothing is acknowledged."
                ),
                _ => write!(
                    text,
                    "{} to queue pair {to}: {size} for a receive buffer that the receiver has posted.",
                    part("SEND")
                ),
            };
            if headers.ieth.is_some() {
                text.push_str(" The receiver invalidates the named R_Key.");
            }
        }
        Operation::Write => {
            let _ = match headers.reth {
                Some(reth) => write!(
                    text,
                    "{} of {} to address {} in the memory region with R_Key {}; this packet carries {size}. \
                     The application there is not involved.",
                    part("RDMA WRITE"),
                    bytes(reth.length as usize),
                    reth.address,
                    reth.key
                ),
                None => write!(
                    text,
                    "{} to queue pair {to}: {size} that follow those of the packet before.",
                    part("RDMA WRITE")
                ),
            };
        }
        Operation::ReadRequest => {
            if let Some(reth) = headers.reth {
                let _ = write!(
                    text,
                    "Asks queue pair {to} for {} from address {} of the memory region with R_Key {} (RDMA READ); the application \
                     there is not involved.",
                    bytes(reth.length as usize),
                    reth.address,
                    reth.key
                );
            }
        }
        Operation::ReadResponse => {
            let _ =
                write!(text, "{}: {size} of data for queue pair {to}.", part("RDMA READ response"));
        }
        Operation::CompareSwap | Operation::FetchAdd => {
            if let Some(atomic) = headers.atomic {
                let what = match info.operation {
                    Operation::CompareSwap => format!(
                        "replaces the 8 bytes there by {} if they equal {}",
                        atomic.swap_or_add, atomic.compare
                    ),
                    _ => format!("adds {} to the 8 bytes there", atomic.swap_or_add),
                };
                let _ = write!(
                    text,
                    "Atomic operation on address {} with R_Key {}: the responder {what}, and returns the value before.",
                    atomic.address, atomic.key
                );
            }
        }
        Operation::AtomicAcknowledge => {
            text.push_str("The result of an atomic operation: the value that was there before.");
        }
        Operation::AtomicWrite => {
            text.push_str(
                "Writes 8 bytes of remote memory in one piece, which no reader sees half done.",
            );
        }
        Operation::Flush => {
            text.push_str("Asks the responder to make earlier WRITEs visible or persistent before it answers.");
        }
        Operation::Acknowledge => acknowledge(&mut text, packet),
        Operation::Resync => text.push_str("Resynchronises the PSNs of a reliable datagram."),
        Operation::CongestionNotification => {
            let _ = write!(
                text,
                "Congestion notification: packets for this connection were marked on the way, so queue pair {to} should \
                 send more slowly."
            );
        }
    }
    if let Some(immediate) = headers.immediate {
        let _ = write!(
            text,
            " With it come 4 bytes of immediate data, {}, which complete a receive at the other side.",
            immediate.value
        );
    }
    text
}

fn acknowledge(text: &mut String, packet: &Packet<'_>) {
    let psn = packet.bth.psn;
    let kind = packet.extensions.aeth.map(|aeth| aeth.syndrome.kind());
    // Writing to a string cannot fail.
    let _ = match kind {
        Some(SyndromeKind::Ack(_)) => {
            write!(text, "Everything up to PSN {psn} arrived and was executed.")
        }
        Some(SyndromeKind::RnrNak(timer)) => {
            let micros = timer.duration().as_micros();
            write!(
                text,
                "Receiver not ready: no receive buffer is posted for the message at PSN {psn}. The sender waits {}.{:02} ms \
                 and sends it again.",
                micros / 1000,
                micros % 1000 / 10
            )
        }
        Some(SyndromeKind::Nak(code)) => match code {
            NakCode::PsnSequenceError => write!(
                text,
                "A packet is missing: the responder expects PSN {psn}. The sender goes back and sends again from there."
            ),
            NakCode::InvalidRequest => write!(
                text,
                "Refused: the responder's queue pair does not accept the request at PSN {psn}. The connection is broken."
            ),
            NakCode::RemoteAccessError => write!(
                text,
                "Refused: R_Key, address range or access flags do not allow the request at PSN {psn}. The connection is broken."
            ),
            NakCode::RemoteOperationalError => write!(
                text,
                "The responder failed while it executed the request at PSN {psn}. The connection is broken."
            ),
            NakCode::InvalidRdRequest => {
                write!(text, "Refused: a NAK for reliable datagrams, which no device implements.")
            }
        },
        Some(SyndromeKind::Reserved) | None => {
            write!(text, "An acknowledgement whose syndrome the specification reserves.")
        }
    };
}

const fn connection_manager(message: &CmMessage) -> &'static str {
    match message {
        CmMessage::Req(_) => {
            "Connection request: the active side names its queue pair, its first PSN and its limits, and asks to connect."
        }
        CmMessage::Rep(_) => {
            "Connection reply: the passive side accepts, and names its queue pair and first PSN. It can receive now."
        }
        CmMessage::Rtu(_) => {
            "Ready to use: the active side confirms the reply. Both queue pairs can send and receive."
        }
        CmMessage::Rej(_) => {
            "Reject: the connection is not established; the reason is in the message."
        }
        CmMessage::Mra(_) => {
            "Message receipt acknowledgement: the peer needs more time to answer, and asks not to be sent it again."
        }
        CmMessage::Dreq(_) => "Disconnect request: this side ends the connection.",
        CmMessage::Drep(_) => "Disconnect reply: the peer agrees, and the connection has ended.",
        CmMessage::SidrReq(_) => {
            "Service ID resolution request: asks for the queue pair that serves datagrams of this service."
        }
        CmMessage::SidrRep(_) => {
            "Service ID resolution reply: the queue pair and Q_Key to which datagrams can be sent."
        }
        CmMessage::Lap(_) => "Load alternate path: proposes a second path for the connection.",
        CmMessage::Apr(_) => "Alternate path response: accepts or refuses the second path.",
    }
}

const fn set_up(message: &SetupMessage) -> &'static str {
    match message {
        SetupMessage::DeviceDiscoveryReq(_) => "Set-up exchange: asks the host what it can do.",
        SetupMessage::DeviceDiscoveryResp(_) => "Set-up exchange: the host's capabilities.",
        SetupMessage::QpCreateReq(_) => {
            "Set-up exchange: the client names its queue pair and first PSN, and asks for one at the server."
        }
        SetupMessage::QpCreateResp(_) => {
            "Set-up exchange: the server names the queue pair it created for the client."
        }
        SetupMessage::MrRegisterReq(_) => "Set-up exchange: asks the server for a memory region.",
        SetupMessage::MrRegisterResp(_) => {
            "Set-up exchange: address and R_Key of the memory region that the client may access."
        }
        SetupMessage::ConnectionReq(_) => {
            "Set-up exchange: asks the server to connect the two queue pairs."
        }
        SetupMessage::ConnectionAccept(_) => {
            "Set-up exchange: the server's queue pair is ready to receive."
        }
        SetupMessage::ConnectionConfirm(_) => {
            "Set-up exchange: the client's queue pair is ready; the connection is up."
        }
    }
}

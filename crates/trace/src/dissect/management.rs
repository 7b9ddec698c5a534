//! Management datagrams: CM messages, with the RDMA-CM header in their private data.

use std::fmt::Write;

use ferroce_wire::cm::{CmMessage, Req};
use ferroce_wire::field::Meaning;
use ferroce_wire::mad::{AttributeId, Mad, MadHeader, ManagementClass};
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;
use ferroce_wire::rdmacm::{IpHeader, split_private_data};

use super::build::Builder;
use super::carrier::{bytes, name_or_number};

/// Whether the payload is a management datagram, as received by QP 0 and QP 1 (IBA 13.5.1).
pub(crate) fn is_management(packet: &Packet<'_>) -> bool {
    packet.extensions.deth.is_some() && packet.bth.destination.0 <= Qpn::GENERAL_SERVICES.0
}

/// Parses the CM message in a packet, if it carries one.
pub(crate) fn cm_message(packet: &Packet<'_>) -> Option<CmMessage> {
    if !is_management(packet) {
        return None;
    }
    CmMessage::from_mad(&Mad::parse(packet.payload).ok()?).ok()
}

/// The name of the CM message that a packet carries, or `MAD` for other management datagrams.
pub(super) fn title(packet: &Packet<'_>) -> Option<&'static str> {
    match cm_message(packet) {
        Some(message) => Some(message.name()),
        None if is_management(packet) => Some("MAD"),
        None => None,
    }
}

/// One-line summary of the message that a packet carries.
pub(super) fn summary(packet: &Packet<'_>) -> Option<String> {
    if let Some(message) = cm_message(packet) {
        let mut line = message.name().to_owned();
        // Writing to a string cannot fail.
        let _ = message_details(&mut line, &message);
        return Some(line);
    }
    if !is_management(packet) {
        return None;
    }
    let header = MadHeader::split(packet.payload);
    Some(match header {
        Some((header, _)) => {
            format!("MAD  QP {}  {}", packet.bth.destination, mad_summary(&header))
        }
        None => format!("MAD  QP {}  {}", packet.bth.destination, bytes(packet.payload_len)),
    })
}

fn message_details(line: &mut String, message: &CmMessage) -> std::fmt::Result {
    match (message.local_comm_id(), message.remote_comm_id()) {
        (Some(local), Some(remote)) => write!(line, "  id {local} → {remote}")?,
        (Some(id), None) | (None, Some(id)) => write!(line, "  id {id}")?,
        (None, None) => {}
    }
    match message {
        CmMessage::Req(req) => {
            let transport = req.transport().map_or("?".to_owned(), |kind| kind.to_string());
            write!(line, "  {transport} QP {}  PSN {}", req.local_qpn, req.starting_psn)
        }
        CmMessage::Rep(rep) => write!(line, "  QP {}  PSN {}", rep.local_qpn, rep.starting_psn),
        CmMessage::Rej(rej) => {
            write!(line, "  of {}: {}", name_or_number(&rej.message), name_or_number(&rej.reason))
        }
        CmMessage::Mra(mra) => {
            let (what, time) = (Meaning(&mra.message), Meaning(&mra.service_timeout));
            write!(line, "  of {what}, response within {time}")
        }
        CmMessage::Dreq(dreq) => write!(line, "  QP {}", dreq.remote_qpn),
        CmMessage::Apr(apr) => write!(line, "  {}", name_or_number(&apr.status)),
        CmMessage::SidrRep(rep) => match rep.status.0 {
            0 => write!(line, "  QP {}  Q_Key {}", rep.qpn, rep.q_key),
            _ => write!(line, "  {}", name_or_number(&rep.status)),
        },
        CmMessage::Rtu(_) | CmMessage::Drep(_) | CmMessage::SidrReq(_) | CmMessage::Lap(_) => {
            Ok(())
        }
    }?;
    if let Some(service) = message.service_id() {
        write!(line, "  {}", name_or_number(&service))?;
    }
    Ok(())
}

fn mad_summary(header: &MadHeader) -> String {
    let attribute = attribute_name(header);
    format!("{}, {} {attribute}", name_or_number(&header.class), name_or_number(&header.method))
}

/// The name of an attribute, which depends on the management class.
fn attribute_name(header: &MadHeader) -> String {
    if header.class == ManagementClass::COMMUNICATION {
        let name = match header.attribute {
            AttributeId::REQ => "REQ",
            AttributeId::MRA => "MRA",
            AttributeId::REJ => "REJ",
            AttributeId::REP => "REP",
            AttributeId::RTU => "RTU",
            AttributeId::DREQ => "DREQ",
            AttributeId::DREP => "DREP",
            AttributeId::SIDR_REQ => "SIDR_REQ",
            AttributeId::SIDR_REP => "SIDR_REP",
            AttributeId::LAP => "LAP",
            AttributeId::APR => "APR",
            other => return name_or_number(&other),
        };
        return name.to_owned();
    }
    name_or_number(&header.attribute)
}

/// Adds the payload of a packet as a management datagram. Returns false if it is none.
pub(super) fn layers(builder: &mut Builder<'_>, packet: &Packet<'_>) -> bool {
    if !is_management(packet) {
        return false;
    }
    let Some((header, _)) = MadHeader::split(packet.payload) else { return false };
    let end = builder.at + packet.payload.len();
    let start = builder.at;
    builder.header(&header, mad_summary(&header)).explain("attribute", attribute_name(&header));
    match Mad::parse(packet.payload) {
        Ok(mad) => match CmMessage::from_mad(&mad) {
            Ok(message) => message_layers(builder, &message),
            // Only the CM class is parsed here; other classes are not an error.
            Err(problem) if header.class == ManagementClass::COMMUNICATION => {
                builder.problem(start, problem);
            }
            Err(_) => {}
        },
        // Truncation by the capture is reported for the packet as a whole.
        Err(problem) if packet.payload.len() == packet.payload_len => {
            builder.problem(start, problem);
        }
        Err(_) => {}
    }
    let left = end - builder.at;
    builder.data("MAD data", left, bytes(left));
    true
}

fn message_layers(builder: &mut Builder<'_>, message: &CmMessage) {
    let private = message.private_data();
    let len = Req::LEN - private.len();
    let mut line = String::new();
    let _ = message_details(&mut line, message);
    let line = line.trim_start().to_owned();
    let layer = builder.visited(message.name(), len, line, |visitor| message.visit(visitor));
    if matches!(message, CmMessage::Req(req) if req.alternate_path().is_none()) {
        layer.hide("alternate_");
    }

    let mut consumer = private.len();
    let carries_header = matches!(message, CmMessage::Req(_) | CmMessage::SidrReq(_));
    if let Some(service) = message.service_id().filter(|_| carries_header) {
        if let Ok((header, rest)) = split_private_data(service, private) {
            builder.header(&header, ip_summary(&header));
            consumer = rest.len();
        }
    }
    builder.data("Private data", consumer, bytes(consumer));
}

fn ip_summary(header: &IpHeader) -> String {
    format!("{} port {} → {}", header.source, header.source_port, header.destination)
}

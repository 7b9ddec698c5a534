//! One-line summaries of packets.

use std::fmt::Write;

use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::ip::Ecn;
use ferroce_wire::opcode::{OpcodeInfo, Operation, Position};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::SyndromeKind;

use super::carrier::{bytes, ethertype_name, name_or_number, network_name};
use super::{exchange, management};

/// One-line summary of a frame: operation, destination QP, and the relevant header values.
///
/// ```text
/// RC RDMA WRITE Only  QP 0x000012  PSN 0x001000  64 bytes → 0x00007f1200340000 rkey 0x00001a2b
/// RC NAK  QP 0x000011  PSN 0x001000  remote access error  MSN 1
/// ```
///
/// It does not include addresses: see [`Frame::addresses`].
pub fn summary(frame: &Frame<'_>) -> String {
    let mut line = match &frame.packet {
        Some(packet) => packet_summary(packet),
        None => other_summary(frame),
    };
    if is_congestion_marked(frame) {
        line.push_str("  ECN congestion experienced");
    }
    if let Some(malformed) = &frame.problem {
        let _ = write!(line, "  [{}]", malformed.problem);
    }
    line
}

/// Short title of a packet: `RC RDMA WRITE First`, `RC ACK`, `RC RNR NAK`, `CM REQ`.
pub fn title(packet: &Packet<'_>) -> String {
    if let Some(name) = management::title(packet).or_else(|| exchange::title(packet)) {
        return name.to_owned();
    }
    operation_title(packet)
}

/// The title derived from the opcode.
fn operation_title(packet: &Packet<'_>) -> String {
    let Some(info) = packet.bth.opcode.info() else {
        return format!("{} opcode {:#04x}", packet.bth.opcode.name(), packet.bth.opcode.0);
    };
    if info.operation == Operation::CongestionNotification {
        return "CNP".to_owned();
    }
    let mut title = format!("{} {}", info.transport.name(), operation(info, packet));
    if matches!(info.operation, Operation::Send | Operation::Write | Operation::ReadResponse) {
        title.push_str(match info.position {
            Position::First => " First",
            Position::Middle => " Middle",
            Position::Last => " Last",
            Position::Only => " Only",
        });
    }
    if info.immediate {
        title.push_str(" with immediate");
    } else if packet.extensions.ieth.is_some() {
        title.push_str(" with invalidate");
    }
    title
}

fn operation(info: &OpcodeInfo, packet: &Packet<'_>) -> &'static str {
    match info.operation {
        Operation::Send => "SEND",
        Operation::Write => "RDMA WRITE",
        Operation::ReadRequest => "RDMA READ request",
        Operation::ReadResponse => "RDMA READ response",
        Operation::Acknowledge => match packet.extensions.aeth.map(|aeth| aeth.syndrome.kind()) {
            Some(SyndromeKind::Ack(_)) => "ACK",
            Some(SyndromeKind::RnrNak(_)) => "RNR NAK",
            Some(SyndromeKind::Nak(_)) => "NAK",
            Some(SyndromeKind::Reserved) | None => "acknowledge",
        },
        Operation::AtomicAcknowledge => "ATOMIC ACK",
        Operation::CompareSwap => "COMPARE & SWAP",
        Operation::FetchAdd => "FETCH & ADD",
        Operation::Resync => "RESYNC",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC WRITE",
        Operation::CongestionNotification => "CNP",
    }
}

/// Operation, destination QP and PSN, from the BTH.
pub(super) fn address_line(packet: &Packet<'_>) -> String {
    let bth = &packet.bth;
    format!("{}  QP {}  PSN {}", operation_title(packet), bth.destination, bth.psn)
}

fn packet_summary(packet: &Packet<'_>) -> String {
    if let Some(line) = management::summary(packet).or_else(|| exchange::summary(packet)) {
        return line;
    }
    let mut line = address_line(packet);
    // Writing to a string cannot fail.
    let _ = details(&mut line, packet);
    line
}

fn details(line: &mut String, packet: &Packet<'_>) -> std::fmt::Result {
    let headers = &packet.extensions;
    let info = packet.bth.opcode.info();
    if let Some(deth) = headers.deth {
        write!(line, "  from QP {}", deth.source)?;
    }
    if let Some(xrceth) = headers.xrceth {
        write!(line, "  SRQ {}", xrceth.receive_queue)?;
    }
    if let Some(aeth) = headers.aeth {
        match aeth.syndrome.kind() {
            SyndromeKind::Nak(code) => write!(line, "  {}", code.name())?,
            SyndromeKind::RnrNak(timer) => {
                let micros = timer.duration().as_micros();
                write!(line, "  wait {}.{:02} ms", micros / 1000, micros % 1000 / 10)?;
            }
            SyndromeKind::Reserved => {
                write!(line, "  reserved syndrome {:#04x}", aeth.syndrome.0)?;
            }
            SyndromeKind::Ack(credits) => {
                if let Some(count) = credits.count() {
                    write!(line, "  {count} credits")?;
                }
            }
        }
        write!(line, "  MSN {}", aeth.msn.0)?;
    }
    if let Some(reth) = headers.reth {
        let arrow = match info.map(|info| info.operation) {
            Some(Operation::ReadRequest) => "←",
            Some(Operation::Flush) => "at",
            _ => "→",
        };
        let length = reth.length as usize;
        match packet.payload_len {
            part if part != 0 && part != length => write!(line, "  {part} of {}", bytes(length))?,
            _ => write!(line, "  {}", bytes(length))?,
        }
        write!(line, " {arrow} {} rkey {}", reth.address, reth.key)?;
    } else if info.is_none_or(|info| moves_data(info) && info.extensions == headers.set()) {
        write!(line, "  {}", bytes(packet.payload_len))?;
    }
    if let Some(atomic) = headers.atomic {
        if info.is_some_and(|info| info.operation == Operation::CompareSwap) {
            write!(line, "  swap {} if {}", atomic.swap_or_add, atomic.compare)?;
        } else {
            write!(line, "  add {}", atomic.swap_or_add)?;
        }
        write!(line, " → {} rkey {}", atomic.address, atomic.key)?;
    }
    if let Some(ack) = headers.atomic_ack {
        write!(line, "  was {}", ack.original)?;
    }
    if let Some(immediate) = headers.immediate {
        write!(line, "  imm {}", immediate.value)?;
    }
    if let Some(ieth) = headers.ieth {
        write!(line, "  invalidates {}", ieth.key)?;
    }
    Ok(())
}

/// Whether the payload length is shown: the 16 bytes of a CNP are all reserved.
fn moves_data(info: &OpcodeInfo) -> bool {
    info.payload && info.operation != Operation::CongestionNotification
}

/// A frame without a transport packet.
fn other_summary(frame: &Frame<'_>) -> String {
    if frame.is_roce() {
        return "RoCE, not readable".to_owned();
    }
    let ports = frame.udp.map(|udp| format!("UDP {} → {}", udp.source_port, udp.destination_port));
    match (frame.network, ports, network_name(frame)) {
        (_, Some(ports), _) => ports,
        (Some(Network::Ipv4(ip, _)), _, Some(name)) => format!("{name} {}", protocol(&ip.protocol)),
        (Some(Network::Ipv6(ip)), _, Some(name)) => format!("{name} {}", protocol(&ip.next_header)),
        _ => match frame.ethertype {
            Some(ethertype) => ethertype_name(ethertype),
            None => "not readable".to_owned(),
        },
    }
}

fn protocol(protocol: &ferroce_wire::ip::IpProtocol) -> String {
    match name_or_number(protocol) {
        number if number.starts_with("0x") => format!("protocol {}", protocol.0),
        name => name,
    }
}

/// Whether a switch or router marked the frame congestion experienced (ECN CE).
pub fn is_congestion_marked(frame: &Frame<'_>) -> bool {
    let ecn = match frame.network {
        Some(Network::Ipv4(ip, _)) => ip.ecn,
        Some(Network::Ipv6(ip)) => ip.ecn,
        _ => return false,
    };
    ecn == Ecn::CONGESTION_EXPERIENCED
}

/// A byte count in the largest binary unit that divides it; empty if there is none.
pub(super) fn size(bytes: u32) -> String {
    match bytes {
        0 => String::new(),
        bytes if bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        _ => String::new(),
    }
}

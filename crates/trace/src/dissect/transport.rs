//! The transport packet: BTH, extension headers, payload, pad, ICRC.

use ferroce_wire::frame::Frame;
use ferroce_wire::packet::{ExtensionHeaders, ICRC_LEN, Packet};
use ferroce_wire::transport::Reth;

use super::build::{Builder, ValueLayer};
use super::carrier::bytes;
use super::tree::{Verdict, to_hex};
use super::{checksum, exchange, management, summary};

/// Adds the packet that the frame carries, if it carries one.
pub(super) fn layers(builder: &mut Builder<'_>, frame: &Frame<'_>) {
    let Some(packet) = &frame.packet else { return };
    let start = builder.at;
    let line = summary::address_line(packet);
    builder.header(&packet.bth, line);
    if packet.bth.opcode.info().is_none() {
        let opcode = packet.bth.opcode;
        builder.problem(
            start,
            format!(
                "opcode {:#04x} is {}: which headers follow the BTH is unknown, \
                 all that follows is shown as payload",
                opcode.0,
                if opcode.0 >= 0xc0 { "manufacturer-specific" } else { "reserved" },
            ),
        );
    }
    extensions(builder, &packet.extensions);
    // After a problem, offsets are unreliable: `mod.rs` adds the rest as raw data.
    if frame.problem.is_none() {
        body(builder, frame, packet);
    }
}

fn extensions(builder: &mut Builder<'_>, headers: &ExtensionHeaders) {
    if let Some(rdeth) = &headers.rdeth {
        builder.header(rdeth, format!("context {}", rdeth.context));
    }
    if let Some(deth) = &headers.deth {
        builder.header(deth, format!("from QP {}, Q_Key {}", deth.source, deth.queue_key));
    }
    if let Some(xrceth) = &headers.xrceth {
        builder.header(xrceth, format!("for shared receive queue {}", xrceth.receive_queue));
    }
    if let Some(feth) = &headers.feth {
        builder.header(feth, "placement type and selectivity of the flush".to_owned());
    }
    if let Some(reth) = &headers.reth {
        builder.header(reth, reth_summary(reth)).explain("length", summary::size(reth.length));
    }
    if let Some(atomic) = &headers.atomic {
        builder.header(atomic, format!("8 bytes at {}, rkey {}", atomic.address, atomic.key));
    }
    if let Some(aeth) = &headers.aeth {
        builder.header(aeth, format!("{}, MSN {}", aeth.syndrome.kind(), aeth.msn.0));
    }
    if let Some(ack) = &headers.atomic_ack {
        builder.header(ack, format!("the value was {}", ack.original));
    }
    if let Some(immediate) = &headers.immediate {
        builder.header(immediate, format!("immediate data {}", immediate.value));
    }
    if let Some(ieth) = &headers.ieth {
        builder.header(ieth, format!("invalidates rkey {}", ieth.key));
    }
}

fn reth_summary(reth: &Reth) -> String {
    format!("{} at {}, rkey {}", bytes(reth.length as usize), reth.address, reth.key)
}

fn body(builder: &mut Builder<'_>, frame: &Frame<'_>, packet: &Packet<'_>) {
    if !management::layers(builder, packet) && !exchange::layers(builder, packet) {
        payload(builder, packet);
    }
    if !packet.pad.is_empty() {
        pad(builder, packet);
    }
    if let Some(icrc) = packet.icrc {
        let (verdict, meaning) = checksum::icrc(frame);
        let value = format!("0x{}", to_hex(&icrc));
        if verdict == Verdict::Wrong {
            let message = format!(
                "the ICRC is {value}, {}: the packet was corrupted, \
                 or its sender computes the ICRC over other bytes",
                meaning.trim_start_matches("wrong, ")
            );
            builder.problem(builder.at, message);
        }
        let item = ValueLayer {
            name: "icrc",
            summary: meaning.clone(),
            value,
            meaning,
            doc: "Invariant CRC over all fields that routers must not change.",
            verdict: Some(verdict),
        };
        builder.value("ICRC", ICRC_LEN, item);
    }
}

fn payload(builder: &mut Builder<'_>, packet: &Packet<'_>) {
    let (kept, len) = (packet.payload.len(), packet.payload_len);
    let mut line =
        if kept == len { bytes(len) } else { format!("{kept} of {} captured", bytes(len)) };
    if packet.bth.opcode.info().is_some_and(|info| !info.payload) {
        line.push_str(", but this opcode carries no payload");
    }
    builder.data("Payload", kept, line);
}

fn pad(builder: &mut Builder<'_>, packet: &Packet<'_>) {
    let zero = packet.pad.iter().all(|&byte| byte == 0);
    let item = ValueLayer {
        name: "pad",
        value: bytes(packet.pad.len()),
        meaning: if zero { "zero" } else { "not zero, but must be zero" }.to_owned(),
        doc: "Fills the payload up to a multiple of 4.",
        verdict: None,
        summary: bytes(packet.pad.len()),
    };
    builder.value("Pad", packet.pad.len(), item);
}

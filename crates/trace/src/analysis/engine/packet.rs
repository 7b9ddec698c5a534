//! One RoCE packet: its anomalies, its conversation, and the datagrams that set up connections.

use std::net::IpAddr;

use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::{MAX_PAYLOAD, Packet};
use ferroce_wire::setup;

use super::Engine;
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::cm::value_with_meaning;
use crate::analysis::report::{Details, PacketRow, SetupEvent};
use crate::analysis::stamp::{Side, Stamp};
use crate::analysis::window::ObservedPacket;
use crate::dissect;
use crate::file::{Direction, Record};
use crate::segments;

impl Engine<'_> {
    pub(super) fn roce(
        &mut self,
        record: &Record<'_>,
        frame: &Frame<'_>,
        verdict: IcrcVerdict,
        stamp: Stamp,
    ) {
        let side = match &frame.packet {
            Some(packet) => self.packet(record, frame, packet, verdict, stamp),
            None => None,
        };
        if self.sink.muted {
            return;
        }
        if let Some(side) = side {
            self.sink.tally(side.conversation).selected = true;
        }
        self.report.roce_packets += 1;
        let icrc = match verdict {
            IcrcVerdict::Ok => {
                self.report.icrc.ok += 1;
                "ok"
            }
            IcrcVerdict::Bad { .. } => {
                self.report.icrc.bad += 1;
                "bad"
            }
            IcrcVerdict::Unverifiable => {
                self.report.icrc.unverifiable += 1;
                "unverifiable"
            }
        };
        if let Some(detail) = &mut self.detail {
            let bytes = u64::from(record.original_len);
            let noted = self.sink.notes.iter().map(|(kind, _)| *kind);
            let kinds: Vec<_> = noted.chain(self.sink.suspected.iter().copied()).collect();
            detail.roce(side, bytes, stamp, &kinds, &self.flows);
        }
        if self.options.packet_list && self.rows.len() < self.options.max_packet_rows {
            let row = PacketRow {
                frame: stamp.frame,
                segment: stamp.segment,
                time_ns: stamp.time,
                conversation: None,
                from_a: true,
                icrc,
                summary: dissect::summary(frame),
                notes: self.sink.notes.iter().map(|(_, text)| text.clone()).collect(),
            };
            self.rows.push((side, row));
        }
    }

    fn packet(
        &mut self,
        record: &Record<'_>,
        frame: &Frame<'_>,
        packet: &Packet<'_>,
        verdict: IcrcVerdict,
        stamp: Stamp,
    ) -> Option<Side> {
        let opcode = packet.bth.opcode;
        self.opcodes[usize::from(opcode.0)] += u64::from(!self.sink.muted);
        let psn = Some(packet.bth.psn.0);
        let transport_at = (record.data.len() - frame.bytes.len() + frame.at.transport) as u64;
        if let IcrcVerdict::Bad { computed, found } = verdict {
            let side = (frame.addresses())
                .and_then(|(source, destination)| self.flows.side_of(source, destination, packet));
            if packet.payload_len > MAX_PAYLOAD {
                let text = format!(
                    "{} bytes of payload: several packets of a segmentation offload, or corruption; no ICRC shows \
                     where a packet ends",
                    packet.payload_len
                );
                self.sink.anomaly(AnomalyKind::Oversized, stamp, side, psn, text);
            } else {
                let text = format!("ICRC {}, should be {}", hex(found), hex(computed));
                self.problem(Some(stamp.frame), record.data_offset + transport_at, text.clone());
                self.sink.anomaly(AnomalyKind::BadIcrc, stamp, side, psn, text);
            }
            // Receivers drop the packet, and its fields cannot be trusted: list it in the conversation it seems to
            // belong to, but do not track it.
            return side;
        }
        let Some(info) = opcode.info() else {
            let text = format!("{} opcode {:#04x}", opcode.name(), opcode.0);
            self.problem(Some(stamp.frame), record.data_offset + transport_at, text.clone());
            self.sink.anomaly(AnomalyKind::UnknownOpcode, stamp, None, psn, text);
            return None;
        };
        if frame.problem.is_some() {
            return None;
        }
        if !packet.is_whole() && segments::holds_several(frame) {
            let text = format!(
                "snapped: {} of {} bytes captured of a frame that holds several packets (segmentation offload), \
                 which cannot be separated; record with a larger snap length",
                record.data.len(),
                record.original_len
            );
            self.problem(Some(stamp.frame), record.offset, text);
            self.sink.gaps += 1;
            let (source, destination) = frame.addresses()?;
            return self.flows.side_of(source, destination, packet);
        }
        if !packet.is_whole() {
            let text = format!(
                "snapped: {} of {} bytes captured, ICRC cut off; record with a larger snap length",
                record.data.len(),
                record.original_len
            );
            self.problem(Some(stamp.frame), record.offset, text);
        }
        let (source, destination) = frame.addresses()?;
        let identification = match frame.network {
            Some(Network::Ipv4(ip, _)) => Some(ip.identification.0),
            _ => None,
        };
        let from_active = match info.transport {
            Transport::UnreliableDatagram => self.management(packet, source, destination, stamp),
            _ => None,
        };
        let gaps = self.sink.gaps;
        let outbound = record.direction == Some(Direction::Outbound);
        let since_pause = self.pause_end.map(|end| stamp.time - end);
        let observed = ObservedPacket {
            stamp,
            packet,
            info,
            identification,
            from_active,
            gaps,
            outbound,
            since_pause,
        };
        let side = self.flows.packet(
            source,
            destination,
            &observed,
            u64::from(record.original_len),
            &mut self.sink,
        );
        if let (Some(detail), Some(mut side)) = (&mut self.detail, side) {
            // A response concerns the opposite side's requester.
            side.from_a ^= !info.request;
            if let Some(progress) = self.flows.flows[side.conversation].progress(side.from_a) {
                detail.progress(side, stamp.time, progress);
            }
        }
        if dissect::is_congestion_marked(frame) {
            let text = "congestion experienced on the path".to_owned();
            self.sink.anomaly(AnomalyKind::EcnMarked, stamp, side, psn, text);
        }
        side
    }

    /// Processes datagrams that set up connections. Returns whether the active side sent it, if it is one.
    fn management(
        &mut self,
        packet: &Packet<'_>,
        source: IpAddr,
        destination: IpAddr,
        stamp: Stamp,
    ) -> Option<bool> {
        if packet.bth.destination == Qpn::GENERAL_SERVICES {
            let muted = self.sink.muted;
            let listed = !muted && self.report.cm.len() < self.options.max_cm;
            let message = self.cm.datagram(packet.payload, source, destination, stamp, listed)?;
            if let Some(handshake) = &message.connected {
                if !message.event.repeated {
                    self.flows.connected(handshake);
                }
            }
            if message.event.repeated {
                let text = format!("{} retransmitted", message.event.message);
                self.sink.anomaly(AnomalyKind::CmRepeated, stamp, None, None, text);
            }
            if let Some(why) = message.rejected {
                self.sink.anomaly(AnomalyKind::CmReject, stamp, None, None, why);
            }
            if listed {
                self.report.cm.push(message.event);
                self.cm_connections.push(message.connection);
            } else if !muted {
                self.report.cm_omitted += 1;
            }
            message.from_active
        } else if packet.bth.destination == setup::QUEUE_PAIR {
            let message = setup::SetupMessage::parse(packet.payload).ok()?;
            let from_active = Some(!is_setup_response(&message));
            if self.sink.muted || self.report.setup.len() >= self.options.max_cm {
                return from_active;
            }
            let mut details = Details::default();
            message.visit(&mut |field, value| {
                if !field.is_reserved() {
                    details.push(field.name, value_with_meaning(value));
                }
            });
            self.report.setup.push(SetupEvent {
                frame: stamp.frame,
                time_ns: stamp.time,
                source: source.to_string(),
                destination: destination.to_string(),
                message: message.name(),
                details,
            });
            from_active
        } else {
            None
        }
    }
}

/// Whether this message of the set-up exchange is a response, sent by the server.
fn is_setup_response(message: &setup::SetupMessage) -> bool {
    use setup::SetupMessage;
    matches!(
        message,
        SetupMessage::DeviceDiscoveryResp(_)
            | SetupMessage::QpCreateResp(_)
            | SetupMessage::MrRegisterResp(_)
            | SetupMessage::ConnectionAccept(_)
    )
}

fn hex(bytes: [u8; 4]) -> String {
    format!("{:08x}", u32::from_be_bytes(bytes))
}

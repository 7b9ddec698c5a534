//! Tracking of connection manager (CM) handshakes.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::net::IpAddr;

use ferroce_wire::cm::{CmMessage, CommId, Transport};
use ferroce_wire::field::{Meaning, Show, Value};
use ferroce_wire::mad::Mad;
use ferroce_wire::rdmacm;

use super::flow::{Handshake, QueuePair};
use super::report::{CmEvent, Details};
use super::stamp::Stamp;

/// Limit of each table: the tables are cleared when it is reached.
const MAX_ENTRIES: usize = 65_536;

/// Contents of a REQ, kept for its REP and for the messages that end the connection.
#[derive(Clone, Copy, Debug)]
struct ConnectionRequest {
    active: QueuePair,
    /// Destination address of the REQ.
    passive: IpAddr,
    mtu: Option<u32>,
    handshake: Option<Handshake>,
}

#[derive(Debug, Default)]
pub(super) struct CmTracker {
    /// By address and communication ID of the active side.
    requests: HashMap<(IpAddr, CommId), ConnectionRequest>,
    /// Address and communication ID of the active side, by those of the passive side.
    replies: HashMap<(IpAddr, CommId), (IpAddr, CommId)>,
    seen_messages: HashSet<(IpAddr, u64, u16, u32)>,
}

/// A CM message and its place in a handshake.
#[derive(Debug)]
pub(super) struct TrackedCmMessage {
    pub(super) event: CmEvent,
    /// The handshake completed by this message.
    pub(super) connected: Option<Handshake>,
    /// The connection it belongs to, by address and communication ID of the active side.
    pub(super) connection: Option<(IpAddr, CommId)>,
    /// Reason for which the connection was rejected.
    pub(super) rejected: Option<String>,
    /// Whether the active side sent this message, if known from its IDs.
    pub(super) from_active: Option<bool>,
}

impl CmTracker {
    /// Processes the payload of a datagram to QP 1; returns `None` if it is not a CM message. Unless `listed`, the
    /// message is only tracked and the texts of the event stay empty.
    pub(super) fn datagram(
        &mut self,
        payload: &[u8],
        source: IpAddr,
        destination: IpAddr,
        stamp: Stamp,
        listed: bool,
    ) -> Option<TrackedCmMessage> {
        let mad = Mad::parse(payload).ok()?;
        let message = CmMessage::from_mad(&mad).ok()?;
        let local = message.local_comm_id();
        let remote = message.remote_comm_id();
        let transaction = mad.header.transaction.0;
        let name = message.name().trim_start_matches("CM ");

        let id = local.or(remote).map_or(0, |id| id.0);
        if self.seen_messages.len() >= MAX_ENTRIES {
            self.seen_messages.clear();
        }
        let repeated = !self.seen_messages.insert((source, transaction, message.attribute().0, id));
        let connected = self.track(&message, source, destination);
        let connection = self.connection_of(&message, source, destination);

        let (header, consumer) = match message.service_id() {
            Some(service) if !matches!(message, CmMessage::SidrRep(_)) => {
                match rdmacm::split_private_data(service, message.private_data()) {
                    Ok((header, consumer)) => (Some(header), consumer),
                    Err(_) => (None, message.private_data()),
                }
            }
            _ => (None, message.private_data()),
        };
        let mut details = Details::default();
        message.visit(&mut |field, value| {
            if listed && !field.is_reserved() && field.name != "private_data" {
                details.push(field.name, value_with_meaning(value));
            }
        });
        if let Some(header) = header.filter(|_| listed) {
            details.push("ip_version", header.ip_version.to_string());
            details.push("ip_source_port", header.source_port.to_string());
            if let (Some(from), Some(to)) = (header.source_ip(), header.destination_ip()) {
                details.push("ip_source", from.to_string());
                details.push("ip_destination", to.to_string());
            }
        }
        let rejected = match &message {
            CmMessage::Rej(rej) => Some(format!(
                "connection rejected: {} (reason {})",
                Meaning(&rej.reason),
                rej.reason.0
            )),
            _ => None,
        };
        let event = CmEvent {
            frame: stamp.frame,
            segment: stamp.segment,
            time_ns: stamp.time,
            source: source.to_string(),
            destination: destination.to_string(),
            message: name,
            transaction,
            local_id: local.map(|id| id.0),
            remote_id: remote.map(|id| id.0),
            repeated,
            conversation: None,
            summary: if listed { summary(&message) } else { String::new() },
            details,
            private_data: if listed { hex(consumer) } else { String::new() },
        };
        let from_active = self.is_from_active(&message, source);
        Some(TrackedCmMessage { event, connected, connection, rejected, from_active })
    }

    /// Whether the active side sent this message. On a loopback both sides have the same address, so only the message
    /// can decide.
    fn is_from_active(&self, message: &CmMessage, source: IpAddr) -> Option<bool> {
        match message {
            CmMessage::Req(_) | CmMessage::Rtu(_) | CmMessage::SidrReq(_) => Some(true),
            CmMessage::Rep(_) | CmMessage::SidrRep(_) => Some(false),
            _ => {
                let side = (source, message.local_comm_id()?);
                // A passive side that rejects has no communication ID of its own yet.
                Some(self.requests.contains_key(&side) && !self.replies.contains_key(&side))
            }
        }
    }

    /// Tracks a handshake and returns it if this message completes it.
    fn track(
        &mut self,
        message: &CmMessage,
        source: IpAddr,
        destination: IpAddr,
    ) -> Option<Handshake> {
        match message {
            CmMessage::Req(req) => {
                let path = req.primary_path();
                let (local, remote) = (path.local_gid.to_ip(), path.remote_gid.to_ip());
                if self.requests.len() >= MAX_ENTRIES {
                    self.requests.clear();
                    self.replies.clear();
                }
                self.requests.insert(
                    (source, req.local_comm_id),
                    ConnectionRequest {
                        active: (local, req.local_qpn.0),
                        passive: remote,
                        mtu: req.path_mtu.bytes().map(|bytes| bytes as u32),
                        handshake: None,
                    },
                );
                None
            }
            CmMessage::Rep(rep) => {
                let request = self.requests.get_mut(&(destination, rep.remote_comm_id))?;
                let handshake = Handshake {
                    active: request.active,
                    passive: (request.passive, rep.local_qpn.0),
                    mtu: request.mtu,
                };
                request.handshake = Some(handshake);
                let active = (destination, rep.remote_comm_id);
                if self.replies.len() >= MAX_ENTRIES {
                    self.replies.clear();
                }
                self.replies.insert((source, rep.local_comm_id), active);
                Some(handshake)
            }
            _ => None,
        }
    }

    fn connection_of(
        &self,
        message: &CmMessage,
        source: IpAddr,
        destination: IpAddr,
    ) -> Option<(IpAddr, CommId)> {
        let sides = [
            message.local_comm_id().map(|id| (source, id)),
            message.remote_comm_id().map(|id| (destination, id)),
        ];
        sides.into_iter().flatten().find_map(|side| {
            let active = self.replies.get(&side).copied().unwrap_or(side);
            self.requests.contains_key(&active).then_some(active)
        })
    }

    /// The two sides of the connection identified by [`TrackedCmMessage::connection`], once accepted.
    pub(super) fn handshake(&self, connection: (IpAddr, CommId)) -> Option<Handshake> {
        self.requests.get(&connection)?.handshake
    }
}

/// A field's value, followed by its meaning if it has one.
pub(super) fn value_with_meaning(value: &dyn Show) -> String {
    let mut text = Value(value).to_string();
    let meaning = Meaning(value).to_string();
    if !meaning.is_empty() && meaning != text {
        let _ = write!(text, " ({meaning})");
    }
    text
}

/// One-line summary of a message.
fn summary(message: &CmMessage) -> String {
    match message {
        CmMessage::Req(req) => format!(
            "connect to {} from QP {}, {}, first PSN {}, MTU {}, retry {}, RNR retry {}",
            value_with_meaning(&req.service_id),
            req.local_qpn,
            req.transport().map_or("unknown transport", |transport| match transport {
                Transport::Rc => "RC",
                Transport::Uc => "UC",
                Transport::Rd => "RD",
                Transport::Xrc => "XRC",
            }),
            req.starting_psn,
            req.path_mtu.bytes().unwrap_or(0),
            req.retry_count,
            req.rnr_retry_count.0,
        ),
        CmMessage::Rep(rep) => format!(
            "accepted with QP {}, first PSN {}, RNR retry {}",
            rep.local_qpn, rep.starting_psn, rep.rnr_retry_count.0,
        ),
        CmMessage::Rtu(_) => "ready to use".to_owned(),
        CmMessage::Rej(rej) => {
            format!("rejected: {} (reason {})", Meaning(&rej.reason), rej.reason.0)
        }
        CmMessage::Mra(mra) => {
            format!("received, wait {}", value_with_meaning(&mra.service_timeout))
        }
        CmMessage::Dreq(dreq) => format!("disconnect QP {}", dreq.remote_qpn),
        CmMessage::Drep(_) => "disconnected".to_owned(),
        CmMessage::SidrReq(req) => {
            format!("which QP serves {}?", value_with_meaning(&req.service_id))
        }
        CmMessage::SidrRep(rep) => {
            format!("QP {} with Q_Key {}, {}", rep.qpn, rep.q_key, value_with_meaning(&rep.status))
        }
        CmMessage::Lap(_) => "use another path as alternate".to_owned(),
        CmMessage::Apr(apr) => format!("alternate path: {}", value_with_meaning(&apr.status)),
    }
}

/// Hexadecimal without trailing zeroes.
fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes[..end].iter().fold(String::with_capacity(end * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use ferroce_wire::cm::{Rep, Req};
    use ferroce_wire::number::Qpn;

    use super::*;

    #[test]
    fn tables_stay_bounded_under_a_flood_of_messages() {
        let [active, passive] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut tracker = CmTracker::default();
        for id in 0..2 * MAX_ENTRIES as u32 + 10 {
            // Every third message is a REP to the same REQ with a new ID.
            let message = match id % 3 {
                0 => CmMessage::Rep(Rep {
                    local_comm_id: CommId(id),
                    remote_comm_id: CommId(1),
                    local_qpn: Qpn(id & 0xff_ffff),
                    ..Rep::default()
                }),
                1 => CmMessage::Req(Req { local_comm_id: CommId(1), ..Req::default() }),
                _ => CmMessage::Req(Req { local_comm_id: CommId(id), ..Req::default() }),
            };
            let (source, destination) =
                if id % 3 == 0 { (passive, active) } else { (active, passive) };
            tracker.track(&message, source, destination);
            assert!(tracker.requests.len() <= MAX_ENTRIES && tracker.replies.len() <= MAX_ENTRIES);
        }
        for id in 0..MAX_ENTRIES as u32 + 10 {
            let message = CmMessage::Rep(Rep {
                local_comm_id: CommId(id),
                remote_comm_id: CommId(1),
                ..Rep::default()
            });
            tracker.track(&message, passive, active);
        }
        assert!(tracker.replies.len() <= MAX_ENTRIES);
    }
}

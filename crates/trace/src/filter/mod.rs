//! Packet filters: by plane, queue pair, host and operation.
//!
//! A [`Filter`] is a predicate over one parsed frame. The criteria are combined with AND, the values of one criterion with
//! OR: `--plane data --op write,read` selects the WRITE and READ packets. An empty filter selects every frame, RoCE or
//! not; a frame that is not RoCE (or whose BTH cannot be read) can only be selected by its addresses.
//!
//! # Queue pairs
//! A packet of a connected queue pair carries only the destination QPN. [`Filter::matches`], which has no state, selects
//! for `--qp N`
//! - packets to QPN N,
//! - datagrams from QPN N, whose DETH carries the source,
//! - messages of the connection manager and of the set-up exchange that name QPN N.
//!
//! It does not select what queue pair N sends over a connection, such as the acknowledgements of a responder with QPN N.
//! [`Filter::matches_from`] does: it takes the source QPN, which [`crate::analysis`] learns from the handshake or from
//! the acknowledgements. To select both directions without an analysis, give both QPNs.

mod host;
mod kind;
#[cfg(test)]
mod tests;

use ferroce_wire::frame::Frame;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;

use crate::dissect::{self, cm_message, setup_message};
use crate::file::Record;
use crate::segments::PacketRun;
pub use host::{Host, HostError};
pub use kind::{OperationKind, Plane};

/// Which packets to select. The default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Planes; none means any.
    pub planes: Vec<Plane>,
    /// Queue pairs, see the [module](self); none means any.
    pub queue_pairs: Vec<Qpn>,
    /// Hosts, at either end; none means any.
    pub hosts: Vec<Host>,
    /// Operations; none means any.
    pub operations: Vec<OperationKind>,
}

impl Filter {
    /// Whether every frame is selected.
    pub fn is_empty(&self) -> bool {
        self.planes.is_empty()
            && self.queue_pairs.is_empty()
            && self.hosts.is_empty()
            && self.operations.is_empty()
    }

    /// Whether the frame is selected, without knowledge of connections.
    pub fn matches(&self, frame: &Frame<'_>) -> bool {
        self.matches_from(frame, None)
    }

    /// Whether the frame is selected. `source` is the QPN of the sender, if it is known from other packets.
    pub fn matches_from(&self, frame: &Frame<'_>, source: Option<Qpn>) -> bool {
        if self.is_empty() {
            return true;
        }
        if !self.hosts.is_empty() {
            let Some((from, to)) = frame.addresses() else { return false };
            if !self.hosts.iter().any(|host| host.contains(from) || host.contains(to)) {
                return false;
            }
        }
        if self.planes.is_empty() && self.operations.is_empty() && self.queue_pairs.is_empty() {
            return true;
        }
        let Some(packet) = frame.packet.as_ref() else { return false };
        let any_plane = self.planes.is_empty() || self.planes.contains(&Plane::of(packet));
        let any_operation =
            self.operations.is_empty() || self.operations.iter().any(|kind| kind.includes(packet));
        any_plane && any_operation && self.concerns_queue_pair(packet, source)
    }

    /// Whether the record is selected: its packet, or any of the packets that segmentation offload put into it.
    pub fn matches_record(&self, record: &Record<'_>) -> bool {
        if self.is_empty() {
            return true;
        }
        let read = dissect::read(record.link, record.data, record.original_len as usize);
        let Ok(Some((_, frame))) = read else { return false };
        if self.matches(&frame) {
            return true;
        }
        // Packets of a run differ only in their transport headers.
        let may_differ = !self.operations.is_empty() || !self.queue_pairs.is_empty();
        let run = may_differ.then(|| PacketRun::find(record)).flatten();
        let Some(run) = run else { return false };
        let mut buffer = Vec::new();
        (1..run.captured()).any(|index| {
            let packet = run.packet(record, index, &mut buffer);
            let read = dissect::read(packet.link, packet.data, packet.original_len as usize);
            matches!(read, Ok(Some((_, frame))) if self.matches(&frame))
        })
    }

    fn concerns_queue_pair(&self, packet: &Packet<'_>, source: Option<Qpn>) -> bool {
        if self.queue_pairs.is_empty() {
            return true;
        }
        let wanted = |qpn: Qpn| self.queue_pairs.contains(&qpn);
        wanted(packet.bth.destination)
            || packet.extensions.deth.is_some_and(|deth| wanted(deth.source))
            || source.is_some_and(wanted)
            || cm_message(packet).is_some_and(|message| kind::named_by_cm(&message).any(wanted))
            || setup_message(packet)
                .is_some_and(|message| kind::named_by_setup(&message).any(wanted))
    }
}

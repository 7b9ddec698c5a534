//! What becomes of packets that the device drops: a count, a reason in the log, and a comment in the capture.

use ferroce_device::Refusal;
use ferroce_proto::qp::State;
use ferroce_proto::reason::Reason;
use ferroce_wire::transport::Bth;

use super::counters::count;
use super::data_path::DataPath;
use super::queue_pair::{Core, Inner};
use crate::report;

impl DataPath {
    /// Counts a packet that was dropped, and reports why. Only requests for QPs that do not exist are reported: a response may
    /// be late.
    #[cold]
    pub(super) fn drop_packet(&self, refusal: Refusal, packet: Option<&Bth>) {
        let is_request = |packet: &&Bth| packet.opcode.info().is_some_and(|info| info.request);
        match (refusal, packet) {
            (Refusal::Malformed, _) => count(self.counters.malformed()),
            (Refusal::Partition, packet) => {
                count(self.counters.bad_partition());
                if let Some(packet) = packet {
                    self.report_packet(&Reason::WrongPartition(packet.partition), packet);
                }
            }
            (Refusal::UnknownQueuePair, packet) => {
                count(self.counters.no_queue_pair());
                if let Some(packet) = packet.filter(is_request) {
                    self.report_packet(&Reason::UnknownQueuePair(packet.destination), packet);
                }
            }
        }
    }

    /// Reports a packet for a connected QP that is not from its peer, or that comes before it knows its peer.
    #[cold]
    pub(super) fn drop_stranger(&self, core: &Core, inner: &Inner, packet: &Bth) {
        let reason = match inner.endpoint.state() {
            state @ (State::Reset | State::Init) => Reason::NotReceiving(state),
            _ => Reason::NotPeer,
        };
        let text = report::report(self.device.name(), Some(core.number), &reason, false);
        if let Some(text) = text {
            inner.stats.set_reason(reason.number(), &reason.to_string());
            self.annotate(packet, &text);
        }
        count(self.counters.no_queue_pair());
    }

    /// Reports why something of a QP was refused, dropped or ended. A reason that ended the QP is always remembered.
    #[cold]
    pub(super) fn report_reasons(&self, core: &Core, inner: &Inner, reasons: &[Reason]) {
        let ended = matches!(inner.endpoint.state(), State::Error | State::SendQueueError);
        for (index, reason) in reasons.iter().enumerate() {
            let ends = ended && index + 1 == reasons.len();
            let text = report::report(self.device.name(), Some(core.number), reason, ends);
            let Some(text) = text else { continue };
            inner.stats.set_reason(reason.number(), &reason.to_string());
            if let Some(packet) = &inner.captured {
                self.annotate(packet, &text);
            }
            if ends {
                report::end(core.number, reason, &text);
            }
        }
    }

    /// Reports why the device refused or dropped something that belongs to no QP.
    #[cold]
    pub(super) fn report(&self, reason: &Reason) -> Option<String> {
        let text = report::report(self.device.name(), None, reason, false)?;
        self.counters.set_reason(reason.number(), &text);
        Some(text)
    }

    /// As [`DataPath::report`], for a packet.
    #[cold]
    fn report_packet(&self, reason: &Reason, packet: &Bth) {
        if let Some(text) = self.report(reason) {
            self.annotate(packet, &text);
        }
    }

    /// Adds why a packet was refused to its comment in a capture.
    fn annotate(&self, packet: &Bth, text: &str) {
        if let Some(tap) = self.tap() {
            tap.annotate(packet, text);
        }
    }
}

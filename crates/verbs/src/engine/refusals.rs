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
        let wrong_partition = |packet: &Bth| Reason::WrongPartition(packet.partition);
        let unknown = |packet: &Bth| Reason::UnknownQueuePair(packet.destination);
        let (counter, reason) = match refusal {
            Refusal::Malformed => (self.counters.malformed(), None),
            Refusal::Partition => (self.counters.bad_partition(), packet.map(wrong_partition)),
            Refusal::UnknownQueuePair => {
                (self.counters.no_queue_pair(), packet.filter(is_request).map(unknown))
            }
        };
        count(counter);
        if let Some(text) = reason.and_then(|reason| self.report(&reason)) {
            self.annotate(packet, &text);
        }
    }

    /// Reports a packet for a connected QP that is not from its peer, or that comes before it knows its peer.
    #[cold]
    pub(super) fn drop_stranger(&self, core: &Core, inner: &Inner, packet: &Bth) {
        let reason = match inner.endpoint.state() {
            state @ (State::Reset | State::Init) => Reason::NotReceiving(state),
            _ => Reason::NotPeer,
        };
        self.report_of(core, inner, &reason, Some(packet), false);
        count(self.counters.no_queue_pair());
    }

    /// Reports why something of a QP was refused, dropped or ended. A reason that ended the QP is always remembered.
    #[cold]
    pub(super) fn report_reasons(&self, core: &Core, inner: &Inner, reasons: &[Reason]) {
        let ended = matches!(inner.endpoint.state(), State::Error | State::SendQueueError);
        for (index, reason) in reasons.iter().enumerate() {
            let ends = ended && index + 1 == reasons.len();
            self.report_of(core, inner, reason, inner.captured.as_ref(), ends);
        }
    }

    fn report_of(
        &self,
        core: &Core,
        inner: &Inner,
        reason: &Reason,
        packet: Option<&Bth>,
        ends: bool,
    ) {
        let text = report::report(self.device.name(), Some(core.number), reason, ends);
        let Some(text) = text else { return };
        inner.stats.set_reason(reason.number(), &reason.to_string());
        self.annotate(packet, &text);
        if ends {
            report::end(core.number, reason, &text);
        }
    }

    /// Reports why the device refused or dropped something that belongs to no QP.
    #[cold]
    pub(super) fn report(&self, reason: &Reason) -> Option<String> {
        let text = report::report(self.device.name(), None, reason, false)?;
        self.counters.set_reason(reason.number(), &text);
        Some(text)
    }

    /// Adds why a packet was refused to its comment in a capture.
    fn annotate(&self, packet: Option<&Bth>, text: &str) {
        if let Some((tap, packet)) = self.tap().zip(packet) {
            tap.annotate(packet, text);
        }
    }
}

//! The packets on the wire: analyses the capture.

use std::fs::File;
use std::path::{Path, PathBuf};

use ferroce_trace::analysis::report::{Anomaly, Conversation, FileReport};
use ferroce_trace::analysis::{self, Options};
use ferroce_trace::render::Line;
use ferroce_trace::render::ladder::Ladders;
use serde::Serialize;

/// The maximum number of packets in a ladder.
const ROWS: usize = 60;

/// The capture.
#[derive(Debug, Serialize)]
pub(super) struct Wire {
    pub(super) path: PathBuf,
    pub(super) packets: u64,
    pub(super) icrc_ok: u64,
    pub(super) icrc_bad: u64,
    /// Packets on the connection.
    pub(super) anomalies: u64,
    #[serde(skip)]
    report: FileReport,
    /// The conversations of this run, not those of other programs on this machine.
    #[serde(skip)]
    queue_pairs: Vec<u32>,
}

impl Wire {
    /// Reads the file; `None` if it cannot be read or is empty.
    pub(super) fn read(path: &Path, queue_pairs: &[u32]) -> Option<Self> {
        let options = Options { packet_list: true, max_packet_rows: 100_000, ..Options::default() };
        let name = path.to_string_lossy();
        let report = analysis::analyze(&name, File::open(path).ok()?, &options, &mut |_| {});
        let ours = |one: &&Conversation| is_ours(one, queue_pairs);
        let ours: Vec<_> = report.conversations.iter().filter(ours).map(|one| one.id).collect();
        // Anomalies of other programs on this machine do not count.
        let of_ours = |one: &&Anomaly| one.conversation.is_some_and(|id| ours.contains(&id));
        (report.packets > 0).then(|| Self {
            path: path.to_owned(),
            packets: report.packets,
            icrc_ok: report.icrc.ok,
            icrc_bad: report.icrc.bad,
            anomalies: report.anomalies.iter().filter(of_ours).count() as u64,
            report,
            queue_pairs: queue_pairs.to_vec(),
        })
    }

    /// Whether every ICRC is right and there is no anomaly.
    pub(super) fn is_sound(&self) -> bool {
        self.icrc_bad == 0 && self.report.problems_total == 0
    }

    /// The ladders of the set-up and of the connection, with their titles.
    pub(super) fn ladders(&self, columns: usize) -> Vec<(String, Vec<Line>)> {
        // CM messages are on the ladder of their connection.
        let set_up = !self.report.setup.is_empty();
        let ours = |one: &&Conversation| {
            one.transport == "UD" && set_up || is_ours(one, &self.queue_pairs)
        };
        let ladders = Ladders::new(&self.report);
        let draw = |one: &Conversation| {
            let what = match one.transport {
                "UD" => "On the wire, set-up".to_owned(),
                transport => format!("On the wire, connection ({transport})"),
            };
            let title = format!("{what}: {}", ladders.caption(one));
            (title, ladders.draw(one, columns, Some(ROWS)))
        };
        self.report.conversations.iter().filter(ours).map(draw).collect()
    }
}

/// Whether one of these QPs takes part in it.
fn is_ours(conversation: &Conversation, queue_pairs: &[u32]) -> bool {
    let mut ends = [&conversation.a, &conversation.b].into_iter().filter_map(|end| end.qpn);
    ends.any(|qpn| queue_pairs.contains(&qpn))
}

//! Builds the data of a page from a capture.

use std::collections::HashMap;
use std::io::{self, Read};

use ferroce_trace::analysis::anomaly::AnomalyKind;
use ferroce_trace::analysis::detail::{self, Detail, DetailOptions};
use ferroce_trace::analysis::report::{Anomaly, Conversation, FileReport};
use ferroce_trace::analysis::{self};
use ferroce_trace::render::{sections, units};

use crate::model::{ConversationPage, CurvePage, FilePage, LatencyPage, Mark};
use crate::{diagnosis, packets, state, traffic};

/// Conversations listed: the largest ones.
const MAX_CONVERSATIONS: usize = 1_000;

/// Curves embedded: those of the largest conversations.
const MAX_CURVES: usize = 64;

/// Problems listed.
const MAX_PROBLEMS: usize = 100;

/// Limits of a page.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Packets shown of each capture.
    pub packets: usize,
    /// Bytes that the packets of all captures may add to the page. Beyond it, packets are listed without their bytes.
    pub packet_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { packets: 2_000, packet_bytes: 14 << 20 }
    }
}

/// Analyses one capture. `open` is called twice: the first pass analyses the whole file, the second reads the bytes of the
/// packets to show. Calls `progress` with the number of bytes read in both passes.
///
/// Damage is part of the page. Fails only if the file cannot be opened.
pub fn build(
    path: &str,
    open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
    options: &mut Options,
    progress: &mut dyn FnMut(u64),
) -> io::Result<FilePage> {
    let detail = Some(DetailOptions { packets: options.packets });
    let analysis = analysis::Options { detail, ..analysis::Options::default() };
    let mut report = analysis::analyze(path, open()?, &analysis, progress);
    let detail = report.detail.take().unwrap_or_default();
    let notes = notes(&report.anomalies);
    let first_pass = report.file_bytes;
    let mut both = |done: u64| progress(first_pass.saturating_add(done));
    let shown = match detail.kept.packets.is_empty() {
        false => packets::read(open()?, &detail.kept, &notes, options, &mut both),
        true => packets::Shown::default(),
    };
    Ok(page(report, &detail, shown))
}

/// Anomalies by packet.
pub(crate) type Notes<'a> = HashMap<(u64, u32), Vec<&'a Anomaly>>;

fn notes(anomalies: &[Anomaly]) -> Notes<'_> {
    let mut notes = Notes::new();
    for anomaly in anomalies {
        notes.entry((anomaly.frame, anomaly.segment)).or_default().push(anomaly);
    }
    notes
}

fn page(report: FileReport, detail: &Detail, shown: packets::Shown) -> FilePage {
    let topics = diagnosis::topics(&report);
    let largest = largest(&report.conversations);
    let listed = |id: u32| largest.contains_key(&id);
    let conversations = report.conversations.iter().filter(|it| listed(it.id));
    let conversations = conversations.map(|it| conversation(it, &report)).collect();
    let mut curves: Vec<_> = detail.curves.iter().filter(|it| listed(it.conversation)).collect();
    curves.sort_by_key(|curve| largest.get(&curve.conversation).copied());
    curves.truncate(MAX_CURVES);
    let latency = report.latency.iter().map(|(operation, summary)| LatencyPage {
        operation,
        summary: *summary,
        bins: (detail.latency.get(operation).into_iter().flatten())
            .map(|bin| (bin.up_to_ns, bin.count))
            .collect(),
    });
    FilePage {
        format: report.format.clone(),
        file_bytes: report.file_bytes,
        packets: report.packets,
        roce_packets: report.roce_packets,
        bytes: report.bytes,
        dropped: report.dropped,
        start: report.start_ns.map(units::date).unwrap_or_default(),
        duration_ns: report.duration_ns,
        icrc: report.icrc,
        messages: report.messages_total,
        conversations_total: report.conversations_total,
        worst: topics.iter().map(|topic| topic.severity).max(),
        topics,
        conversations,
        tcp: detail.tcp.iter().map(traffic::tcp).collect(),
        latency: latency.collect(),
        series: traffic::series(&detail.series),
        curves: curves
            .into_iter()
            .map(|curve| CurvePage {
                conversation: curve.conversation,
                from_a: curve.from_a,
                first_psn: curve.first_psn,
                points: (curve.points.iter())
                    .map(|it| (it.time_ns, it.in_flight, it.sent, it.acknowledged))
                    .collect(),
            })
            .collect(),
        marks_left_out: (report.anomaly_counts.values().sum::<u64>())
            .saturating_sub(detail.marks.len() as u64),
        marks: detail.marks.iter().map(mark).collect(),
        specs: shown.specs,
        shown: shown.packets,
        left_out: shown.left_out,
        problems: report.problems.iter().take(MAX_PROBLEMS).map(sections::problem).collect(),
        problems_total: report.problems_total,
        hierarchy: report.hierarchy,
        opcodes: report.opcodes,
        path: report.path,
    }
}

/// The rank of the largest conversations.
fn largest(conversations: &[Conversation]) -> HashMap<u32, usize> {
    let mut order: Vec<_> = conversations.iter().collect();
    order.sort_by_key(|it| std::cmp::Reverse(it.a_to_b.bytes + it.b_to_a.bytes));
    order.iter().take(MAX_CONVERSATIONS).enumerate().map(|(rank, it)| (it.id, rank)).collect()
}

fn conversation(it: &Conversation, report: &FileReport) -> ConversationPage {
    let control = state::control(it, report);
    ConversationPage {
        id: it.id,
        transport: it.transport,
        a: it.a.clone(),
        b: it.b.clone(),
        joined_by: it.joined_by,
        mtu: it.path_mtu,
        a_to_b: it.a_to_b,
        b_to_a: it.b_to_a,
        time_ns: it.time_ns,
        duration_ns: it.duration_ns,
        operations: it.operations.clone(),
        anomalies: it.anomalies.clone(),
        worst: (AnomalyKind::ALL.iter())
            .filter(|kind| it.anomalies.contains_key(kind.name()))
            .map(|kind| kind.severity())
            .max(),
        states: state::states(it, &control, report),
        control,
    }
}

fn mark(of: &detail::Mark) -> Mark {
    Mark {
        kind: of.kind.name(),
        severity: of.kind.severity(),
        frame: of.frame,
        segment: of.segment,
        time_ns: of.time_ns,
        conversation: of.conversation,
        psn: of.psn,
    }
}

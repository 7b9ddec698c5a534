//! The ladder of a connection with a violation: repeats the run with a capture at its host, and analyzes that capture.

use std::io::{self, Write};

use ferroce_sim::rdma::{Simulation, Summary};
use ferroce_sim::{Capture, HostId, Vantage};
use ferroce_trace::analysis::report::Conversation;
use ferroce_trace::analysis::{self, Options};
use ferroce_trace::render::ladder;

use crate::analyze::output::{Alphabet, print};
use crate::style::Screen;

/// The number of packets drawn.
const MAX_ROWS: usize = 40;

/// Draws the first packets of the first connection with a violation, or of the first connection.
pub(super) fn draw(
    simulation: &Simulation,
    summary: &Summary,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    let host = summary.suspects.first().copied().unwrap_or(HostId(0));
    let comment = simulation.replay().to_string();
    let capture = Capture::new(Vec::new(), Vantage::Host(host), &comment);
    let captured = capture.map(|capture| simulation.run_logged(capture).1);
    // Writing a capture to memory cannot fail.
    let file = captured.and_then(Capture::finish).map_err(io::Error::other)?;
    let options = Options { packet_list: true, max_packet_rows: usize::MAX, ..Options::default() };
    let report = analysis::analyze("simulated", file.as_slice(), &options, &mut |_| {});
    let wanted = |one: &&Conversation| {
        let mut ends = [&one.a, &one.b].into_iter().filter_map(|end| end.qpn);
        ends.all(|qpn| summary.suspect_pairs.iter().any(|pair| pair.0 == qpn))
    };
    let conversation = report.conversations.iter().find(wanted).or(report.conversations.first());
    let Some(conversation) = conversation else {
        return writeln!(output, "\n  {host} sent and received no packets");
    };
    writeln!(output, "\n  {} as captured at {host}", conversation.transport)?;
    let lines = ladder::ladder(&report, conversation, screen.columns, Some(MAX_ROWS));
    print(&lines, screen.paint, Alphabet::choose(false), output)?;
    writeln!(output)
}

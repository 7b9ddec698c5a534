//! The ladder of a connection that something is wrong with: the run is repeated with a capture at its host, and that
//! goes the way of every capture.

use std::io::{self, Write};

use ferroce_sim::rdma::{Simulation, Summary};
use ferroce_sim::{Capture, HostId, Vantage};
use ferroce_trace::analysis::report::Conversation;
use ferroce_trace::analysis::{self, Options};
use ferroce_trace::render::ladder;

use crate::analyze::output::{Alphabet, print};
use crate::style::Screen;

/// Packets that are drawn.
const ROWS: usize = 40;

/// Draws the first packets of the first connection that the summary suspects, or of the first one there is.
pub(super) fn draw(
    simulation: &Simulation,
    summary: &Summary,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<()> {
    let host = summary.suspects.first().copied().unwrap_or(HostId(0));
    let comment = simulation.replay().to_string();
    let capture = Capture::new(Vec::new(), Vantage::Host(host), &comment);
    let captured = capture.map(|capture| simulation.run_traced(capture).1);
    // A capture into memory cannot fail.
    let file = captured.and_then(Capture::finish).map_err(io::Error::other)?;
    let options = Options { packet_list: true, max_packet_rows: usize::MAX, ..Options::default() };
    let report = analysis::analyze("simulated", file.as_slice(), &options, &mut |_| {});
    let wanted = |one: &&Conversation| {
        let mut ends = [&one.a, &one.b].into_iter().filter_map(|end| end.qpn);
        ends.all(|qpn| summary.suspect_pairs.iter().any(|pair| pair.0 == qpn))
    };
    let conversation = report.conversations.iter().find(wanted).or(report.conversations.first());
    let Some(conversation) = conversation else {
        return writeln!(output, "\n  nothing of it was on the wire at {host}");
    };
    writeln!(output, "\n  {} as {host} saw it", conversation.transport)?;
    let lines = ladder::ladder(&report, conversation, screen.columns, Some(ROWS));
    print(&lines, screen.paint, Alphabet::choose(false), output)?;
    writeln!(output)
}

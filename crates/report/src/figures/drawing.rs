//! The figures that are not charts: the timeline and the ladder.

use std::collections::HashSet;
use std::fmt::Write;

use ferroce_figure::{STYLE, escape};
use ferroce_trace::analysis::anomaly::{AnomalyKind, Severity};
use ferroce_trace::render::units;

use crate::model::{ConversationPage, FilePage, PacketPage};

const WIDTH: f64 = 1000.0;

/// Conversations drawn.
const MAX_LANES: usize = 30;

/// Packets drawn.
const MAX_ROWS: usize = 80;

/// Height of a lane and of a row.
const LANE: f64 = 28.0;
const ROW: f64 = 24.0;

const RULES: &str = ".sev-e{fill:#c4232b}.sev-w{fill:#d99b0b}.sev-i{fill:#3690c0}\
    .ar{stroke-width:1.6;fill:none}.again{stroke-dasharray:5 4}.lost{stroke:#c4232b;stroke-dasharray:5 4}";

fn document(title: &str, height: f64, body: &str) -> String {
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\"><title>{title}</title><style>{STYLE}{RULES}</style>\
         <rect class=\"fig-bg\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"fig-title\" x=\"16\" y=\"26\">{title}</text>\n{body}</svg>\n"
    )
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "sev-e",
        Severity::Warning => "sev-w",
        Severity::Info => "sev-i",
    }
}

/// How many anomalies the figures do not mark, in words.
pub(super) fn unmarked(file: &FilePage) -> Option<String> {
    let marked = file.marks.len() as u64;
    let total = units::count(marked + file.marks_left_out);
    (file.marks_left_out > 0)
        .then(|| format!("{} of {total} anomalies marked", units::count(marked)))
}

/// One lane per conversation, with marks for anomalies.
pub(super) fn timeline(file: &FilePage) -> String {
    const LEFT: f64 = 300.0;
    const RIGHT: f64 = 980.0;
    const TOP: f64 = 44.0;
    let mut lanes: Vec<&ConversationPage> = file.conversations.iter().collect();
    lanes.sort_by_key(|it| it.time_ns);
    lanes.truncate(MAX_LANES);
    let span = file.duration_ns.max(1) as f64;
    let x = |time: f64| LEFT + (time / span).clamp(0.0, 1.0) * (RIGHT - LEFT);
    let bottom = TOP + LANE * lanes.len() as f64;
    let mut body = String::new();
    // Writing to a string does not fail.
    for part in 0..=4 {
        let time = span * f64::from(part) / 4.0;
        let at = x(time);
        let _ = writeln!(
            body,
            "<line class=\"fig-grid\" x1=\"{at}\" x2=\"{at}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"fig-muted\" x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            units::duration(time as u64)
        );
    }
    for (at, lane) in lanes.iter().enumerate() {
        let y = TOP + LANE * at as f64;
        let (start, end) =
            (x(lane.time_ns as f64), x(lane.time_ns as f64 + lane.duration_ns as f64));
        let label =
            format!("#{} {} {} ⇄ {}", lane.id, lane.transport, lane.a.address, lane.b.address);
        let _ = writeln!(
            body,
            "<text x=\"16\" y=\"{}\">{}</text><rect class=\"fig-f{}\" x=\"{start:.1}\" y=\"{}\" width=\"{:.1}\" \
             height=\"11\" rx=\"3\"/>",
            y + 18.0,
            escape(&label),
            at % 7,
            y + 9.0,
            (end - start).max(2.0)
        );
        let mut seen = HashSet::new();
        for mark in file.marks.iter().filter(|mark| mark.conversation == Some(lane.id)) {
            // One for each spot.
            if !seen.insert(((x(mark.time_ns as f64) / 3.0) as i64, mark.severity as u8)) {
                continue;
            }
            let _ = writeln!(
                body,
                "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{}\" r=\"4\"><title>{}, frame {}</title></circle>",
                class(mark.severity),
                x(mark.time_ns as f64),
                y + 14.5,
                mark.kind.replace('_', " "),
                mark.frame
            );
        }
    }
    if let Some(text) = unmarked(file) {
        let _ = writeln!(
            body,
            "<text class=\"fig-muted\" x=\"16\" y=\"{}\">{text}</text>",
            bottom + 18.0
        );
    }
    document("Timeline", bottom + 34.0, &body)
}

/// The packets of the conversation with the worst anomalies, or of the largest one.
pub(super) fn ladder(file: &FilePage) -> String {
    const LEFT: f64 = 170.0;
    const RIGHT: f64 = 970.0;
    let weight = |it: &&ConversationPage| (it.worst, it.a_to_b.packets + it.b_to_a.packets);
    let Some(conversation) = file.conversations.iter().max_by_key(weight) else {
        return document("No conversation", 60.0, "");
    };
    let control = |packet: &PacketPage| {
        let set = &conversation.control;
        set.iter().find(|it| (it.frame, it.segment) == (packet.f, packet.s))
    };
    let own = |packet: &&PacketPage| packet.c == conversation.id || control(packet).is_some();
    let packets: Vec<_> = file.shown.iter().filter(own).collect();
    let mut body = String::new();
    let end = |end: &ferroce_trace::analysis::report::Endpoint| match end.qpn {
        Some(qpn) => format!("{} QP 0x{qpn:06x}", end.address),
        None => end.address.clone(),
    };
    let mut y = 62.0;
    let _ = writeln!(
        body,
        "<text x=\"{LEFT}\" y=\"{}\">{}</text><text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        y - 10.0,
        escape(&end(&conversation.a)),
        y - 10.0,
        escape(&end(&conversation.b))
    );
    let top = y;
    for packet in packets.iter().take(MAX_ROWS) {
        for (_, kind, text) in &packet.n {
            if AnomalyKind::named(kind).is_some_and(AnomalyKind::is_missing) {
                let text = text.split(": ").next().unwrap_or(text);
                lost(&mut body, packet.a, y, text);
                y += ROW;
            }
        }
        let set = control(packet);
        let from_a = set.map_or(packet.a, |set| set.from_a);
        let label = match set {
            Some(set) => format!("CM {}  {}", set.message, set.summary),
            None => packet.y.clone(),
        };
        let worst = packet.n.iter().map(|(severity, ..)| *severity).max();
        let colour = match worst {
            Some(Severity::Error) => 3,
            Some(Severity::Warning) => 4,
            _ if from_a => 0,
            _ => 1,
        };
        let mut kinds = packet.n.iter().filter_map(|(_, kind, _)| AnomalyKind::named(kind));
        let again = kinds.any(AnomalyKind::is_repeat);
        let middle = y + 15.0;
        let (from, to, head) = if from_a {
            (LEFT, RIGHT, format!("M{} {}l8 4l-8 4", RIGHT - 8.0, middle - 4.0))
        } else {
            (RIGHT, LEFT, format!("M{} {}l-8 4l8 4", LEFT + 8.0, middle - 4.0))
        };
        let number =
            if packet.s == 0 { packet.f.to_string() } else { format!("{}.{}", packet.f, packet.s) };
        let _ = writeln!(
            body,
            "<text class=\"fig-muted\" x=\"60\" y=\"{0}\" text-anchor=\"end\">{number}</text>\
             <text class=\"fig-muted\" x=\"150\" y=\"{0}\" text-anchor=\"end\">{1}</text>\
             <path class=\"ar fig-l{colour}{2}\" d=\"M{from} {middle}H{to}\"/><path class=\"ar fig-l{colour}\" d=\"{head}\"/>\
             <text x=\"{3}\" y=\"{4}\">{5}</text>",
            middle + 4.0,
            escape(&units::duration(u64::try_from(packet.t).unwrap_or(0))),
            if again { " again" } else { "" },
            LEFT + 16.0,
            middle - 3.0,
            escape(&cut(&label, 110))
        );
        y += ROW;
    }
    let hidden = packets.len().saturating_sub(MAX_ROWS);
    if hidden > 0 {
        let _ = writeln!(
            body,
            "<text class=\"fig-muted\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} not drawn</text>",
            (LEFT + RIGHT) / 2.0,
            y + 18.0,
            units::counted(hidden as u64, "more packet")
        );
        y += ROW;
    }
    for x in [LEFT, RIGHT] {
        let _ = writeln!(
            body,
            "<line class=\"fig-axis\" x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{}\"/>",
            y + 8.0
        );
    }
    let title = format!("Conversation {}, {}", conversation.id, conversation.transport);
    document(&title, y + 24.0, &body)
}

fn lost(body: &mut String, from_a: bool, y: f64, text: &str) {
    let middle = y + 15.0;
    let (from, to) = if from_a { (170.0, 560.0) } else { (970.0, 580.0) };
    let (x, anchor) = if from_a { (186.0, "start") } else { (954.0, "end") };
    let _ = writeln!(
        body,
        "<path class=\"ar lost\" d=\"M{from} {middle}H{to}\"/><text class=\"sev-e\" x=\"{to}\" y=\"{}\" \
         text-anchor=\"middle\">✗</text><text x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
        middle + 4.0,
        middle - 3.0,
        escape(&cut(text, 60))
    );
}

fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure, the page and the text show the same packets as missing and as repeated.
    #[test]
    fn the_ladders_agree() {
        let script = include_str!("../../page/ladder.js");
        let set = |name: &str| {
            let line =
                script.lines().find(|line| line.starts_with(&format!("const {name} = new Set([")));
            let names = line.expect("a set").split('"').skip(1).step_by(2);
            names.map(|name| AnomalyKind::named(name).expect(name)).collect::<HashSet<_>>()
        };
        let of = |is: fn(AnomalyKind) -> bool| {
            AnomalyKind::ALL.iter().copied().filter(|kind| is(*kind)).collect::<HashSet<_>>()
        };
        assert_eq!(set("MISSING"), of(AnomalyKind::is_missing));
        assert_eq!(set("AGAIN"), of(AnomalyKind::is_repeat));
    }
}

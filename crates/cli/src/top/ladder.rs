//! The packets of a queue pair as a ladder: time downwards, the queue pair at the left, its peer at the right.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use ferroce_stat::snapshot::QueuePair;
use ferroce_trace::render::units::{count, duration};

use super::app::Page;
use super::draw::style;
use super::rows::Tone;
use crate::recent::{PacketView, Reason, Recent, Role};
use crate::stat::peer;
use crate::style::fit;

/// The column of the times.
const TIME_WIDTH: usize = 12;

/// Wider arrows are not easier to read.
const MAX_ARROW: usize = 120;

/// Draws the packets of a page, the newest at the bottom.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    packets: &Result<Recent, String>,
    pair: &QueuePair,
    page: Page,
) {
    let recent = match packets {
        Ok(recent) => recent,
        Err(message) => {
            frame.render_widget(Paragraph::new(message.clone()).yellow(), area);
            return;
        }
    };
    let width = usize::from(area.width).saturating_sub(TIME_WIDTH + 3).clamp(20, MAX_ARROW);
    let mut lines = match page {
        Page::Recovery => recovery(recent, width),
        Page::Overview | Page::Packets => ladder(&recent.packets, width),
    };
    if lines.is_empty() {
        let text = match page {
            Page::Recovery => {
                "no retransmission, NAK or congestion mark since this queue pair is shown"
            }
            Page::Overview | Page::Packets => "waiting for packets: collected from now on",
        };
        lines.push(Line::from(text).dark_gray());
    }
    let title = match page {
        Page::Recovery => "Packets around losses, NAKs and congestion marks",
        Page::Overview | Page::Packets => "Last packets",
    };
    let mut head = vec![Line::default(), Line::from(title).bold()];
    if recent.dropped > 0 {
        let text = format!("  {} packets came too fast to be shown", count(recent.dropped));
        head[1].push_span(text.yellow());
    }
    head.push(ends(pair, width));
    let room = usize::from(area.height).saturating_sub(head.len());
    let shown = lines.split_off(lines.len().saturating_sub(room));
    head.extend(shown);
    frame.render_widget(Paragraph::new(head), area);
}

/// The names of both ends, above their lines.
fn ends(pair: &QueuePair, width: usize) -> Line<'static> {
    let (here, there) = (format!("QP {:#08x}", pair.number), format!("peer {}", peer(pair)));
    let gap = (width + 2).saturating_sub(here.chars().count() + there.chars().count());
    let text = format!("{:TIME_WIDTH$} {here}{:gap$}{there}", "", "");
    Line::from(text).dark_gray()
}

fn recovery(recent: &Recent, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for episode in &recent.episodes {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        let at = episode.packets.iter().find(|packet| packet.reason.is_some());
        let clock = at.map(|packet| clock(packet.time)).unwrap_or_default();
        lines.push(Line::from(format!("{clock} UTC: {}", episode.reason.words())).yellow());
        lines.extend(ladder(&episode.packets, width));
    }
    lines
}

fn ladder(packets: &[PacketView], width: usize) -> Vec<Line<'static>> {
    packets.iter().map(|packet| rung(packet, width)).collect()
}

fn rung(packet: &PacketView, width: usize) -> Line<'static> {
    let time = match packet.after_ns {
        Some(after) => format!("+{}", duration(after)),
        None => clock(packet.time),
    };
    let tone = match (packet.reason, packet.role, packet.sent) {
        (Some(Reason::Nak), ..) => Tone::Bad,
        (Some(_), ..) => Tone::Warning,
        (_, Role::Acknowledgement, _) => Tone::Faint,
        (_, _, true) => Tone::Sent,
        (_, _, false) => Tone::Received,
    };
    let again = packet.reason == Some(Reason::Retransmission);
    let label = format!("{}{}", packet.summary, if again { "  sent again" } else { "" });
    Line::from(vec![
        Span::raw(format!("{time:>TIME_WIDTH$} ")).dark_gray(),
        "│".dark_gray(),
        Span::styled(arrow(&label, packet.sent, width), style(tone)),
        "│".dark_gray(),
    ])
}

/// An arrow with a text in its middle.
fn arrow(label: &str, sent: bool, width: usize) -> String {
    let label = fit(label, width.saturating_sub(6));
    let dashes = width.saturating_sub(label.chars().count() + 3);
    let (before, after) = ("─".repeat(dashes / 2), "─".repeat(dashes - dashes / 2));
    match sent {
        true => format!("{before} {label} {after}▶"),
        false => format!("◀{before} {label} {after}"),
    }
}

/// The time of day, UTC, of milliseconds since 1970.
fn clock(milliseconds: f64) -> String {
    let milliseconds = milliseconds as u64;
    let seconds = milliseconds / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, milliseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_point_from_the_sender_and_have_the_same_width() {
        let (sent, received) = (arrow("RC ACK", true, 20), arrow("RC ACK", false, 20));
        assert_eq!(sent, "───── RC ACK ──────▶");
        assert_eq!(received, "◀───── RC ACK ──────");
        assert_eq!(arrow("a label that is too long for it", true, 20).chars().count(), 20);
    }

    #[test]
    fn clock_is_utc() {
        assert_eq!(clock(1_700_000_000_123.0), "22:13:20.123");
    }
}

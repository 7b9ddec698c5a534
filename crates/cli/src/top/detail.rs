//! A queue pair in detail.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use ferroce_stat::snapshot::{Counters, Direction, QueuePair};
use ferroce_trace::render::units::{bytes, count, duration};

use super::app::{App, Key, Page};
use super::draw::{sparkline, style};
use super::ladder;
use super::rows::Tone;
use crate::stat::{peer, reason_text};

/// The lines of the overview, and from how many lines on packets are shown below it.
const OVERVIEW_HEIGHT: u16 = 24;
const MIN_HEIGHT_FOR_BOTH: u16 = OVERVIEW_HEIGHT + 10;

/// Draws a queue pair, or that it is gone.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, key: &Key) {
    let Some((process, device, pair)) = app.queue_pair(key) else {
        let text =
            "this queue pair is gone: it was destroyed, or its process has ended; Esc goes back";
        frame.render_widget(Paragraph::new(text).yellow(), area);
        return;
    };
    let layout =
        Layout::vertical([Constraint::Length(2), Constraint::Length(2), Constraint::Min(1)]);
    let [head, lines, body] = layout.areas(area);
    let title = format!(
        "QP {:#08x} of {} of process {} {}",
        pair.number,
        device.name,
        process.pid,
        crate::style::printable(&process.name)
    );
    let state = match pair.state {
        "RTS" => Tone::Good,
        "ERR" | "SQE" => Tone::Bad,
        _ => Tone::Warning,
    };
    let age = duration((pair.age_seconds * 1e9) as u64);
    let idle = pair.idle_seconds.map(|idle| duration((idle * 1e9) as u64));
    let text = vec![
        Line::from(title).bold(),
        Line::from(vec![
            Span::raw(format!("{} ", pair.service)),
            Span::styled(pair.state, style(state)),
            Span::raw(format!(
                "  peer {}  by {}  path MTU {}  created {age} ago, {}",
                peer(pair),
                pair.link,
                pair.path_mtu,
                idle.map_or("never used".to_owned(), |idle| format!("idle for {idle}")),
            )),
        ]),
    ];
    frame.render_widget(Paragraph::new(text), head);
    if let Some(history) = app.history(key) {
        let [tx, rx] = Layout::vertical([Constraint::Length(1); 2]).areas(lines);
        sparkline(frame, tx, "sent     ", history.tx.iter().copied(), Tone::Sent);
        sparkline(frame, rx, "received ", history.rx.iter().copied(), Tone::Received);
    }
    let both = body.height >= MIN_HEIGHT_FOR_BOTH;
    let body = match app.page {
        Page::Overview if both => {
            let [above, below] =
                Layout::vertical([Constraint::Length(OVERVIEW_HEIGHT), Constraint::Min(1)])
                    .areas(body);
            ladder::draw(frame, below, &app.packets, pair, Page::Packets);
            above
        }
        Page::Overview => body,
        page => return ladder::draw(frame, body, &app.packets, pair, page),
    };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(body);
    let queues = Paragraph::new(queues_and_traffic(pair)).wrap(Wrap { trim: false });
    frame.render_widget(queues, left);
    let height = usize::from(right.height);
    frame.render_widget(Paragraph::new(latency(app, key, pair, height, right.width)), right);
}

/// A line with a name in front.
fn row(name: &str, text: impl Into<Span<'static>>) -> Line<'static> {
    Line::from(vec![format!("{name:<12}").dark_gray(), text.into()])
}

fn queues_and_traffic(pair: &QueuePair) -> Vec<Line<'static>> {
    let receives = match pair.shared_receive_queue {
        Some(srq) => format!("SRQ {srq:#08x}"),
        None => format!("{} of {}", pair.recv_outstanding, pair.max_recv_wr),
    };
    let error = pair.last_error.map(|error| format!(", last: {error}")).unwrap_or_default();
    let mut lines = vec![
        Line::default(),
        Line::from("Queues").bold(),
        row("SQ", format!("{} of {} outstanding", pair.send_outstanding, pair.max_send_wr)),
        row("RQ", receives),
        row(
            "in flight",
            format!("{} packets, {}", pair.in_flight_packets, bytes(pair.in_flight_bytes)),
        ),
        row("PSN", format!("sq {}, rq {}", pair.sq_psn, pair.rq_psn)),
        row("posted", count(pair.send_posted)),
        row(
            "completions",
            format!(
                "{} sends, {} receives",
                count(pair.send_completions),
                count(pair.recv_completions)
            ),
        ),
    ];
    let errors = format!("{}{error}", count(pair.completion_errors));
    let tone = if pair.completion_errors == 0 { Tone::Faint } else { Tone::Bad };
    lines.push(row("errors", Span::styled(errors, style(tone))));
    if let Some(reason) = &pair.last_reason {
        let text = reason_text("", reason);
        lines.push(row("last error", Span::styled(text, style(Tone::Bad))));
    }
    for (name, direction, tone) in
        [("Sent", &pair.tx, Tone::Sent), ("Received", &pair.rx, Tone::Received)]
    {
        lines.push(Line::default());
        lines.push(Line::styled(name, style(tone).bold()));
        lines.extend(traffic(direction));
    }
    lines
}

fn traffic(direction: &Direction) -> Vec<Line<'static>> {
    let used = direction.operations.iter().filter(|(_, traffic)| traffic.packets > 0);
    let mut lines: Vec<_> = used
        .map(|(name, traffic)| {
            let text = format!(
                "{:>14} packets {:>12} messages {:>10}",
                count(traffic.packets),
                count(traffic.messages),
                bytes(traffic.bytes)
            );
            row(name, text)
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::from("nothing").dark_gray());
    }
    lines
}

/// The counters that are not zero.
fn events(title: &'static str, counters: &Counters) -> Vec<Line<'static>> {
    let all = counters.iter().filter(|(_, value)| *value > 0);
    let lines: Vec<_> = all
        .map(|(name, value)| Line::from(vec![format!("{name:<28}").into(), count(value).yellow()]))
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    [vec![Line::default(), Line::from(title).bold()], lines].concat()
}

fn latency(
    app: &App,
    key: &Key,
    pair: &QueuePair,
    height: usize,
    width: u16,
) -> Vec<Line<'static>> {
    let mut lines = events("Recovery", &pair.counters);
    lines.extend(events("NAKs received", &pair.naks_received));
    lines.extend(events("NAKs sent", &pair.naks_sent));
    lines.extend([Line::default(), Line::from("Latency, from post to completion").bold()]);
    let recent = app.rates_of(key).map(|rates| &rates.latency);
    let rows = [("total", Some(&pair.latency)), ("last interval", recent)];
    for (name, latency) in rows {
        let Some(latency) = latency.filter(|latency| latency.count() > 0) else { continue };
        let shown = |share| latency.quantile_ns(share).map_or("-".to_owned(), duration);
        let text = format!("p50 {}  p99 {}  p99.9 {}", shown(0.5), shown(0.99), shown(0.999));
        lines.push(Line::from(vec![format!("{name:<14}").dark_gray(), text.into()]));
    }
    if pair.latency.count() == 0 {
        lines.push(Line::from("no request measured").dark_gray());
    }
    let most = pair.latency.nonempty().map(|(.., count)| count).max().unwrap_or(1).max(1);
    let room = usize::from(width).saturating_sub(24).max(4) as u64;
    let left = height.saturating_sub(lines.len());
    // If not all fit, the slowest are left out last: they are what one looks for.
    let buckets: Vec<_> = pair.latency.nonempty().collect();
    for (from, _, samples) in buckets.iter().skip(buckets.len().saturating_sub(left)) {
        let bar = "█".repeat((samples.saturating_mul(room)).div_ceil(most).min(room) as usize);
        let text = format!("{:>8} {:>12} ", duration(*from), count(*samples));
        lines.push(Line::from(vec![text.into(), Span::styled(bar, style(Tone::Sent))]));
    }
    lines
}

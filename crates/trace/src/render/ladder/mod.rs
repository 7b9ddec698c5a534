//! Ladder diagrams: two lifelines and the packets between them.

mod rows;
mod side;
mod step;

#[cfg(test)]
mod tests;

pub use rows::Ladders;
use step::{Arrow, Step, Stroke};

use super::endpoint::endpoint;
use super::text::{Line, Tone, cut, width, wrap};
use super::units::{self, Clock};
use crate::analysis::report::{CmEvent, Conversation, FileReport};

/// Draws the ladder of a conversation. `rows` limits its length and folds middle packets; `None` draws everything.
pub fn ladder(
    file: &FileReport,
    conversation: &Conversation,
    columns: usize,
    rows: Option<usize>,
) -> Vec<Line> {
    Ladders::new(file).draw(conversation, columns, rows)
}

impl Ladders<'_> {
    /// Packet count and duration of a conversation, including its CM messages: `32 packets in 1.38 ms`.
    pub fn caption(&self, conversation: &Conversation) -> String {
        let packets = units::counted(self.packets(conversation), "packet");
        let start = conversation.time_ns;
        let end = start.saturating_add_unsigned(conversation.duration_ns);
        let times = || self.control(conversation).map(|event| event.time_ns);
        let (start, end) = (times().fold(start, i64::min), times().fold(end, i64::max));
        format!("{packets} in {}", units::duration(start.abs_diff(end)))
    }

    /// Number of packets of a conversation, including its CM messages.
    fn packets(&self, conversation: &Conversation) -> u64 {
        let own = conversation.a_to_b.packets + conversation.b_to_a.packets;
        own + self.control(conversation).count() as u64
    }

    fn control(&self, conversation: &Conversation) -> impl Iterator<Item = &CmEvent> {
        self.rows(conversation.id).into_iter().flat_map(|rows| rows.cm.iter().copied())
    }

    /// Draws the ladder of one of the file's conversations, like [`ladder`].
    pub fn draw(
        &self,
        conversation: &Conversation,
        columns: usize,
        rows: Option<usize>,
    ) -> Vec<Line> {
        let steps = step::steps(self, conversation, rows);
        let arrows = steps.iter().filter_map(|step| match step {
            Step::Packet(arrow) | Step::Fold { first: arrow, .. } => Some(arrow),
            _ => None,
        });
        let clock = Clock::for_times(arrows.clone().map(|arrow| arrow.time_ns));
        let frames = arrows.clone().map(|arrow| width(&arrow.number()));
        let frame_width = frames.max().unwrap_or(0).max("frame".len());
        let margin = 2 + frame_width + 2 + clock.width() + 2;
        let longest = arrows.map(|arrow| width(&arrow.label.join("  "))).max().unwrap_or(0);
        let available = columns.saturating_sub(margin + 2).max(MIN_LANE);
        let heads = width(&endpoint(&conversation.a)) + width(&endpoint(&conversation.b)) + 8;
        // Widen the lane if all labels fit on their arrows; otherwise the rest of a label goes on the next line.
        let whole = longest + ARROW_OVERHEAD + 2;
        let wanted = if whole <= available { whole.max(PREFERRED_LANE) } else { PREFERRED_LANE };
        let lane = wanted.max(heads).min(available);
        let drawing = Drawing { clock, frame_width, margin, lane };

        if steps.is_empty() {
            return Vec::new();
        }
        let mut lines = drawing.head(conversation);
        for step in &steps {
            drawing.step(step, &mut lines);
        }
        lines
    }
}

/// Columns between the lifelines: the minimum, and the preferred minimum.
const MIN_LANE: usize = 32;
const PREFERRED_LANE: usize = 72;

/// Columns of an arrow besides its label.
const ARROW_OVERHEAD: usize = 8;

struct Drawing {
    clock: Clock,
    frame_width: usize,
    /// Columns left of the first lifeline.
    margin: usize,
    /// Columns between the lifelines.
    lane: usize,
}

impl Drawing {
    /// Draws the header: the endpoints of both lifelines.
    fn head(&self, conversation: &Conversation) -> Vec<Line> {
        let (a, b) = (&conversation.a, &conversation.b);
        let a = Line::of(Tone::Forth, "A ").plain(endpoint(a));
        let b = Line::of(Tone::Plain, endpoint(b)).with(Tone::Back, " B");
        let end = self.margin + self.lane + 2;
        let mut lines = Vec::new();
        let mut line = Line::new();
        line.pad_to(self.margin);
        line.append(a);
        if line.width() + 2 + b.width() > end {
            lines.push(std::mem::take(&mut line));
        }
        line.pad_to(end.saturating_sub(b.width()));
        line.append(b);
        lines.push(line);

        let names = format!(
            "  {:>frames$}  {:>times$}  ",
            "frame",
            self.clock.unit(),
            frames = self.frame_width,
            times = self.clock.width()
        );
        lines.push(self.between(Line::of(Tone::Faint, names), Line::new(), "│"));
        lines
    }

    fn step(&self, step: &Step, lines: &mut Vec<Line>) {
        match step {
            Step::Packet(arrow) => {
                let (label, rest) = self.split_label(&arrow.label);
                lines.push(self.arrow(arrow, &label));
                for text in rest {
                    lines.push(self.beside(Tone::Faint, &text));
                }
                for (tone, note) in &arrow.notes {
                    self.note(*tone, note, lines);
                }
            }
            Step::Fold { first, count, last_psn } => {
                let mut label = vec![fold_title(first, *count)];
                if let (Some(from), Some(to)) = (first.psn(), last_psn) {
                    label.push(format!("PSN {from}–{to}"));
                }
                let (label, _) = self.split_label(&label);
                let faint = Arrow { tone: Tone::Faint, ..first.clone() };
                lines.push(self.arrow(&faint, &label));
            }
            Step::Missing { from_a, text, tone } => {
                lines.push(self.missing(*from_a, text, *tone));
            }
            Step::End { text, tone } => {
                for (at, text) in
                    wrap(text, self.lane.saturating_sub(ARROW_OVERHEAD)).iter().enumerate()
                {
                    let sign = if at == 0 { "✗ " } else { "  " };
                    lines.push(self.beside(*tone, &format!("{sign}{text}")));
                }
            }
            Step::Pause { nanoseconds } => {
                let text = format!("{} later", units::duration(*nanoseconds));
                lines.push(self.centred(&text, "┊"));
            }
            Step::Quiet { packets } => {
                let packets = units::counted(*packets, "packet");
                let text = format!("⋮ {packets} without anomalies ⋮");
                lines.push(self.centred(&text, "│"));
            }
            Step::More { packets } => {
                let text =
                    format!("{} not drawn: --rows or --all", units::counted(*packets, "packet"));
                lines.push(self.centred(&text, "┊"));
            }
        }
    }

    /// Splits a label into the part that fits on the arrow and further lines, between its parts if possible.
    fn split_label(&self, parts: &[String]) -> (String, Vec<String>) {
        let available = self.lane.saturating_sub(ARROW_OVERHEAD);
        let mut lines: Vec<String> = Vec::new();
        for part in parts {
            match lines.last_mut() {
                Some(line) if width(line) + 2 + width(part) <= available => {
                    line.push_str("  ");
                    line.push_str(part);
                }
                _ => lines.extend(wrap(part, available)),
            }
        }
        let mut lines = lines.into_iter();
        (lines.next().unwrap_or_default(), lines.collect())
    }

    /// `├─── label ───▶│` or `│◀── label ───┤`: labels of both directions start in the same column.
    fn arrow(&self, arrow: &Arrow, label: &str) -> Line {
        let dash = match arrow.stroke {
            Stroke::Solid => "─",
            Stroke::Dashed => "╌",
            Stroke::Double => "═",
        };
        let stroke = if is_plain(arrow.tone) { Tone::Drawing } else { arrow.tone };
        let rest = dash.repeat(self.lane.saturating_sub(width(label) + 6));
        let mut line = self.start(arrow);
        if arrow.from_a {
            line.push(Tone::Drawing, "├");
            line.push(stroke, format!("{dash}{dash}{dash} "));
        } else {
            line.push(Tone::Drawing, "│");
            line.push(stroke, format!("◀{dash}{dash} "));
        }
        line.push(arrow.tone, label);
        if arrow.from_a {
            line.push(stroke, format!(" {rest}▶"));
            line.push(Tone::Drawing, "│");
        } else {
            line.push(stroke, format!(" {dash}{rest}"));
            line.push(Tone::Drawing, "┤");
        }
        line
    }

    /// `├╌╌╌ text ╌╌✗      │`: sent, but not in the capture.
    fn missing(&self, from_a: bool, text: &str, tone: Tone) -> Line {
        let available = self.lane.saturating_sub(ARROW_OVERHEAD);
        // The first clause names the packets, the rest explains.
        let clause = text.split(": ").next().filter(|_| width(text) > available);
        let text = cut(clause.unwrap_or(text), available);
        let tail = if width(&text) + 6 + 12 <= self.lane { "╌╌╌╌╌╌" } else { "" };
        let mut line = self.margin();
        if from_a {
            let shaft = format!("╌╌╌ {text} {tail}✗");
            let space = self.lane.saturating_sub(width(&shaft));
            line.push(Tone::Drawing, "├");
            line.push(tone, shaft);
            line.push(Tone::Drawing, format!("{}│", " ".repeat(space)));
        } else {
            let shaft = format!("✗{tail} {text} ╌╌╌");
            let space = self.lane.saturating_sub(width(&shaft));
            line.push(Tone::Drawing, format!("│{}", " ".repeat(space)));
            line.push(tone, shaft);
            line.push(Tone::Drawing, "┤");
        }
        line
    }

    fn note(&self, tone: Tone, note: &str, lines: &mut Vec<Line>) {
        let available = self.lane.saturating_sub(ARROW_OVERHEAD);
        for (at, text) in wrap(note, available).into_iter().enumerate() {
            let sign = if at == 0 { "↳ " } else { "  " };
            lines.push(self.beside(tone, &format!("{sign}{text}")));
        }
    }

    /// Draws text below the label of the previous arrow.
    fn beside(&self, tone: Tone, text: &str) -> Line {
        self.between(self.margin(), Line::of(Tone::Plain, "    ").with(tone, text), "│")
    }

    fn centred(&self, text: &str, lifeline: &str) -> Line {
        let text = cut(text, self.lane);
        let space = self.lane.saturating_sub(width(&text)) / 2;
        let text = Line::of(Tone::Plain, " ".repeat(space)).with(Tone::Faint, text);
        self.between(self.margin(), text, lifeline)
    }

    /// Draws `body` between the lifelines.
    fn between(&self, mut line: Line, body: Line, lifeline: &str) -> Line {
        line.push(Tone::Drawing, lifeline);
        line.append(body);
        line.pad_to(self.margin + 1 + self.lane);
        line.push(Tone::Drawing, lifeline);
        line
    }

    fn margin(&self) -> Line {
        Line::of(Tone::Plain, " ".repeat(self.margin))
    }

    /// Draws frame number and time of an arrow.
    fn start(&self, arrow: &Arrow) -> Line {
        let mut line = Line::of(Tone::Plain, "  ");
        line.push(Tone::Plain, format!("{:>frames$}  ", arrow.number(), frames = self.frame_width));
        line.push(Tone::Faint, format!("{}  ", self.clock.time(arrow.time_ns)));
        line
    }
}

/// Whether a tone only indicates the direction.
fn is_plain(tone: Tone) -> bool {
    matches!(tone, Tone::Forth | Tone::Back)
}

fn fold_title(first: &Arrow, count: u64) -> String {
    let title = first.label.first().map_or("", String::as_str);
    format!("… {} × {title} …", units::count(count))
}

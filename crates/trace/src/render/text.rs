//! Lines of text made of spans with a semantic tone.

use std::fmt;

use crate::analysis::anomaly::Severity;

/// Meaning of a span, which determines its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tone {
    /// Text.
    #[default]
    Plain,
    /// The title of a section.
    Title,
    /// Column names, axes and explanatory text.
    Faint,
    /// Emphasis.
    Strong,
    /// Drawings: bars, lifelines, arrows of plain delivery.
    Drawing,
    /// From `a` to `b`, or the first of two series.
    Forth,
    /// From `b` to `a`, or the second of two series.
    Back,
    /// The control plane: connection management and set-up.
    Control,
    /// Success.
    Good,
    /// Informational.
    Notice,
    /// Recovered.
    Warning,
    /// Failed.
    Bad,
}

impl From<Severity> for Tone {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Notice,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Bad,
        }
    }
}

/// A piece of a line in one tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StyledSpan {
    /// The text.
    pub text: String,
    /// Its meaning.
    pub tone: Tone,
}

/// One line, without its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its spans from left to right.
    pub spans: Vec<StyledSpan>,
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of one tone.
    pub fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self::new().with(tone, text)
    }

    /// Returns the line with `text` appended.
    #[must_use]
    pub fn with(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.push(tone, text);
        self
    }

    /// Returns the line with plain `text` appended.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Tone::Plain, text)
    }

    /// Appends `text`.
    pub fn push(&mut self, tone: Tone, text: impl Into<String>) {
        let text = text.into();
        match self.spans.last_mut() {
            // Merge spans of one tone to save colour changes.
            Some(last) if last.tone == tone => last.text.push_str(&text),
            _ if text.is_empty() => {}
            _ => self.spans.push(StyledSpan { text, tone }),
        }
    }

    /// Appends another line.
    pub fn append(&mut self, other: Line) {
        for span in other.spans {
            self.push(span.tone, span.text);
        }
    }

    /// Pads the line with spaces up to `column`.
    pub fn pad_to(&mut self, column: usize) {
        let width = self.width();
        if width < column {
            self.push(Tone::Plain, " ".repeat(column - width));
        }
    }

    /// Width in columns. Every character used for drawing takes one.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }
}

impl fmt::Display for Line {
    /// Writes the text without tones.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| f.write_str(&span.text))
    }
}

/// Width of a text in columns.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Truncates the text to `columns`, with an ellipsis if anything was cut.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Wraps the text at spaces into lines of at most `columns`. Only words longer than that are split.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            let full = std::mem::take(&mut line);
            lines.push(full.trim_end().to_owned());
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        while width(&line) > columns {
            let rest = line.chars().skip(columns).collect();
            let broken: String = line.chars().take(columns).collect();
            lines.push(broken);
            line = rest;
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Replaces every non-ASCII character by an ASCII one, column by column.
pub fn ascii(text: &str) -> String {
    text.chars().map(ascii_character).collect()
}

fn ascii_character(character: char) -> char {
    match character {
        '\0'..='\u{7f}' => character,
        '─' | '╌' | '–' | '·' => '-',
        '═' => '=',
        '│' => '|',
        '┊' | '⋮' => ':',
        '├' | '┤' | '┬' | '┴' | '┼' | '┌' | '┐' | '└' | '┘' => '+',
        '▶' | '→' | '≥' => '>',
        '◀' | '←' | '≤' => '<',
        '↔' => '=',
        '↳' => '`',
        '…' => '.',
        '×' | '✗' => 'x',
        '✓' => '*',
        '•' => 'o',
        'µ' => 'u',
        '▁' | '▂' => '.',
        '▃' | '▄' => ':',
        '▅' | '▆' => '|',
        '▇' | '█' | '▉' | '▊' => '#',
        '▋' | '▌' | '▍' => '=',
        '▎' | '▏' => '-',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_spans_of_one_tone() {
        let mut line = Line::of(Tone::Strong, "a").with(Tone::Strong, "b").plain("").plain("c");
        assert_eq!(line.spans.len(), 2);
        line.pad_to(6);
        assert_eq!((line.to_string().as_str(), line.width()), ("abc   ", 6));
        line.pad_to(2);
        assert_eq!(line.width(), 6);
    }

    #[test]
    fn wraps_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 3), ["one", "two", "thr", "ee"]);
        assert_eq!(wrap("one  two  three", 9), ["one  two", "three"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("µµ µµ", 5), ["µµ µµ"]);
    }

    #[test]
    fn cuts_with_an_ellipsis() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("ab cdef", 4), "ab…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn ascii_keeps_the_width() {
        let drawing = "├──▶│ 3 µs … ✗ ▁▂▃▄▅▆▇█ ▏▎▍▌▋▊▉ → ü";
        let plain = ascii(drawing);
        assert!(plain.is_ascii(), "{plain}");
        assert_eq!(width(&plain), width(drawing));
        assert_eq!(ascii("│◀── ACK ──┤"), "|<-- ACK --+");
    }
}

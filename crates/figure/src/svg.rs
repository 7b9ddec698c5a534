//! The document: elements, escaped text, and the style sheet.

use std::fmt::{Display, Write};

/// The number of colours; further series begin again with the first.
pub(crate) const COLOURS: usize = 7;

/// The rules for the classes that charts use, in light and dark. The colours are those of Okabe and Ito, which people
/// with colour blindness can tell apart, lightened for dark backgrounds.
pub const STYLE: &str = "\
.fig{font-family:system-ui,sans-serif;font-size:12px}\
.fig-bg{fill:#fff}.fig text{fill:#24292f}.fig .fig-title{font-size:15px;font-weight:600}.fig .fig-muted{fill:#57606a}\
.fig-grid{stroke:#d8dee4;stroke-width:1}.fig-axis{stroke:#8c959f;stroke-width:1}.fig-range{stroke:#24292f;stroke-width:1.5}\
.fig-line{fill:none;stroke-width:2;stroke-linejoin:round}.fig-area{stroke:none;fill-opacity:.18}\
.fig-l0{stroke:#0072b2}.fig-l1{stroke:#d55e00}.fig-l2{stroke:#009e73}.fig-l3{stroke:#aa4499}.fig-l4{stroke:#b58900}.fig-l5{stroke:#3690c0}.fig-l6{stroke:#6e6e6e}\
.fig-f0{fill:#0072b2}.fig-f1{fill:#d55e00}.fig-f2{fill:#009e73}.fig-f3{fill:#aa4499}.fig-f4{fill:#b58900}.fig-f5{fill:#3690c0}.fig-f6{fill:#6e6e6e}\
@media (prefers-color-scheme:dark){\
.fig-bg{fill:#0d1117}.fig text{fill:#e6edf3}.fig .fig-muted{fill:#9198a1}\
.fig-grid{stroke:#2a313c}.fig-axis{stroke:#6e7681}.fig-range{stroke:#e6edf3}\
.fig-l0{stroke:#4aa8e0}.fig-l1{stroke:#ff8c42}.fig-l2{stroke:#3ecf9a}.fig-l3{stroke:#d98cc9}.fig-l4{stroke:#e0b64a}.fig-l5{stroke:#8ecae6}.fig-l6{stroke:#a8a8a8}\
.fig-f0{fill:#4aa8e0}.fig-f1{fill:#ff8c42}.fig-f2{fill:#3ecf9a}.fig-f3{fill:#d98cc9}.fig-f4{fill:#e0b64a}.fig-f5{fill:#8ecae6}.fig-f6{fill:#a8a8a8}}";

/// Which side of its position a text is on.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing in progress.
pub(crate) struct Drawing {
    body: String,
    width: f64,
    height: f64,
    title: String,
}

impl Drawing {
    pub(crate) fn new(title: &str, width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height, title: escape(title) }
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            round(from.0),
            round(from.1),
            round(to.0),
            round(to.1)
        ));
    }

    /// A rectangle with `tip` as its tooltip.
    pub(crate) fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tip: &str) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"><title>{}</title></rect>",
            round(at.0),
            round(at.1),
            round(size.0.max(0.0)),
            round(size.1.max(0.0)),
            escape(tip)
        ));
    }

    /// A dot with `tip` as its tooltip.
    pub(crate) fn dot(&mut self, class: &str, at: (f64, f64), tip: &str) {
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"3\"><title>{}</title></circle>",
            round(at.0),
            round(at.1),
            escape(tip)
        ));
    }

    pub(crate) fn path(&mut self, class: &str, path: &str) {
        self.push(format_args!("<path class=\"{class}\" d=\"{path}\"/>"));
    }

    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            round(at.0),
            round(at.1),
            escape(text)
        ));
    }

    /// A text that reads upwards, centred at `at`.
    pub(crate) fn upward_text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = (round(at.0), round(at.1));
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            escape(text)
        ));
    }

    /// The `<svg>` element, with the style sheet if it is a document of its own.
    pub(crate) fn finish(self, style: bool) -> String {
        let Self { body, width, height, title } = self;
        let style = if style { format!("<style>{STYLE}</style>") } else { String::new() };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" role=\"img\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\"><title>{title}</title>{style}\
             <rect class=\"fig-bg\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }
}

/// Coordinates with one decimal: a tenth of a pixel is invisible, and long fractions make large files.
pub(crate) fn round(value: f64) -> f64 {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// Escapes text for element content and attributes. Characters that XML forbids become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

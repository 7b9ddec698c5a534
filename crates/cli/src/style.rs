//! Colour and width of the output.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The role of a piece of text. Commands choose by role, so that the same thing looks the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The title line.
    Title,
    /// The name of a part: a layer, a section, a conversation.
    Heading,
    /// Offsets and numbering, shown dimmed.
    Quiet,
    /// Raw bytes.
    Bytes,
    /// A value.
    Value,
    /// The meaning of a value.
    Meaning,
    /// The first of two alternatives: a direction, a series of a graph.
    First,
    /// The second of two alternatives.
    Second,
    /// A good result.
    Good,
    /// A warning.
    Warning,
    /// An error.
    Bad,
}

impl Role {
    const fn style(self) -> Style {
        match self {
            Self::Title => Style::new().bold(),
            Self::Heading => AnsiColor::Cyan.on_default().bold(),
            Self::Quiet => Style::new().dimmed(),
            Self::Bytes => AnsiColor::BrightBlue.on_default(),
            Self::Value => AnsiColor::Yellow.on_default(),
            Self::Meaning => Style::new(),
            Self::First => AnsiColor::Cyan.on_default(),
            Self::Second => AnsiColor::BrightBlue.on_default(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Magenta.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// Colours text, or leaves it plain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paint {
    enabled: bool,
}

impl Paint {
    /// No colour, for any output.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { enabled: false };

    fn new(choice: ColorChoice, terminal: bool) -> Self {
        let wanted = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && !colour_is_unwanted(),
        };
        Self { enabled: wanted }
    }

    /// `text` in the style of its role. Width and alignment of the format string apply to the text alone.
    pub(crate) fn role<D: fmt::Display>(self, role: Role, text: D) -> Painted<D> {
        Painted { style: self.enabled.then(|| role.style()), text }
    }
}

/// Whether the user has disabled colour (no-color.org), or the terminal has none.
fn colour_is_unwanted() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// Text with its style: see [`Paint::role`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painted<D> {
    style: Option<Style>,
    text: D,
}

impl<D: fmt::Display> fmt::Display for Painted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(style) = self.style else { return self.text.fmt(f) };
        write!(f, "{style}")?;
        self.text.fmt(f)?;
        write!(f, "{style:#}")
    }
}

/// The outputs of the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// The colours of standard output.
    pub(crate) paint: Paint,
    /// The width of the terminal on standard output; `None` for a file or a pipe, which take any width.
    pub(crate) width: Option<usize>,
    /// The width that reports and drawings are laid out for, wherever they go.
    pub(crate) columns: usize,
    /// The width that long log lines are wrapped to; `None` for a file or a pipe, where one line is one entry, unless
    /// COLUMNS is set.
    pub(crate) log_columns: Option<usize>,
    /// Whether COLUMNS sets the width.
    fixed_width: bool,
    errors: Paint,
}

/// The width of a report that does not go to a terminal, or less if the controlling terminal is narrower: a pager shows
/// it there.
const FILE_COLUMNS: usize = 100;

/// The value of the environment variable COLUMNS, which takes precedence over the terminal (POSIX, 8.3).
fn columns_set(value: Option<&OsStr>) -> Option<usize> {
    value?.to_str()?.trim().parse().ok().filter(|columns| *columns > 0)
}

/// The width to lay out for. `size` is that of the terminal on standard output, or else of any other terminal of the
/// command.
fn columns(set: Option<usize>, terminal: bool, size: Option<usize>) -> usize {
    set.unwrap_or_else(|| match size {
        Some(size) if terminal => size,
        size => size.unwrap_or(FILE_COLUMNS).min(FILE_COLUMNS),
    })
}

impl Screen {
    /// Examines the outputs.
    pub(crate) fn new(choice: ColorChoice) -> Self {
        let terminal = io::stdout().is_terminal();
        // The first of standard output, standard error and standard input that is a terminal.
        let size = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let size = size.filter(|columns| *columns > 0);
        let set = columns_set(std::env::var_os("COLUMNS").as_deref());
        Self {
            paint: Paint::new(choice, terminal),
            width: set.or(size).filter(|_| terminal),
            columns: columns(set, terminal, size),
            log_columns: set.or(size.filter(|_| terminal)),
            fixed_width: set.is_some(),
            errors: Paint::new(choice, io::stderr().is_terminal()),
        }
    }

    /// The width of the terminal on standard output now: it may have changed since the start.
    pub(crate) fn current_width(&self) -> Option<usize> {
        let start = self.width?;
        if self.fixed_width {
            return Some(start);
        }
        let size = terminal_size::terminal_size_of(io::stdout());
        size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0).or(Some(start))
    }

    /// Prints a message on standard error that is not about an error.
    pub(crate) fn note(&self, message: impl fmt::Display) {
        let _ = writeln!(io::stderr(), "{} {message}", self.errors.role(Role::Title, "ferroce:"));
    }

    /// Prints an error message on standard error: what went wrong, where, and what to do.
    pub(crate) fn complain(&self, message: impl fmt::Display) {
        // A failure of this output cannot be reported anywhere.
        let _ = writeln!(io::stderr(), "{} {message}", self.errors.role(Role::Bad, "ferroce:"));
    }
}

/// `text` without control characters: names and comments come from files, and a terminal would obey them.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// `text` cut to `width` columns, with an ellipsis if anything is missing.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    (kept + "…").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_ignores_color_sequences() {
        let paint = Paint { enabled: true };
        assert_eq!(format!("{:<4}|", paint.role(Role::Good, "ab")), "\x1b[32mab  \x1b[0m|");
        assert_eq!(format!("{:<4}|", Paint::PLAIN.role(Role::Good, "ab")), "ab  |");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("é→ b"), "é→ b");
        assert_eq!(printable("a\x1b[2J\u{9b}\nb"), "a?[2J??b");
    }

    #[test]
    fn columns_follow_the_variable_and_the_terminal() {
        let set = |value: &str| columns_set(Some(OsStr::new(value)));
        assert_eq!(
            [set("72"), set("0"), set("wide"), columns_set(None)],
            [Some(72), None, None, None]
        );
        // On a terminal, in a file, in a pager on terminals of 80 and 200 columns.
        assert_eq!(columns(None, true, Some(160)), 160);
        assert_eq!(columns(None, false, None), 100);
        assert_eq!(columns(None, false, Some(80)), 80);
        assert_eq!(columns(None, false, Some(200)), 100);
        for terminal in [true, false] {
            assert_eq!(columns(Some(72), terminal, Some(160)), 72);
        }
    }

    #[test]
    fn text_is_truncated_at_character_boundaries() {
        assert_eq!(fit("→→→", 3), "→→→");
        assert_eq!(fit("→→→→", 3), "→→…");
        assert_eq!(fit("abc", 0), "…");
    }
}

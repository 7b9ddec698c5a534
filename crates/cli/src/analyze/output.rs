//! Printing the lines of a report: colours, character set, no control characters.

use std::fmt;
use std::io::{self, Write};

use ferroce_trace::render::{Line, Tone, ascii};

use crate::style::{Paint, Role};

/// The characters used in drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// Boxes, blocks and arrows.
    Unicode,
    /// ASCII characters.
    Ascii,
}

impl Alphabet {
    /// The user's choice, or the locale's. If no locale is set, as in most containers, UTF-8 is assumed.
    pub(crate) fn choose(ascii: bool) -> Self {
        // POSIX, 8.2: the first variable that is set and not empty counts.
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        Self::of_locale(ascii, locale.as_deref())
    }

    fn of_locale(ascii: bool, locale: Option<&str>) -> Self {
        let utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        if ascii || !utf8 { Self::Ascii } else { Self::Unicode }
    }
}

/// Prints lines.
pub(crate) fn print(
    lines: &[Line],
    paint: Paint,
    alphabet: Alphabet,
    output: &mut impl Write,
) -> io::Result<()> {
    for line in lines {
        for span in &line.spans {
            let text = match alphabet {
                Alphabet::Unicode => span.text.as_str().into(),
                Alphabet::Ascii => std::borrow::Cow::Owned(ascii(&span.text)),
            };
            write!(output, "{}", paint.role(role(span.tone), Printable(&text)))?;
        }
        writeln!(output)?;
    }
    Ok(())
}

fn role(tone: Tone) -> Role {
    match tone {
        Tone::Plain => Role::Meaning,
        Tone::Title => Role::Heading,
        Tone::Faint | Tone::Drawing => Role::Quiet,
        Tone::Strong => Role::Title,
        Tone::Forth => Role::First,
        Tone::Back => Role::Second,
        Tone::Control | Tone::Notice => Role::Value,
        Tone::Good => Role::Good,
        Tone::Warning => Role::Warning,
        Tone::Bad => Role::Bad,
    }
}

/// Text without control characters: file names may contain them, and a terminal would obey them.
pub(super) struct Printable<'a>(pub(super) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains(char::is_control) {
            return f.write_str(self.0);
        }
        self.0.chars().try_for_each(|character| match character.is_control() {
            true => f.write_str("?"),
            false => write!(f, "{character}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(line: Line, alphabet: Alphabet) -> String {
        let mut output = Vec::new();
        print(&[line], Paint::default(), alphabet, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn the_locale_selects_the_alphabet() {
        assert_eq!(Alphabet::of_locale(false, None), Alphabet::Unicode);
        assert_eq!(Alphabet::of_locale(false, Some("de_DE.UTF-8")), Alphabet::Unicode);
        assert_eq!(Alphabet::of_locale(false, Some("C.utf8")), Alphabet::Unicode);
        assert_eq!(Alphabet::of_locale(false, Some("C")), Alphabet::Ascii);
        assert_eq!(Alphabet::of_locale(true, Some("C.UTF-8")), Alphabet::Ascii);
    }

    #[test]
    fn drawing_characters_have_ascii_replacements() {
        let line = Line::of(Tone::Drawing, "├──▶").plain(" 3 µs");
        assert_eq!(printed(line.clone(), Alphabet::Unicode), "├──▶ 3 µs\n");
        assert_eq!(printed(line, Alphabet::Ascii), "+--> 3 us\n");
    }

    #[test]
    fn control_characters_are_replaced() {
        let line = Line::of(Tone::Strong, "a\u{1b}[2J\u{9b}b\nc");
        assert_eq!(printed(line, Alphabet::Unicode), "a?[2J?b?c\n");
    }
}

//! Frames given as hexadecimal digits, in common formats.

use std::fmt;

/// Why text is not a frame in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HexError {
    /// It contains no digit.
    Empty,
    /// It contains a character that is neither a digit nor a separator.
    Foreign {
        /// The character.
        character: char,
        /// Its position in characters, from 1.
        at: usize,
    },
    /// The last byte has only one digit.
    Odd {
        /// The number of digits.
        digits: usize,
    },
}

/// Parses the bytes. Spaces, newlines, colons, commas, dashes and underscores may separate them, `0x` may precede them,
/// and lines may start with offsets as tcpdump prints them (`0x0010:`).
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, HexError> {
    let mut digits = Vec::new();
    let mut characters = text.chars().enumerate().peekable();
    let mut line_starts = true;
    while let Some((at, character)) = characters.next() {
        let starts = line_starts;
        line_starts = character == '\n' || starts && character.is_whitespace();
        match character {
            '0' if matches!(characters.peek(), Some((_, 'x' | 'X'))) => {
                characters.next();
                if starts {
                    skip_offset(&mut characters);
                }
            }
            ':' | ',' | '-' | '_' => {}
            space if space.is_whitespace() => {}
            _ => match character.to_digit(16) {
                Some(digit) => digits.push(digit as u8),
                None => return Err(HexError::Foreign { character, at: at + 1 }),
            },
        }
    }
    match digits.len() {
        0 => Err(HexError::Empty),
        count if count % 2 == 1 => Err(HexError::Odd { digits: count }),
        _ => Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()),
    }
}

/// Skips the rest of an offset: digits followed by a colon and a space. Anything else is left in place.
fn skip_offset<I>(characters: &mut std::iter::Peekable<I>)
where
    I: Iterator<Item = (usize, char)> + Clone,
{
    let mut ahead = characters.clone();
    let mut last = None;
    for (_, character) in ahead.by_ref() {
        if !character.is_ascii_hexdigit() {
            last = Some(character);
            break;
        }
    }
    if last == Some(':') && ahead.peek().is_some_and(|(_, next)| next.is_whitespace()) {
        *characters = ahead;
    }
}

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no hexadecimal digits"),
            Self::Foreign { character, at } => {
                write!(f, "{character:?} at character {at} is not a hexadecimal digit")
            }
            Self::Odd { digits } => {
                write!(
                    f,
                    "odd number of hexadecimal digits ({digits}): the last byte is incomplete"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HexError, parse};

    #[test]
    fn all_notations_give_the_same_bytes() {
        let expected = Ok(vec![0x52, 0x54, 0x00, 0x0a]);
        for text in [
            "5254000a",
            "5254000A",
            "0x5254000a",
            "52:54:00:0a",
            "52 54\n00 0a\n",
            "0x52, 0x54, 0x00, 0x0a",
            "52-54-00-0a",
            "5254_000a",
            "\t0x0000:  5254\n\t0x0002:  000a",
            " 0x5254 0x000a",
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn errors_name_the_position() {
        assert_eq!(parse(" \n"), Err(HexError::Empty));
        assert_eq!(parse("0x"), Err(HexError::Empty));
        assert_eq!(parse("525"), Err(HexError::Odd { digits: 3 }));
        assert_eq!(parse("52 5g"), Err(HexError::Foreign { character: 'g', at: 5 }));
        assert_eq!(parse("é"), Err(HexError::Foreign { character: 'é', at: 1 }));
    }
}

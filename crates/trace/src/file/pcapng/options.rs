//! The options at the end of a pcapng block (section 3.5).

use std::borrow::Cow;

use super::option_code;
use crate::file::MAX_TEXT_LEN;
use crate::file::bytes::{ByteOrder, padded};

/// Iterates over the options of a block, up to the end or to the first damaged one.
pub(super) struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
    damaged: bool,
}

impl<'a> Options<'a> {
    pub(super) fn new(order: ByteOrder, bytes: &'a [u8]) -> Options<'a> {
        Options { order, rest: bytes, damaged: false }
    }

    /// Whether an option visited so far exceeds its block.
    pub(super) fn damaged(&self) -> bool {
        self.damaged
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        // Section 3.5: the list may end with the block instead of opt_endofopt.
        let (header, rest) = self.rest.split_first_chunk::<4>()?;
        let code = self.order.u16(header, 0);
        let length = usize::from(self.order.u16(header, 2));
        self.rest = &[];
        if code == option_code::END {
            return None;
        }
        let Some(value) = rest.get(..length) else {
            self.damaged = true;
            return None;
        };
        self.rest = rest.get(padded(length)..).unwrap_or(&[]);
        Some((code, value))
    }
}

/// An option's value as text. Section 3.5: a zero byte ends it. Section 3.6.3: invalid UTF-8 may be
/// replaced.
pub(super) fn text(value: &[u8]) -> Cow<'_, str> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end])
}

/// An option's value as owned text, truncated to [`MAX_TEXT_LEN`].
pub(super) fn kept_text(value: &[u8]) -> String {
    let text = text(value);
    let mut end = text.len().min(MAX_TEXT_LEN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Appends a comment to those of the same block. Section 3.5: there can be several.
pub(super) fn add_comment<'a>(comments: &mut Option<Cow<'a, str>>, value: &'a [u8]) {
    let comment = text(value);
    match comments {
        None => *comments = Some(comment),
        Some(comments) => {
            let comments = comments.to_mut();
            comments.push('\n');
            comments.push_str(&comment);
        }
    }
}

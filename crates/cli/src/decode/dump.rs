//! Hex dumps of unstructured bytes.

use std::io::{self, Write};

use crate::style::{Paint, Role};

const PER_LINE: usize = 16;

/// The number of payload bytes shown by default.
pub(crate) const SHORT: usize = 64;

/// Prints a hex dump, each line with the offset of its first byte. Without `all`, only the first bytes, and no trailing
/// zero padding.
pub(crate) fn write(
    out: &mut dyn Write,
    paint: Paint,
    (offset, data): (usize, &[u8]),
    offset_width: usize,
    all: bool,
) -> io::Result<()> {
    let used = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let shown = match all {
        true => data.len(),
        // Up to the end of the line, so that a few zero bytes of data stay visible.
        false => used.next_multiple_of(PER_LINE).min(SHORT).min(data.len()),
    };
    for (line, chunk) in data[..shown].chunks(PER_LINE).enumerate() {
        let at = paint.role(Role::Quiet, offset + line * PER_LINE);
        let text: String = chunk.iter().map(|&byte| printable(byte)).collect();
        writeln!(
            out,
            "{at:>offset_width$}  {:<48}  {}",
            paint.role(Role::Bytes, digits(chunk)),
            paint.role(Role::Value, text)
        )?;
    }
    let left = &data[shown..];
    // The heading says so if all bytes are zero.
    if shown > 0 && !left.is_empty() {
        let what = if left.iter().all(|&byte| byte == 0) { "zero bytes" } else { "more bytes" };
        let note = format!("… {} {what}", left.len());
        let hint = if what == "more bytes" { ", shown by --all" } else { "" };
        writeln!(out, "{:offset_width$}  {}", "", paint.role(Role::Quiet, note + hint))?;
    }
    Ok(())
}

/// Two digits per byte, in two groups of eight.
fn digits(chunk: &[u8]) -> String {
    let mut text = String::with_capacity(3 * PER_LINE + 1);
    for (at, byte) in chunk.iter().enumerate() {
        text.push_str(match at {
            0 => "",
            8 => "  ",
            _ => " ",
        });
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::style::Paint;

    fn dump(data: &[u8], all: bool) -> String {
        let mut out = Vec::new();
        write(&mut out, Paint::PLAIN, (58, data), 4, all).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_shows_hex_digits_and_characters() {
        assert_eq!(
            dump(b"RDMA over\nUDP\x7f\xff!", true),
            "  58  52 44 4d 41 20 6f 76 65  72 0a 55 44 50 7f ff 21  RDMA over.UDP..!\n"
        );
        assert_eq!(dump(b"abc", true), format!("  58  {:<48}  abc\n", "61 62 63"));
    }

    #[test]
    fn omitted_bytes_are_counted() {
        let mut data = vec![1; 20];
        data.resize(200, 0);
        assert!(dump(&data, false).ends_with("\n      … 168 zero bytes\n"));
        assert_eq!(dump(&data, false).lines().count(), 3);
        data[199] = 1;
        assert!(dump(&data, false).ends_with("\n      … 136 more bytes, shown by --all\n"));
        assert_eq!(dump(&data, true).lines().count(), 13);
        assert_eq!(dump(&[0; 40], false), "");
        assert_eq!(dump(&[], false), "");
    }
}

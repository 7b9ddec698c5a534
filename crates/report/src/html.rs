//! The page: one HTML file with its style, its script and its data.
//!
//! Captures are hostile input. All data is JSON in a `<script type="application/json">` element in which no character can
//! end the element; the script creates text nodes only, never markup from data. The Content-Security-Policy allows the
//! page's own script and style, by hash, and nothing else: no network, no images, no event attributes.

use std::io::{self, Write};

use crate::model::Page;
use crate::sha256;

const STYLE: &str = include_str!("../page/style.css");

/// The parts of the script, in order. Together they are one function body.
const SCRIPT: &[&str] = &[
    include_str!("../page/base.js"),
    include_str!("../page/charts.js"),
    include_str!("../page/packet.js"),
    include_str!("../page/ladder.js"),
    include_str!("../page/overview.js"),
    include_str!("../page/traffic.js"),
    include_str!("../page/main.js"),
];

/// The limit that a page is built for: the packets of [`crate::Options::packet_bytes`], and room for everything else.
pub const MAX_PAGE: usize = 20 << 20;

/// Writes the page.
pub fn page(page: &Page, output: &mut impl Write) -> io::Result<()> {
    let script = format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPT.concat());
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        sha256::source(&script),
        sha256::source(STYLE)
    );
    write!(
        output,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Ferroce report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page draws a capture with JavaScript. It loads nothing from the network.</noscript>\n\
         <script type=\"application/json\" id=\"data\">"
    )?;
    serde_json::to_writer(Escape(&mut *output), page)?;
    write!(output, "</script>\n<script>{script}</script>\n</body>\n</html>\n")
}

/// Replaces the characters of JSON that mean something in HTML by their escapes. They occur in strings only.
struct Escape<W>(W);

impl<W: Write> Write for Escape<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut plain = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let (escape, len): (&[u8], _) = match byte {
                b'<' => (b"\\u003c", 1),
                b'>' => (b"\\u003e", 1),
                b'&' => (b"\\u0026", 1),
                // Line and paragraph separators, which ended lines in scripts until ES2019. The serializer does not
                // divide characters.
                0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => (b"\\u2028", 3),
                0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => (b"\\u2029", 3),
                _ => continue,
            };
            self.0.write_all(&bytes[plain..at])?;
            self.0.write_all(escape)?;
            plain = at + len;
        }
        self.0.write_all(&bytes[plain..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FilePage, SCHEMA};

    fn write(path: &str) -> String {
        let file = FilePage { path: path.to_owned(), ..FilePage::default() };
        let model = Page { schema: SCHEMA, version: "0", files: vec![file] };
        let mut output = Vec::new();
        page(&model, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn data_cannot_end_its_element() {
        let hostile = "</script><script>alert(1)</script><!--&\u{2028}\u{2029}\"\\";
        let html = write(hostile);
        assert_eq!(html.matches("<script").count(), 2, "data and script");
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains("alert(1)</script>") && !html.contains("<!--"));
        assert!(!html.contains('\u{2028}') && !html.contains('\u{2029}'));
        let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["files"][0]["path"], hostile);
    }

    /// A `<` in the script would not end it, but `</script` and `<!--` would.
    #[test]
    fn the_script_is_safe_to_embed_and_uses_no_markup_from_strings() {
        for part in SCRIPT {
            for word in [
                "</script",
                "<!--",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "http:",
                "https:",
            ] {
                let allowed = part.matches("http://www.w3.org/2000/svg").count();
                let found = part.matches(word).count();
                assert!(found == 0 || word == "http:" && found == allowed, "{word}");
            }
        }
        assert!(
            !STYLE.contains("url(") && !STYLE.contains("</style") && !STYLE.contains("@import")
        );
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        let html = write("x");
        assert!(html.contains("default-src 'none'"));
        for word in ["src=", "href=", "<link", "<img", "<iframe"] {
            assert!(!html.split("<script>").next().unwrap().contains(word), "{word}");
        }
    }
}

//! The decoded tree as text: columns of offset, bytes, field, value and meaning.

use std::io::{self, Write};

use ferroce_trace::dissect::{Field, Layer, Tree, Verdict};
use ferroce_trace::render::text::wrap;

use super::dump;
use crate::style::{Paint, Role, Screen, fit};

/// Bytes of a field per line, and on a narrow terminal.
const BYTES_PER_LINE: usize = 8;
const NARROW_BYTES_PER_LINE: usize = 4;
/// Terminals with fewer columns count as narrow.
const NARROW: usize = 110;
/// Values up to this length determine the column width; longer ones shift what follows.
const VALUE_LIMIT: usize = 26;
/// The bytes and value of a field are cut at this length by default.
const LONG_FIELD: usize = 16;
/// The minimum width for an explanation.
const MIN_NOTE_WIDTH: usize = 16;

/// Writes trees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeWriter {
    paint: Paint,
    width: Option<usize>,
    all: bool,
}

/// The column widths: the same for all layers of a tree, if there is room.
struct Columns {
    offset: usize,
    bytes_per_line: usize,
    name: usize,
    value: usize,
}

impl Columns {
    /// Two digits per byte of a line, and the spaces between them.
    fn bytes_width(&self) -> usize {
        self.bytes_per_line * 3 - 1
    }
}

impl TreeWriter {
    /// A writer for this screen; with `all`, it includes reserved fields and whole payloads.
    pub(crate) fn new(screen: &Screen, all: bool) -> Self {
        Self { paint: screen.paint, width: screen.width.filter(|_| !all), all }
    }

    /// Prints a tree: its summary, its layers, and its problems.
    pub(crate) fn write(&self, out: &mut dyn Write, tree: &Tree<'_>) -> io::Result<()> {
        let fields = tree.layers.iter().flat_map(|layer| &layer.fields);
        let columns = self.columns(tree.captured_len, fields);
        if let (Some(source), Some(destination)) = (tree.source, tree.destination) {
            writeln!(out, "{source} → {destination}")?;
        }
        for part in wrap(&tree.summary, self.width.unwrap_or(usize::MAX)) {
            writeln!(out, "{}", self.paint.role(Role::Title, part))?;
        }
        for layer in &tree.layers {
            writeln!(out)?;
            match self.is_narrow() {
                true => self.layer(out, layer, &self.columns(tree.captured_len, &layer.fields))?,
                false => self.layer(out, layer, &columns)?,
            }
        }
        if !tree.problems.is_empty() {
            writeln!(out)?;
        }
        for problem in &tree.problems {
            let text = format!("✗ at byte {}: {}", problem.offset, problem.message);
            writeln!(out, "{}", self.paint.role(Role::Bad, text))?;
        }
        Ok(())
    }

    fn shows(&self, field: &Field<'_>) -> bool {
        self.all || !field.hidden
    }

    fn is_narrow(&self) -> bool {
        self.width.is_some_and(|width| width < NARROW)
    }

    /// On a narrow terminal, columns are as narrow as possible.
    fn columns<'f>(
        &self,
        frame_len: usize,
        fields: impl IntoIterator<Item = &'f Field<'f>>,
    ) -> Columns {
        let shown: Vec<_> = fields.into_iter().filter(|field| self.shows(field)).collect();
        let values = shown.iter().map(|field| field.value.chars().count());
        let value = values.filter(|&len| len <= VALUE_LIMIT).max().unwrap_or(0);
        let narrow = self.is_narrow();
        Columns {
            offset: 2 + frame_len.to_string().len().max(3),
            bytes_per_line: if narrow { NARROW_BYTES_PER_LINE } else { BYTES_PER_LINE },
            name: shown.iter().map(|field| field.name.len()).max().unwrap_or(0),
            value: if narrow { 0 } else { value },
        }
    }

    fn layer(&self, out: &mut dyn Write, layer: &Layer<'_>, columns: &Columns) -> io::Result<()> {
        let last = layer.offset + layer.length.saturating_sub(1);
        let place = match layer.length {
            1 => format!("byte {last}"),
            _ => format!("bytes {}–{last}", layer.offset),
        };
        writeln!(
            out,
            "{}  {}  {}",
            self.paint.role(Role::Heading, layer.name),
            self.paint.role(Role::Quiet, place),
            layer.summary
        )?;
        for field in layer.fields.iter().filter(|field| self.shows(field)) {
            self.field(out, field, columns)?;
        }
        match layer.data {
            Some(data) => {
                dump::write(out, self.paint, (layer.offset, data), columns.offset, self.all)
            }
            None => Ok(()),
        }
    }

    fn field(&self, out: &mut dyn Write, field: &Field<'_>, columns: &Columns) -> io::Result<()> {
        let Columns { offset, bytes_per_line, name: name_width, value: value_width } = *columns;
        let bytes_width = columns.bytes_width();
        let mut lines = match field.is_bits() {
            true => bit_lines(field, bytes_per_line / 4),
            false => byte_lines(field.bytes, bytes_per_line),
        };
        let long = !self.all && field.bytes.len() > LONG_FIELD;
        if long {
            lines.truncate(1);
        }
        let value = match long {
            true => fit(&field.value, VALUE_LIMIT),
            false => field.value.as_str().into(),
        };
        let (meaning, note) = self.explanation(field, columns, value.chars().count());
        let mut row = format!(
            "{:>offset$}  {:<bytes_width$}  {:<name_width$}  {:<value_width$}",
            self.paint.role(Role::Quiet, field.offset),
            self.paint.role(Role::Bytes, lines.first().map_or("", |line| line)),
            field.name.replace('_', " "),
            self.paint.role(Role::Value, &value),
        );
        if !meaning.is_empty() {
            row.push_str(&format!("  {}", self.paint.role(meaning_role(field), meaning)));
        }
        if !note.is_empty() {
            let between = if meaning.is_empty() { "  " } else { " · " };
            row.push_str(&format!("{}", self.paint.role(Role::Quiet, between.to_owned() + &note)));
        }
        writeln!(out, "{}", row.trim_end())?;
        for line in lines.iter().skip(1) {
            writeln!(out, "{:>offset$}  {}", "", self.paint.role(Role::Bytes, line))?;
        }
        Ok(())
    }

    /// The meaning of the value and the purpose of the field; the latter cut to the width of the terminal.
    fn explanation<'f>(
        &self,
        field: &'f Field<'_>,
        columns: &Columns,
        value_len: usize,
    ) -> (&'f str, String) {
        let meaning = field.meaning.as_str();
        let doc = if says_more(field) { field.doc } else { "" };
        // The three columns to the left with their gaps, and the separator of the two parts.
        let value_len = value_len.max(columns.value);
        let before = columns.offset + columns.bytes_width() + columns.name + value_len + 8;
        let separator = if meaning.is_empty() { 0 } else { 3 };
        let used = before + meaning.chars().count() + separator;
        match self.width.map(|width| width.saturating_sub(used)) {
            None => (meaning, doc.to_owned()),
            Some(room) if room < MIN_NOTE_WIDTH.min(doc.chars().count()) => {
                (meaning, String::new())
            }
            Some(room) => (meaning, fit(doc, room).into_owned()),
        }
    }
}

/// Whether a field's description says more than its name.
fn says_more(field: &Field<'_>) -> bool {
    let letters = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
    };
    letters(field.doc) != letters(field.name)
}

fn meaning_role(field: &Field<'_>) -> Role {
    match field.verdict {
        None => Role::Meaning,
        Some(Verdict::Correct) => Role::Good,
        Some(Verdict::Wrong) => Role::Bad,
        Some(Verdict::Unverifiable) => Role::Warning,
    }
}

fn byte_lines(bytes: &[u8], per_line: usize) -> Vec<String> {
    let line = |chunk: &[u8]| {
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.join(" ")
    };
    bytes.chunks(per_line).map(line).collect()
}

/// The bits of a field that starts or ends within a byte, with dots for its neighbours.
fn bit_lines(field: &Field<'_>, per_line: usize) -> Vec<String> {
    let bits: Vec<char> = field
        .bits()
        .map(|bit| match bit {
            None => '.',
            Some(false) => '0',
            Some(true) => '1',
        })
        .collect();
    let byte = |byte: &[char]| byte.iter().collect::<String>();
    bits.chunks(8 * per_line)
        .map(|line| line.chunks(8).map(byte).collect::<Vec<_>>().join(" "))
        .collect()
}

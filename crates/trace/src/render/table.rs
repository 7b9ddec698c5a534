//! Tables with aligned columns.

use super::text::{Line, Tone, width, wrap};

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
    /// For sentences: takes the rest of the line and wraps. Last column only.
    Rest,
}

/// Rows of aligned cells below a header line.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Line>>,
}

/// Left indent.
const INDENT: usize = 2;

/// Columns between two cells.
const GAP: usize = 2;

/// Minimum width of an [`Align::Rest`] column next to the others; if there is less, it moves to the next line.
const MIN_REST: usize = 36;

/// Indent of such a column on the next line.
const WRAPPED_INDENT: usize = 6;

impl Table {
    /// Creates a table with these columns. If all names are empty, no header is drawn.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells stay empty.
    pub fn row(&mut self, cells: Vec<Line>) {
        self.rows.push(cells);
    }

    /// Drops columns until the table fits in `columns`, in the order of `optional`.
    #[must_use]
    pub fn without_columns_that_do_not_fit(mut self, columns: usize, optional: &[&str]) -> Self {
        for name in optional {
            if let Some(at) = self.columns.iter().position(|(column, _)| column == name) {
                self = self.without_if_too_wide(columns, at);
            }
        }
        self
    }

    /// Drops the column at index `at` if the table is wider than `columns`.
    #[must_use]
    pub fn without_if_too_wide(mut self, columns: usize, at: usize) -> Self {
        if self.width() > columns && at < self.columns.len() {
            self.columns.remove(at);
            for row in self.rows.iter_mut().filter(|row| row.len() > at) {
                row.remove(at);
            }
        }
        self
    }

    /// Width of the widest row, without wrapping.
    fn width(&self) -> usize {
        let cells: usize = (0..self.columns.len()).map(|at| self.column_width(at) + GAP).sum();
        (INDENT + cells).saturating_sub(GAP)
    }

    /// Draws the table, wrapping sentences to `columns`.
    pub fn lines(&self, columns: usize) -> Vec<Line> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.column_width(at)).collect();
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        if self.columns.iter().any(|(name, _)| !name.is_empty()) {
            let names: Vec<_> =
                self.columns.iter().map(|(name, _)| Line::of(Tone::Faint, *name)).collect();
            self.draw(&names, &widths, columns, &mut lines);
        }
        for row in &self.rows {
            self.draw(row, &widths, columns, &mut lines);
        }
        lines
    }

    fn column_width(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at)).map(Line::width);
        cells.chain([width(self.columns[at].0)]).max().unwrap_or(0)
    }

    fn draw(&self, row: &[Line], widths: &[usize], columns: usize, lines: &mut Vec<Line>) {
        let mut line = Line::new();
        let mut start = INDENT;
        let mut rest = Vec::new();
        for ((cell, &(_, align)), &column) in row.iter().zip(&self.columns).zip(widths) {
            if cell.width() > 0 {
                match align {
                    Align::Left => line.pad_to(start),
                    Align::Right => line.pad_to(start + column - cell.width()),
                    Align::Rest => {
                        let available = columns.saturating_sub(start);
                        if cell.width() > available && available < MIN_REST {
                            lines.push(std::mem::take(&mut line));
                            start = WRAPPED_INDENT;
                        }
                        rest = wrapped(cell, columns.saturating_sub(start).max(MIN_REST));
                        break;
                    }
                }
                line.append(cell.clone());
            }
            start += column + GAP;
        }
        if rest.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for part in rest {
            line.pad_to(start);
            line.append(part);
            lines.push(std::mem::take(&mut line));
        }
    }
}

/// Wraps a cell to `available` columns. A wrapped cell gets the tone of its first span.
fn wrapped(cell: &Line, available: usize) -> Vec<Line> {
    if cell.width() <= available {
        return vec![cell.clone()];
    }
    let tone = cell.spans.first().map_or(Tone::Plain, |span| span.tone);
    wrap(&cell.to_string(), available).into_iter().map(|text| Line::of(tone, text)).collect()
}

/// A plain cell.
pub fn cell(text: impl Into<String>) -> Line {
    Line::of(Tone::Plain, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(table: &Table, columns: usize) -> String {
        table.lines(columns).iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn aligns_columns_and_wraps_sentences() {
        let mut table =
            Table::new(&[("kind", Align::Left), ("count", Align::Right), ("meaning", Align::Rest)]);
        table.row(vec![cell("timeout"), cell("3"), cell("no response arrived, so it was resent")]);
        table.row(vec![cell("cnp"), cell("1,000"), cell("slow down")]);
        table.row(vec![cell("alone")]);
        assert_eq!(
            drawn(&table, 54),
            "  kind     count  meaning
  timeout      3  no response arrived, so it was
                  resent
  cnp      1,000  slow down
  alone
"
        );
    }

    #[test]
    fn drops_columns_that_do_not_fit() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Left), ("c", Align::Left)]);
        table.row(vec![cell("aaaa"), cell("bbbb"), cell("cccc")]);
        let at = |columns| {
            let table = table.clone().without_columns_that_do_not_fit(columns, &["b", "a"]);
            drawn(&table, columns).lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(at(18), "  aaaa  bbbb  cccc");
        assert_eq!(at(17), "  aaaa  cccc");
        assert_eq!(at(11), "  cccc");
        assert_eq!(at(0), "  cccc");
    }

    #[test]
    fn a_table_without_names_has_no_header() {
        let mut table = Table::new(&[("", Align::Left), ("", Align::Right)]);
        table.row(vec![cell("a"), cell("1")]);
        assert_eq!(drawn(&table, 80), "  a  1\n");
    }

    #[test]
    fn moves_sentences_to_the_next_line_if_space_is_short() {
        let mut table = Table::new(&[("", Align::Left), ("", Align::Rest)]);
        table.row(vec![cell("abcdefgh"), cell("a sentence of more than a few words")]);
        let below = "  abcdefgh\n      a sentence of more than a few words\n";
        assert_eq!((drawn(&table, 40).as_str(), drawn(&table, 0).as_str()), (below, below));
    }
}

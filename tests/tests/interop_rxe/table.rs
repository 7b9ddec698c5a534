//! The matrices in `docs/interop.md`: a row for each program and role, a column for each address family and path MTU.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cells::{Column, Role};

/// The text of a cell that has run, and of one that has not.
const OK: &str = "ok";
const NOT_RUN: &str = "—";

/// A table of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// The markers of its begin and end.
    pub(crate) name: &'static str,
    columns: &'static [Column],
}

/// Our program with Debian's programs.
pub(crate) const MATRIX: Table = Table {
    name: "matrix",
    columns: &[
        Column { ipv6: false, mtu: 1024 },
        Column { ipv6: true, mtu: 1024 },
        Column { ipv6: false, mtu: 4096 },
        Column { ipv6: true, mtu: 4096 },
    ],
};

/// Debian's programs with each other, on our library here.
pub(crate) const PROGRAMS: Table = Table {
    name: "programs",
    columns: &[Column { ipv6: false, mtu: 1024 }, Column { ipv6: true, mtu: 4096 }],
};

/// Debian's librdmacm programs with each other, on our library here.
pub(crate) const MANAGED: Table = Table {
    name: "managed",
    columns: &[Column { ipv6: false, mtu: 1024 }, Column { ipv6: true, mtu: 4096 }],
};

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPv{}, {}", if self.ipv6 { 6 } else { 4 }, self.mtu)
    }
}

/// A program, and the side that is its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    program: String,
    asks: &'static str,
}

impl Row {
    pub(crate) fn new(program: &str, asks: Role) -> Self {
        let asks = match asks {
            Role::Theirs => "rdma_rxe",
            Role::Ours => "Ferroce",
        };
        Self { program: program.to_owned(), asks }
    }
}

impl Row {
    /// Returns what rows with other sizes and options have in common: the program, and whether packets are lost.
    pub(crate) fn kind(&self) -> String {
        let lossy = if self.program.contains("lost") { ", lossy" } else { "" };
        match self.program.split_once(' ') {
            Some((program, _)) if program.starts_with('`') => format!("{program}{lossy}"),
            _ => self.program.clone(),
        }
    }

    /// 0 if rdma_rxe is the client, 1 if Ferroce is.
    pub(crate) fn asker(&self) -> usize {
        usize::from(self.asks == "Ferroce")
    }

    /// The program, without the client side.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {}", self.program, self.asks)
    }
}

/// The results of the rows.
pub(crate) type Rows = Vec<(Row, Result<(), String>)>;

/// Formats one column, for the output of the test.
pub(crate) fn draw(column: Column, rows: &Rows) -> String {
    let mut text = format!("{:<64} | {:<8} | {column}\n", "program", "client");
    for (Row { program, asks }, result) in rows {
        let verdict = if result.is_ok() { OK } else { "FAILED" };
        text += &format!("{program:<64} | {asks:<8} | {verdict}\n");
    }
    text
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/interop.md")
}

/// Parses the cells of a row in the document.
fn cells_of(lines: &[String], row: &Row) -> Option<Vec<String>> {
    let start = format!("| {row} |");
    let rest = lines.iter().find_map(|line| line.strip_prefix(&start))?;
    let cells = rest.trim().trim_end_matches('|').split('|');
    Some(cells.map(|cell| cell.trim().to_owned()).collect())
}

impl Table {
    fn marks(&self) -> (String, String) {
        (format!("<!-- {} -->", self.name), format!("<!-- end of {} -->", self.name))
    }

    /// Splits the document: before the table, the table's lines without its header, after the table.
    fn read(&self) -> (String, Vec<String>, String) {
        let text = fs::read_to_string(path()).expect("docs/interop.md");
        let (begin, end) = self.marks();
        let (before, rest) = text.split_once(&begin).expect("the table's mark in docs/interop.md");
        let (table, after) = rest.split_once(&end).expect("the table's end in docs/interop.md");
        let lines = table.lines().filter(|line| line.starts_with('|')).skip(2);
        (before.to_owned(), lines.map(str::to_owned).collect(), after.to_owned())
    }

    /// Compares a column that passed with the document; with `FERROCE_UPDATE_DOCS` in the environment, writes it.
    /// Columns are separate tests: they must be written one after the other.
    pub(crate) fn document(&self, column: Column, rows: &Rows) {
        let (before, lines, after) = self.read();
        let columns = self.columns;
        let index = columns.iter().position(|one| *one == column).expect("a column of the table");
        if env::var_os("FERROCE_UPDATE_DOCS").is_none() {
            for (row, _) in rows {
                let cell = cells_of(&lines, row).and_then(|cells| cells.get(index).cloned());
                assert_eq!(cell.as_deref(), Some(OK), "{row}: docs/interop.md says otherwise");
            }
            // Rows that a column cannot have are at the table's end.
            for line in lines.iter().skip(rows.len()) {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let cell = cells.get(index + 3).copied();
                assert_eq!(
                    cell,
                    Some(NOT_RUN),
                    "docs/interop.md has a row that does not exist: {line}"
                );
            }
            return;
        }
        let head: Vec<String> = columns.iter().map(Column::to_string).collect();
        let mut table = format!("| program | client | {} |\n", head.join(" | "));
        table += &format!("|---|---|{}\n", "---|".repeat(columns.len()));
        for (row, _) in rows {
            let mut cells = cells_of(&lines, row).unwrap_or_default();
            cells.resize(columns.len(), NOT_RUN.to_owned());
            cells[index] = OK.to_owned();
            table += &format!("| {row} | {} |\n", cells.join(" | "));
        }
        let known =
            |line: &&String| rows.iter().any(|(row, _)| line.starts_with(&format!("| {row} |")));
        // A column that was written before keeps its cells.
        for line in lines.iter().filter(|line| !known(line) && line.contains(OK)) {
            table += &format!("{line}\n");
        }
        let (begin, end) = self.marks();
        let text = format!("{before}{begin}\n{table}{end}{after}");
        fs::write(path(), text).expect("docs/interop.md");
    }
}

//! Packets by protocol and by opcode.

use crate::analysis::report::{FileReport, HierarchyNode};
use crate::render::table::{Align, Table, cell};
use crate::render::text::{Line, Tone};
use crate::render::{bar, units};

/// Width of the longest bar: the space left next to the longest names and numbers.
fn longest_bar(columns: usize) -> usize {
    columns.saturating_sub(72).clamp(8, 20)
}

/// The protocol hierarchy as a tree.
pub(super) fn hierarchy(file: &FileReport, columns: usize) -> Vec<Line> {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("packets", Align::Right),
        ("", Align::Right),
        ("bytes", Align::Right),
        ("", Align::Right),
        ("", Align::Left),
    ]);
    for root in &file.hierarchy {
        branch(root, file, ("", ""), longest_bar(columns), &mut table);
    }
    if file.hierarchy.is_empty() {
        return Vec::new();
    }
    // On a narrow terminal, drop the bars first, then the percentages from the right.
    let table =
        [5, 4, 2].into_iter().fold(table, |table, at| table.without_if_too_wide(columns, at));
    table.lines(columns)
}

/// Adds a protocol and its children. `stem` is drawn before its name, `below` before those of its children.
fn branch(
    node: &HierarchyNode,
    file: &FileReport,
    (stem, below): (&str, &str),
    bar: usize,
    table: &mut Table,
) {
    table.row(vec![
        Line::of(Tone::Drawing, stem).plain(node.name),
        cell(units::count(node.packets)),
        Line::of(Tone::Faint, units::percent(node.packets, file.packets)),
        cell(units::bytes(node.bytes)),
        Line::of(Tone::Faint, units::percent(node.bytes, file.bytes)),
        Line::of(Tone::Forth, bar::horizontal(node.bytes as f64, file.bytes as f64, bar)),
    ]);
    for (at, child) in node.children.iter().enumerate() {
        let last = at + 1 == node.children.len();
        let (own, further) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let stems = (&*format!("{below}{own}"), &*format!("{below}{further}"));
        branch(child, file, stems, bar, table);
    }
}

/// Packets by opcode, most frequent first.
pub(super) fn opcodes(file: &FileReport, columns: usize) -> Vec<Line> {
    let total = file.opcodes.values().sum::<u64>();
    let most = file.opcodes.values().copied().max().unwrap_or(0);
    let mut opcodes: Vec<_> = file.opcodes.iter().collect();
    opcodes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut table =
        Table::new(&[("", Align::Left), ("", Align::Right), ("", Align::Right), ("", Align::Left)]);
    for (name, &count) in opcodes {
        table.row(vec![
            cell(name),
            cell(units::count(count)),
            Line::of(Tone::Faint, units::percent(count, total)),
            Line::of(Tone::Forth, bar::horizontal(count as f64, most as f64, longest_bar(columns))),
        ]);
    }
    table.without_if_too_wide(columns, 3).lines(columns)
}

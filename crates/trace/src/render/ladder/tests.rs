use super::*;
use crate::render::samples::{drawn, lossy};

fn of_first(file: &FileReport, columns: usize, rows: Option<usize>) -> String {
    drawn(&ladder(file, &file.conversations[0], columns, rows))
}

#[test]
fn loss_and_recovery() {
    assert_eq!(of_first(&lossy(), 90, Some(40)), "");
}

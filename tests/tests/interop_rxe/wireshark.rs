//! Compares our dissection with tshark's for captures made here, with the code of the test `tests/tests/tshark`.
#![allow(unreachable_pub, dead_code)] // That test uses all of it.

#[path = "../tshark/compare.rs"]
mod compare;
#[path = "../tshark/ours.rs"]
mod ours;
#[path = "../tshark/pdml.rs"]
mod pdml;
#[path = "../tshark/table.rs"]
mod table;
#[path = "../tshark/table_cm.rs"]
mod table_cm;
#[path = "../tshark/value.rs"]
mod value;

use std::path::Path;

use ferroce_tests::{capture, tool};

/// Lets tshark read a capture, and returns the number of values that agree. Panics if one differs, or if tshark reports
/// a malformed packet.
pub(crate) fn agrees(path: &Path) -> usize {
    let theirs = pdml::parse(&tool::tshark_pdml(path));
    let outcome = compare::Comparer::new().file(&capture::read(path), &theirs);
    let differences = &outcome.differences;
    assert!(differences.is_empty(), "{}: {}", path.display(), differences.join("\n"));
    outcome.values
}

//! The comparison of our dissection with tshark's, which is a test of its own (`tests/tests/tshark`), for what was recorded
//! here.
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

/// Has tshark read a capture, and returns how many values are the same to it and to us. Panics when one is not, or when
/// tshark takes a packet for a malformed one.
pub(crate) fn agrees(path: &Path) -> usize {
    let theirs = pdml::parse(&tool::tshark_pdml(path));
    let outcome = compare::Comparer::new().file(&capture::read(path), &theirs);
    let differences = &outcome.differences;
    assert!(differences.is_empty(), "{}: {}", path.display(), differences.join("\n"));
    outcome.values
}

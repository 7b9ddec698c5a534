use super::*;
use crate::render::samples::{drawn, lossy};

#[test]
fn a_whole_report() {
    let view = View { columns: 100, messages: true, packets: true, ..View::default() };
    assert_eq!(drawn(&report(&lossy(), &view)), "");
}

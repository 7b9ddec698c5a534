//! `ferroce devinfo` and `ibv_devinfo` describe one device, so they must agree.

use std::collections::BTreeMap;
use std::process::Command;

use ferroce_test_support::built;
use ferroce_tests::libraries::program;
use ferroce_tests::tool;

/// Parses the fields by name, including those of the GID table.
fn fields(said: Vec<u8>) -> BTreeMap<String, String> {
    let said = String::from_utf8(said).expect("text");
    let field = |line: &str| {
        let (name, value) = line.split_once(":\t").or_else(|| line.split_once(": "))?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    said.lines().filter_map(field).collect()
}

#[test]
fn devinfo_agrees_with_ibv_devinfo() {
    let Some(mut theirs) = program("ibv_devinfo") else { return };
    let theirs = fields(tool::run(theirs.args(["-v", "-d", "ferroce_lo"])));
    let mut ours = Command::new(built::folder().join("ferroce"));
    let ours = fields(tool::run(ours.args(["devinfo", "-v", "lo"])));
    let mut compared = 0;
    for (name, value) in &ours {
        let Some(theirs) = theirs.get(name) else { continue };
        assert_eq!(value, theirs, "{name}");
        compared += 1;
    }
    for name in ["vendor_id", "vendor_part_id", "hw_ver", "fw_ver", "node_guid", "max_mr_size"] {
        assert!(ours.contains_key(name) && theirs.contains_key(name), "{name}");
    }
    assert!(compared > 25, "{compared} fields in common: {ours:?} {theirs:?}");
}

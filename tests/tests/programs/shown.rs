//! Which devices programs are shown: `FERROCE_DEVICES`, which `ferroce run --device` sets.

use ferroce_tests::libraries::program;
use ferroce_tests::tool;

/// The devices that a program lists, when it shall see these.
fn listed(wanted: &str) -> Option<Vec<String>> {
    let mut command = program("ibv_devices")?;
    let said = tool::run(command.env("FERROCE_DEVICES", wanted));
    let said = String::from_utf8(said).expect("text");
    // Two lines of title, then a name and a GUID in each.
    let names = said.lines().skip(2).filter_map(|line| line.split_whitespace().next());
    Some(names.map(str::to_owned).collect())
}

#[test]
fn those_that_are_named_alone() {
    let Some(all) = listed("") else { return };
    assert!(all.iter().any(|name| name == "ferroce_lo"), "{all:?}");
    for wanted in ["ferroce_lo", "lo", "ferroce_none,ferroce_lo"] {
        assert_eq!(listed(wanted).unwrap(), ["ferroce_lo"], "{wanted}");
    }
    assert_eq!(listed("ferroce_none").unwrap(), [""; 0]);
}

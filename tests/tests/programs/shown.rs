//! Which devices programs are shown, and by which names: `FERROCE_DEVICES` and `FERROCE_NAME`, which `ferroce run` sets for
//! `--device` and `--name`.

use ferroce_tests::libraries::program;
use ferroce_tests::tool;

/// The devices that a program lists, when it shall see these.
fn listed(wanted: &str) -> Option<Vec<String>> {
    named(wanted, None)
}

/// The same, with names by a pattern.
fn named(wanted: &str, pattern: Option<&str>) -> Option<Vec<String>> {
    let mut command = program("ibv_devices")?;
    command.env_remove("FERROCE_NAME").envs(pattern.map(|pattern| ("FERROCE_NAME", pattern)));
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

#[test]
fn names_follow_a_pattern() {
    let Some(names) = named("lo", Some("rxe%d")) else { return };
    assert_eq!(names, ["rxe0"]);
    assert_eq!(named("lo", Some("rxe_%s")).unwrap(), ["rxe_lo"]);
    assert_eq!(named("lo", Some("no/name")).unwrap(), ["ferroce_lo"]);
}

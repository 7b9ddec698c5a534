//! The devices that programs see, and their names: `FERROCE_DEVICES` and `FERROCE_NAME`, which `ferroce run` sets for
//! `--device` and `--name`.

use ferroce_tests::libraries::program;
use ferroce_tests::tool;

/// Returns the devices that a program lists if `FERROCE_DEVICES` is `wanted`.
fn listed(wanted: &str) -> Option<Vec<String>> {
    named(wanted, None)
}

/// The same, with a pattern of names.
fn named(wanted: &str, pattern: Option<&str>) -> Option<Vec<String>> {
    let mut command = program("ibv_devices")?;
    command.env_remove("FERROCE_NAME").envs(pattern.map(|pattern| ("FERROCE_NAME", pattern)));
    let said = tool::run(command.env("FERROCE_DEVICES", wanted));
    let said = String::from_utf8(said).expect("text");
    // Two header lines, then a name and a GUID per line.
    let names = said.lines().skip(2).filter_map(|line| line.split_whitespace().next());
    Some(names.map(str::to_owned).collect())
}

#[test]
fn only_the_selected_devices_are_listed() {
    let Some(all) = listed("") else { return };
    assert!(all.iter().any(|name| name == "ferroce_lo"), "{all:?}");
    for wanted in ["ferroce_lo", "lo", "ferroce_none,ferroce_lo"] {
        assert_eq!(listed(wanted).unwrap(), ["ferroce_lo"], "{wanted}");
    }
    assert_eq!(listed("ferroce_none").unwrap(), [""; 0]);
}

#[test]
fn device_names_follow_the_pattern() {
    let Some(names) = named("lo", Some("rxe%d")) else { return };
    assert_eq!(names, ["rxe0"]);
    assert_eq!(named("lo", Some("rxe_%s")).unwrap(), ["rxe_lo"]);
}

#[test]
fn an_invalid_pattern_of_names_is_reported() {
    let Some(mut command) = program("ibv_devices") else { return };
    let output = command.env("FERROCE_NAME", "no/name").output().expect("ibv_devices runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("ferroce: FERROCE_NAME=\"no/name\" is invalid: "), "{errors}");
}

//! The exported symbols: if one is missing, or has another version, a program does not start.

use std::collections::BTreeSet;
use std::process::Command;

use ferroce_tests::libraries::folder;

const EXPECTED: &str = include_str!("symbols.txt");

fn readelf(option: &str) -> String {
    let mut command = Command::new("readelf");
    command.args(["-W", option]).arg(folder().join("libibverbs.so.1"));
    String::from_utf8(ferroce_tests::tool::run(&mut command)).expect("readelf prints UTF-8")
}

#[test]
fn every_symbol_has_its_version() {
    let table = readelf("--dyn-syms");
    // Number, value, size, type, binding, visibility, section, name.
    let exported: BTreeSet<_> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 7 && fields[6] != "UND")
        .filter_map(|fields| fields[7].split_once('@'))
        .map(|(name, version)| (version.trim_start_matches('@'), name))
        .collect();
    let expected = EXPECTED.lines().filter(|line| !line.starts_with('#'));
    let missing: Vec<_> = expected
        .filter_map(|line| line.split_once(' '))
        .filter(|symbol| !exported.contains(symbol))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

#[test]
fn nothing_else_is_exported() {
    let table = readelf("--dyn-syms");
    let stray: Vec<_> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 7 && fields[4] == "GLOBAL" && fields[6] != "UND")
        .filter(|fields| !fields[7].contains('@') && fields[6] != "ABS")
        .map(|fields| fields[7].to_owned())
        .collect();
    assert!(stray.is_empty(), "exported without a version: {stray:?}");
}

#[test]
fn the_soname_is_libibverbs() {
    assert!(readelf("--dynamic").contains("soname: [libibverbs.so.1]"));
}

#[test]
fn all_library_names_link_to_one_file() {
    let file = std::fs::canonicalize(folder().join("libibverbs.so.1")).expect("it is there");
    for name in ["libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
        let found = std::fs::canonicalize(folder().join(name)).expect("it is there");
        assert_eq!(found, file, "{name}");
    }
}

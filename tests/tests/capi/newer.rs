//! Functions that rdma-core added since the release whose headers are installed: the symbols of the newest release, and
//! `tests/capi/newer.c`, which calls all new ones.

use std::collections::BTreeSet;
use std::process::Command;

use ferroce_tests::{c, libraries, tool};

/// Version and name of every symbol of the newest release.
const NEWEST: &str = include_str!("rdma-core-65.txt");

/// The ABI before 2007 has other structures: rdma-core converts them, we do not.
const OLD_ABI: (&str, &str) = ("IBVERBS_1.0", "IBVERBS_1.1");

fn newest() -> BTreeSet<(&'static str, &'static str)> {
    let lines = NEWEST.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("version and name")).collect()
}

/// Returns the versions and names that a file defines, or needs.
fn symbols(file: &std::path::Path, defined: bool) -> BTreeSet<(String, String)> {
    let mut command = Command::new("readelf");
    command.args(["-W", "--dyn-syms"]).arg(file);
    let table = String::from_utf8(tool::run(&mut command)).expect("readelf prints UTF-8");
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 7 && (fields[6] != "UND") == defined)
        .filter_map(|fields| fields[7].split_once('@'))
        .map(|(name, version)| (version.trim_start_matches('@').to_owned(), name.to_owned()))
        .collect()
}

#[test]
fn every_symbol_of_the_newest_release_is_exported() {
    let newest = newest();
    assert_eq!(newest.len(), 294, "the list is not complete");
    let exported = symbols(&libraries::folder().join("libibverbs.so.1"), true);
    let is_old = |&(version, name): &(&str, &str)| {
        version == OLD_ABI.0 && newest.contains(&(OLD_ABI.1, name))
    };
    let missing: Vec<_> = newest
        .iter()
        .filter(|symbol| !is_old(symbol))
        .filter(|(version, name)| !exported.contains(&((*version).into(), (*name).into())))
        .collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// Vendor drivers bind the private symbol version of their own release.
#[test]
fn the_private_functions_have_the_versions_of_all_releases() {
    let exported = symbols(&libraries::folder().join("libibverbs.so.1"), true);
    let newest = newest();
    let private = newest.iter().filter(|(version, _)| *version == "IBVERBS_PRIVATE_65");
    for (_, name) in private.filter(|(_, name)| !name.starts_with("verbs_register_driver")) {
        for release in [25, 33, 34, 57, 59, 64, 65] {
            let symbol = (format!("IBVERBS_PRIVATE_{release}"), (*name).to_owned());
            assert!(exported.contains(&symbol), "not exported: {symbol:?}");
        }
    }
}

#[track_caller]
fn run(case: &str) {
    let header = "rdma/rdma_cma.h";
    let Some(program) = c::compile("newer", &["capi/newer.c"], header) else { return };
    let output = c::command(&program).arg(case).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"ok\n", "{case}: {said}");
}

macro_rules! cases {
    ($( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            run(stringify!($case));
        }
    )+};
}

cases! { ports, regions, buffers, refused, flushes, events, addresses }

/// All except those of rsockets, which `rsocket_programs` calls.
#[test]
fn the_program_binds_every_new_function() {
    let Some(program) = c::compile("newer", &["capi/newer.c"], "rdma/rdma_cma.h") else { return };
    let bound = symbols(&program, false);
    let new = ["IBVERBS_1.15", "IBVERBS_1.16", "IBVERBS_1.17", "IBVERBS_1.18", "RDMACM_1.4"];
    let unbound: Vec<_> = newest()
        .into_iter()
        .filter(|(version, _)| new.contains(version))
        .filter(|(version, name)| !bound.contains(&((*version).into(), (*name).into())))
        .collect();
    assert!(unbound.is_empty(), "newer.c does not call {unbound:?}");
}

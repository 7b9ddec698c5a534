//! `make peers`, without the test suites that it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferroce_test_support::built;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `make peers`; `gtest` is what it takes for UCX's gtest.
fn make_peers(gtest: &str) -> Output {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "peers"]).current_dir(root());
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("PEERS_RUN");
    make.env("FERROCE", built::folder().join("ferroce")).env("PEERS_GROUPS", "rc_verbs/*");
    make.env("FABTESTS", "/nonexistent").env("UCX_GTEST", gtest);
    make.output().expect("make runs")
}

#[test]
fn suites_that_are_not_installed_are_counted_as_not_run() {
    let output = make_peers("");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "0 groups run, 0 with differences; peers' test suites not run: 2, \
                    UCX's gtest (UCX_GTEST), fabtests (FABTESTS)\n";
    assert_eq!((output.status.code(), &*text), (Some(0), expected));
}

#[test]
fn tests_that_did_not_pass_are_a_difference() {
    let output = make_peers("/bin/true");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{text}");
    for part in ["fewer passed than expected", "0 passed", "1 groups run, 1 with differences"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn every_exception_has_a_reason() {
    for suite in ["ucx.tsv", "fabtests.tsv"] {
        let table =
            std::fs::read_to_string(root().join("tests/peers").join(suite)).expect("a table");
        for line in table.lines() {
            let valid = match line.split('\t').collect::<Vec<_>>()[..] {
                [_, "*", least] => least.parse::<u32>().is_ok_and(|least| least > 0),
                [_, _, "fail" | "any", reason] => !reason.is_empty(),
                _ => false,
            };
            assert!(valid, "{suite}: {line}");
        }
    }
}

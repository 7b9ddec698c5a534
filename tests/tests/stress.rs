//! A short run of the stress program in `tests/stress`; `make stress` has the long ones.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_tests::c;

#[track_caller]
fn stress(arguments: &[&str], variables: &[(&str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("stress");
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the program's folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    sources.sort();
    let Some(program) = c::compile("stress", &sources, "infiniband/verbs.h") else { return };
    let mut command = c::command(&program);
    command.args(arguments).envs(variables.iter().copied());
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // Each service was used.
    for service in ["RC", "RC with SRQ", "UC", "UD", "XRC"] {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{service:12} ")));
        let lives = line.and_then(|line| line.trim_start().split(' ').next());
        assert!(lives.is_some_and(|lives| lives != "0"), "{service}: {said}");
    }
    for kind in ["resets", "reconnects", "destroys"] {
        let number =
            said.split(&format!(" {kind}")).next().and_then(|before| before.rsplit(' ').next());
        assert!(number.is_some_and(|number| number != "0"), "{kind}: {said}");
    }
}

/// Injected faults.
const FAULTS: (&str, &str) = ("FERROCE_FAULTS", "loss=2%,duplication=1%,reordering=2%,seed=3");

const SHARDS: (&str, &str) = ("FERROCE_SHARDS", "3");

#[test]
fn stress_over_rings() {
    stress(&["-s", "1", "-t", "3", "-k", "rings"], &[]);
}

#[test]
fn stress_between_two_processes_over_sockets() {
    stress(&["-s", "2", "-t", "3", "-p", "2", "-k", "sockets"], &[]);
}

#[test]
fn stress_over_sockets_with_faults() {
    stress(&["-s", "3", "-t", "3", "-k", "sockets"], &[FAULTS]);
}

#[test]
fn stress_between_two_processes_over_mixed_links_with_faults() {
    stress(&["-s", "4", "-t", "3", "-p", "2", "-k", "mixed"], &[FAULTS]);
}

#[test]
fn stress_between_two_processes_over_rings_with_shards_and_faults() {
    stress(&["-s", "5", "-t", "3", "-p", "2", "-k", "rings"], &[SHARDS, FAULTS]);
}

#[test]
fn stress_over_mixed_links_with_shards() {
    stress(&["-s", "6", "-t", "3", "-k", "mixed"], &[SHARDS]);
}

//! Destroying queue pairs with work in flight: `tests/capi/destroy.c`.

use ferroce_tests::c;

/// Returns the program's output, unless it cannot be compiled.
#[track_caller]
fn run(arguments: &[&str]) -> Option<String> {
    let program = c::compile("destroy", &["capi/destroy.c"], "infiniband/verbs.h")?;
    let output = c::command(&program).args(arguments).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[track_caller]
fn nothing_happens_after_destroy(service: &str, rounds: &str) {
    let Some(said) = run(&[service, rounds]) else { return };
    assert!(!said.contains("arrived in 0;"), "nothing was in flight: {said}");
}

#[test]
fn a_cq_of_an_xrc_srq_is_busy() {
    run(&["xrc"]);
}

#[test]
fn nothing_happens_after_destroy_uc() {
    nothing_happens_after_destroy("uc", "300");
}

#[test]
fn nothing_happens_after_destroy_ud() {
    nothing_happens_after_destroy("ud", "300");
}

#[test]
fn nothing_happens_after_destroy_rc() {
    nothing_happens_after_destroy("rc", "500");
}

//! Bad input from a C program: `tests/capi/bad_input.c` has the cases, each in its own process.

use std::fmt::Write;

use ferroce_tests::c;

#[test]
fn bad_input_is_refused_without_leaks() {
    let Some(program) = c::compile("bad_input", &["capi/bad_input.c"], "infiniband/verbs.h") else {
        return;
    };
    let list = c::command(&program).arg("--list").output().expect("the program starts");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let mut failed = String::new();
    for case in list.lines() {
        let output = c::command(&program).arg(case).output().expect("the program starts");
        if !output.status.success() {
            let (said, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let _ = writeln!(failed, "{case}: {}\n{said}{errors}", output.status);
        }
    }
    assert!(list.lines().count() > 15, "the cases are: {list}");
    assert!(failed.is_empty(), "{failed}");
}

//! Memory that is unmapped while it is registered: `tests/capi/unmapped.c` has the cases, each in its own process.

use std::fmt::Write;

use ferroce_tests::c;

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn access_to_unmapped_memory_fails() {
    let Some(program) = c::compile("unmapped", &["capi/unmapped.c"], "infiniband/verbs.h") else {
        return;
    };
    let list = c::command(&program).arg("--list").output().expect("the program starts");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let mut failed = String::new();
    for case in list.lines() {
        let output = c::command(&program).arg(case).output().expect("the program starts");
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let _ = writeln!(failed, "{case}: {}\n{errors}", output.status);
        }
    }
    assert_eq!(list.lines().count(), 12, "the cases are: {list}");
    assert!(failed.is_empty(), "{failed}");
}

//! What goes wrong with connections, one case of `faults.c` a line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::{libraries, pair};

/// The program, compiled with librdmacm's headers and linked with our library. `None`, and a word about it, when there
/// are no headers.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/rdma/rdma_verbs.h").is_file() {
            eprintln!("SKIPPED: librdmacm-dev is not installed: run `make setup`");
            return None;
        }
        // Tests are processes of their own and may build at once.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("cm_faults.{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cm_programs/faults.c");
        let status = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-pthread", "-o"])
            .args([path.as_path(), &source])
            .arg(format!("-L{}", libraries::folder().display()))
            .args(["-lrdmacm", "-libverbs"])
            .status();
        assert!(status.expect("there is a compiler").success(), "faults.c compiles");
        Some(path)
    });
    built.as_deref()
}

fn run(case: &str) {
    let Some(program) = program() else { return };
    let mut command = Command::new(program);
    command.arg(case).env("LD_LIBRARY_PATH", libraries::folder()).stdin(Stdio::null());
    command.env_remove("FERROCE_CAPTURE").env_remove("FERROCE_FAULTS");
    let said = pair::alone(command);
    let _ = std::fs::remove_file(program);
    assert!(said.contains("as it should be"), "{case} said:\n{said}");
}

macro_rules! cases {
    ($( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            run(stringify!($case));
        }
    )+};
}

cases! {
    no_listener,
    synchronous_refused,
    private_data,
    enhancements,
    addresses,
    wrong_order,
    unacknowledged,
    migration,
    names,
    cycles,
}

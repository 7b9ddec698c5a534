//! Programs that bundle a libibverbs under another name, as Python wheels do, with `ferroce run`. The wheels themselves
//! are tested in `applications`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_test_support::{built, skip};
use ferroce_tests::tool;

const LIBRARY: &str = "libibverbs-0a1b2c3d.so.1.14.48.0";
const NOBODY: u32 = 65534;

/// The program and its module, in a world-readable folder.
struct Bundle(PathBuf);

impl Bundle {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ferroce-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder of its own");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let bundle = Self(folder);
        let map = format!("-Wl,--version-script={}", source("library.map").display());
        let name = format!("-Wl,-soname,{LIBRARY}");
        bundle.compile(LIBRARY, "library.c", &["-shared", "-fPIC", &map, &name]);
        let library = bundle.0.join(LIBRARY).display().to_string();
        bundle.compile(
            "module.so",
            "module.c",
            &["-shared", "-fPIC", &library, "-Wl,-rpath,$ORIGIN"],
        );
        bundle.compile("main", "main.c", &["-ldl"]);
        bundle
    }

    fn compile(&self, name: &str, of: &str, arguments: &[&str]) {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        tool::run(compiler.arg(self.0.join(name)).arg(source(of)).args(arguments));
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/bundled").join(name)
}

/// Returns the output of a command under `ferroce run`.
fn run(arguments: &[&str]) -> String {
    let mut command = Command::new(built::folder().join("ferroce"));
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "FERROCE_LIB", "FERROCE_VERBS"] {
        command.env_remove(name);
    }
    command.arg("run").args(arguments);
    String::from_utf8(tool::run(&mut command)).expect("text")
}

#[test]
fn calls_to_a_bundled_library_are_redirected() {
    let bundle = Bundle::new("bundled");
    let (program, module) = (bundle.path("main"), bundle.path("module.so"));
    let before = tool::run(Command::new(&program).arg(&module));
    let before = String::from_utf8(before).expect("text");
    assert_eq!(before, "secure 0\nview 0\nverbs 0\nerrno 12345\ndevice bundled\n");
    let said = run(&["--", &program, &module]);
    // Our library is not loaded before its first call, which behaves like any other.
    let devices = said.strip_prefix("secure 0\nview 1\nverbs 0\nerrno 12345\n").expect(&said);
    assert!(devices.starts_with("device ferroce_"), "{said}");
    // Without our libraries, the bundled one is called.
    let said = run(&[
        "--no-libraries",
        "--",
        "sh",
        "-c",
        &format!("LD_PRELOAD=$LD_PRELOAD:{} {program} {module}", bundle.path(LIBRARY)),
    ]);
    assert!(said.ends_with("\ndevice bundled\n"), "{said}");
}

/// A shell and its children have the preloaded entry points, but do not load our library.
#[test]
fn programs_without_rdma_do_not_load_our_library() {
    let script = "grep -c libferroce_view /proc/self/maps; grep -c 'libferroce_capi\\|libibverbs' /proc/self/maps; \
                  test -z \"$(ls /proc/$$/task | sed 1d)\" && ls /proc/self/fd | wc -l";
    let bare = tool::run(Command::new("sh").args(["-c", "ls /proc/self/fd | wc -l"]));
    let said = run(&["--", "sh", "-c", script]);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].parse::<u32>().is_ok_and(|count| count > 0), "{said}");
    assert_eq!(lines[1..], ["0", String::from_utf8_lossy(&bare).trim()], "{said}");
}

/// The dynamic linker ignores preloads for set-user-ID programs.
#[test]
fn set_user_id_programs_are_not_affected() {
    let bundle = Bundle::new("set-user-id");
    let program = bundle.0.join("main");
    if chown(&program, Some(NOBODY), Some(NOBODY)).is_err() {
        return skip("only root can change the owner of a program");
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("root may");
    let said = run(&["--", &bundle.path("main"), &bundle.path("module.so")]);
    if said.starts_with("secure 0") {
        return skip("set-user-ID has no effect here");
    }
    assert_eq!(said, "secure 1\nview 0\nverbs 0\nerrno 12345\ndevice bundled\n");
}

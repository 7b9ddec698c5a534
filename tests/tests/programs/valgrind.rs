//! Programs under valgrind's memcheck: our library reads no uninitialised memory, makes no invalid accesses, and leaks
//! nothing.

use std::path::Path;
use std::process::Command;

use super::pair;
use ferroce_tests::libraries::program;

/// The exit status for errors, which no program here uses.
const ERRORS: &str = "--error-exitcode=9";

/// Wraps a command in memcheck, which fails on any finding.
fn checked(command: &mut Command) {
    let suppressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("valgrind.supp");
    let mut other = Command::new("valgrind");
    other.args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite", ERRORS]);
    other.args(["--show-leak-kinds=definite", "--fair-sched=yes"]);
    other.arg(format!("--suppressions={}", suppressions.display()));
    other.arg(command.get_program()).args(command.get_args());
    other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    other.stdin(std::process::Stdio::null());
    *command = other;
}

fn run(name: &str, arguments: &str) {
    if program("valgrind").is_none() {
        return;
    }
    // Both sides: their output is printed if one of them fails.
    let _ = pair::changed(name, arguments, |_, command| checked(command));
}

macro_rules! valgrind {
    ($( $test:ident: $program:literal $arguments:literal; )+) => {$(
        #[test]
        fn $test() {
            run($program, $arguments);
        }
    )+};
}

valgrind! {
    memcheck_rc_events:    "ibv_rc_pingpong"   "-n 5 -r 8 -e";
    memcheck_ud_pingpong:  "ibv_ud_pingpong"   "-n 5 -r 8";
    memcheck_write_bw:     "ib_write_bw"       "-n 5 -s 4097";
}

mod full {
    use super::*;

    valgrind! {
        memcheck_rc_pingpong:  "ibv_rc_pingpong"   "-n 5 -r 8 -c";
        memcheck_rc_new:       "ibv_rc_pingpong"   "-n 5 -r 8 -N -t";
        memcheck_uc_pingpong:  "ibv_uc_pingpong"   "-n 5 -r 8";
        memcheck_srq_pingpong: "ibv_srq_pingpong"  "-n 5 -r 32 -q 2";
        memcheck_xrc_pingpong: "ibv_xsrq_pingpong" "-n 5";
        memcheck_read_bw:      "ib_read_bw"        "-n 5 -s 4097";
        memcheck_send_bw:      "ib_send_bw"        "-n 5 -s 4097";
        memcheck_atomic_bw:    "ib_atomic_bw"      "-n 5";
    }
}

/// The check itself works: it finds a program that reads uninitialised memory.
#[test]
fn memcheck_finds_an_invalid_read() {
    if program("valgrind").is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, built) = (folder.join("wrong.c"), folder.join("wrong"));
    std::fs::write(
        &source,
        "#include <stdlib.h>\nint main(void){volatile char *p=malloc(8);return p[3]?0:0;}",
    )
    .expect("it is written");
    let compiled = Command::new("cc").arg("-O0").arg("-o").arg(&built).arg(&source).status();
    assert!(compiled.expect("there is a compiler").success());
    let mut command = Command::new(&built);
    checked(&mut command);
    assert_eq!(command.output().expect("it runs").status.code(), Some(9));
}

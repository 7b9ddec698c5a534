//! `ferroce doctor`: runs the binary on the host of the test, and on programs built for it.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferroce_test_support::{built, find_program, skip};
use serde_json::Value;

use crate::support::FERROCE;
use crate::support::server::Server;

/// An empty directory for a test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// A folder with the names of Ferroce's libraries: doctor only looks whether they exist.
fn libraries() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-libraries");
    fs::create_dir_all(&path).unwrap();
    for name in ["libferroce_view.so", "libibverbs.so.1", "librdmacm.so.1"] {
        fs::write(path.join(name), "").unwrap();
    }
    path
}

/// The command, without variables of the developer that would lead to other findings.
fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(FERROCE);
    command.arg("doctor").args(arguments).env("FERROCE_LIB", libraries());
    for name in [
        "FERROCE_DEVICES",
        "FERROCE_NAME",
        "FERROCE_CAPTURE",
        "FERROCE_FAULTS",
        "FERROCE_LOCAL",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "UCX_TLS",
        "OMPI_MCA_pml",
    ] {
        command.env_remove(name);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The findings with this ID, and the exit status.
fn findings(output: &Output, id: &str) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{} {}", text(&output.stdout), text(&output.stderr)));
    assert_eq!(report["schema"], "ferroce-doctor-1");
    let found = report["findings"].as_array().unwrap().iter();
    found.filter(|finding| finding["id"] == id).cloned().collect()
}

#[track_caller]
fn one(output: &Output, id: &str) -> Value {
    let found = findings(output, id);
    assert_eq!(found.len(), 1, "{id}: {}", text(&output.stdout));
    found[0].clone()
}

fn program(name: &str) -> Output {
    doctor(&["--json", "--no-self-test", "--", name]).output().unwrap()
}

#[test]
fn every_device_passes_the_self_test() {
    let output = doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let sockets = findings(&output, "selftest.sockets");
    assert!(sockets.len() >= 2, "IPv4 and IPv6: {sockets:?}");
    let memory = one(&output, "selftest.memory");
    for finding in sockets.iter().chain([&memory]) {
        assert_eq!((&finding["result"], &finding["subject"]), (&"ok".into(), &"ferroce_lo".into()));
        assert!(finding["finding"].as_str().unwrap().contains("verified"), "{finding}");
    }
    assert_eq!(one(&output, "port.holders")["result"], "ok");
    assert_eq!(one(&output, "devices.first")["result"], "note", "only the loopback");
    assert_eq!(one(&output, "sharing.memory")["result"], "ok");
}

#[test]
fn text_has_a_fix_below_each_finding_and_follows_the_width() {
    let mut command = doctor(&["--no-self-test"]);
    let output = command.env("COLUMNS", "72").env("FERROCE_FAULTS", "loss=1%").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "warnings do not fail");
    let out = text(&output.stdout);
    assert!(out.contains("  warning   FERROCE_FAULTS=loss=1%"), "{out}");
    assert!(out.contains("→ unset FERROCE_FAULTS"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 72), "{out}");
    assert!(!out.contains('\u{1b}'));
    let strict = doctor(&["--no-self-test", "--strict"]).env("FERROCE_FAULTS", "loss=1%").output();
    assert_eq!(strict.unwrap().status.code(), Some(1));
}

#[test]
fn a_taken_port_is_reported_with_its_program() {
    let _taken = UdpSocket::bind("127.0.0.1:4791").unwrap();
    let output = doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let holder = one(&output, "port.holders");
    assert_eq!(holder["result"], "problem");
    let process = format!("process {} ", std::process::id());
    assert!(holder["finding"].as_str().unwrap().contains(&process), "{holder}");
    let failed = findings(&output, "selftest.sockets");
    assert!(failed.iter().any(|finding| finding["result"] == "problem"), "{failed:?}");
}

#[test]
fn ferroce_processes_share_the_port() {
    let server =
        Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", "127.0.0.1:0"]));
    let output = doctor(&["--json", "--no-self-test"]).output().unwrap();
    let holder = one(&output, "port.holders");
    assert_eq!(holder["result"], "ok", "{holder}");
    assert!(holder["finding"].as_str().unwrap().contains("(ferroce)"), "{holder}");
    drop(server);
}

#[test]
fn without_an_interface_there_is_no_device() {
    let output = doctor(&["--json"]).env("FERROCE_DEVICES", "none0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let list = one(&output, "devices.list");
    assert_eq!(list["result"], "problem");
    assert!(list["finding"].as_str().unwrap().contains("FERROCE_DEVICES=none0"), "{list}");
}

#[test]
fn messaging_variables_are_checked() {
    let output = doctor(&["--json", "--no-self-test"]).env("UCX_TLS", "tcp,self").output().unwrap();
    let finding = one(&output, "messaging.ucx_tls");
    assert_eq!(finding["result"], "warning");
    assert!(finding["fix"].as_str().unwrap().contains("unset UCX_TLS"), "{finding}");
}

/// `ferroce run` says the same of a program, before it starts it.
fn run_warns_of(finding: &Value, directory: &Path, path: &Path, preload: &str) {
    let mut command = Command::new(FERROCE);
    command.args(["run", "--"]).arg(path).env("FERROCE_LIB", built::folder());
    command.env("LD_PRELOAD", preload).env_remove("LD_LIBRARY_PATH");
    let said = text(&command.env("XDG_RUNTIME_DIR", directory).output().unwrap().stderr);
    let words = |name: &str| finding[name].as_str().unwrap();
    let wanted = format!("warning: {}; {}", words("finding"), words("fix"));
    assert!(said.contains(&wanted), "{wanted}\n{said}");
}

/// Compiles a C program; `None` after a skip if that is not possible.
fn compile(directory: &Path, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    if find_program("cc").is_none() {
        skip("there is no C compiler");
        return None;
    }
    let (file, out) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&file, source).unwrap();
    let status = Command::new("cc").arg("-o").arg(&out).arg(&file).args(options).output().unwrap();
    if !status.status.success() {
        skip(format!("cc {options:?}: {}", text(&status.stderr)));
        return None;
    }
    Some(out)
}

const MAIN: &str = "int main(void) { return 0; }\n";

#[test]
fn a_static_program_is_out_of_reach() {
    let directory = directory("static");
    let Some(path) = compile(&directory, "fixed", MAIN, &["-static"]) else { return };
    let output = program(path.to_str().unwrap());
    assert_eq!(output.status.code(), Some(1));
    let finding = one(&output, "program.static");
    assert_eq!(finding["result"], "problem");
    assert!(finding["finding"].as_str().unwrap().contains("statically linked"), "{finding}");
    run_warns_of(&finding, &directory, &path, "");
}

#[test]
fn a_plain_program_has_no_libibverbs() {
    let output = program("sh");
    assert_eq!(one(&output, "program.file")["result"], "ok");
    let finding = one(&output, "program.verbs");
    assert_eq!(finding["result"], "note");
    assert!(finding["fix"].as_str().unwrap().contains("--sockets"), "{finding}");
}

#[test]
fn a_script_leads_to_its_interpreter() {
    let directory = directory("script");
    let script = directory.join("run");
    for (first, interpreter) in [("#!/bin/sh", "/bin/sh"), ("#!/usr/bin/env -S sh -e", "/sh")] {
        fs::write(&script, format!("{first}\nexit 0\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let finding = one(&program(script.to_str().unwrap()), "program.file");
        let words = finding["finding"].as_str().unwrap();
        assert!(words.contains("is a script for") && words.contains(interpreter), "{finding}");
    }
    fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    let output = program(script.to_str().unwrap());
    assert_eq!(
        (output.status.code(), &one(&output, "program.file")["result"]),
        (Some(1), &"problem".into())
    );
    fs::write(&script, "plain text\n").unwrap();
    assert_eq!(one(&program(script.to_str().unwrap()), "program.file")["result"], "problem");
    assert_eq!(one(&program("no-such-command"), "program.file")["result"], "problem");
}

/// A program linked with a library named libibverbs.so.1 in a folder of its own.
fn linked(directory: &Path, name: &str, tags: &str) -> Option<PathBuf> {
    let library = "int ibv_get_device_list(void) { return 0; }\n";
    let folder = directory.join("lib");
    fs::create_dir_all(&folder).unwrap();
    let built = compile(
        &folder,
        "libibverbs.so.1",
        library,
        &["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1"],
    )?;
    let source =
        "int ibv_get_device_list(void);\nint main(void) { return ibv_get_device_list(); }\n";
    let rpath = format!("-Wl,-rpath,$ORIGIN/lib,{tags}");
    compile(directory, name, source, &[built.to_str().unwrap(), &rpath])
}

#[test]
fn rpath_is_searched_before_ferroce_and_runpath_after() {
    let directory = directory("rpath");
    let Some(old) = linked(&directory, "old", "--disable-new-dtags") else { return };
    let output = program(old.to_str().unwrap());
    let finding = one(&output, "program.rpath");
    assert_eq!(finding["result"], "warning");
    assert!(finding["finding"].as_str().unwrap().contains("DT_RPATH"), "{finding}");
    run_warns_of(&finding, &directory, &old, "");
    let Some(new) = linked(&directory, "new", "--enable-new-dtags") else { return };
    let finding = one(&program(new.to_str().unwrap()), "program.verbs");
    assert_eq!(finding["result"], "ok", "{finding}");
    assert!(finding["finding"].as_str().unwrap().contains("loaded from Ferroce"), "{finding}");
}

#[test]
fn a_preloaded_libibverbs_replaces_ferroce() {
    let directory = directory("preload");
    if linked(&directory, "x", "--enable-new-dtags").is_none() {
        return;
    }
    let library = directory.join("lib/libibverbs.so.1");
    let output = doctor(&["--json", "--no-self-test", "--", "sh"])
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let finding = one(&output, "program.preload");
    assert_eq!(finding["result"], "problem");
    run_warns_of(&finding, &directory, Path::new("sh"), library.to_str().unwrap());
}

#[test]
fn a_set_user_id_program_is_out_of_reach() {
    // One that belongs to another user than that of the test, who may be root in a namespace.
    let su = ["/usr/bin/su", "/bin/su", "/usr/bin/passwd"];
    let own = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    let directory = directory("setuid");
    let path = directory.join("true");
    fs::copy("/bin/true", &path).unwrap();
    let foreign = own.is_ok_and(|own| own == 0)
        && std::os::unix::fs::chown(&path, Some(65_534), None).is_ok()
        && fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).is_ok();
    let found = match foreign {
        true => Some(path),
        false => su.iter().map(PathBuf::from).find(|path| {
            fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o4000 != 0)
        }),
    };
    let Some(path) = found else {
        skip("there is no set-user-ID program of another user");
        return;
    };
    let output = program(path.to_str().unwrap());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let finding = one(&output, "program.privileged");
    assert!(finding["finding"].as_str().unwrap().contains("set-user-ID"), "{finding}");
    run_warns_of(&finding, &directory, &path, "");
}

//! `make install`: the installed files work in place, and `make uninstall` removes all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ferroce_test_support::{built, find_program};
use ferroce_tests::running::{free_port, listens};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn make(target: &str, prefix: &Path, built: &Path) {
    let mut make = Command::new("make");
    make.arg("--no-print-directory").arg(target).current_dir(root());
    make.arg(format!("PREFIX={}", prefix.display())).arg(format!("BUILT={}", built.display()));
    // Not influenced by an outer make.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("DESTDIR");
    let output = make.output().expect("make runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the files under a folder, by their relative paths.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => found.push(
                    entry.path().strip_prefix(folder).expect("it is there").display().to_string(),
                ),
            }
        }
    }
    found.sort();
    found
}

/// Returns a command of the installed `ferroce`, which finds its libraries by itself.
fn ferroce(prefix: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(prefix.join("bin/ferroce"));
    command.args(arguments).stdin(Stdio::null());
    for name in [
        "FERROCE_LIB",
        "FERROCE_DEVICES",
        "FERROCE_CAPTURE",
        "FERROCE_TRACE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
    ] {
        command.env_remove(name);
    }
    command
}

/// Killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a server and a client, as in the README.
fn write_bw(prefix: &Path) {
    let port = free_port();
    let port_text = port.to_string();
    let arguments = ["run", "--", "ib_write_bw", "-n", "200", "-F", "-p", &port_text];
    let server =
        ferroce(prefix, &arguments).stdout(Stdio::null()).spawn().expect("the server starts");
    let mut server = Server(server);
    while !listens(server.0.id(), port) {
        assert!(
            server.0.try_wait().expect("it can be waited for").is_none(),
            "the server has ended"
        );
        std::thread::yield_now();
    }
    let client = ferroce(prefix, &arguments).arg("localhost").output().expect("the client runs");
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(
        client.status.success() && said.contains("65536      200"),
        "{said}{}",
        String::from_utf8_lossy(&client.stderr)
    );
    assert!(server.0.wait().expect("it can be waited for").success());
}

#[test]
fn installed_files_work_and_are_uninstalled() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
    let _ = fs::remove_dir_all(&prefix);
    let built = built::folder();
    make("install", &prefix, built);

    let installed = files(&prefix);
    for name in [
        "bin/ferroce",
        "lib/ferroce/libferroce_capi.so",
        "lib/ferroce/libferroce_view.so",
        "lib/ferroce/libferroce_sockets.so",
        "lib/ferroce/libibverbs.so.1",
        "lib/ferroce/librdmacm.so.1",
        "share/man/man1/ferroce.1",
        "share/man/man1/ferroce-run.1",
        "share/bash-completion/completions/ferroce",
        "share/zsh/site-functions/_ferroce",
        "share/fish/vendor_completions.d/ferroce.fish",
    ] {
        assert!(installed.iter().any(|file| file == name), "{name} is not in {installed:#?}");
        assert!(fs::metadata(prefix.join(name)).expect("it is there").len() > 0, "{name} is empty");
    }

    if find_program("ibv_devinfo").is_some() {
        let output =
            ferroce(&prefix, &["run", "--trace", "--", "ibv_devinfo", "-d", "ferroce_lo"]).output();
        let output = output.expect("it runs");
        let (said, calls) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("PORT_ACTIVE"), "{said}{calls}");
        assert!(calls.contains("ibv_open_device(device=0x"), "{calls}");
    }
    if find_program("ib_write_bw").is_some() {
        write_bw(&prefix);
    }

    make("uninstall", &prefix, built);
    assert_eq!(files(&prefix), [""; 0]);
}

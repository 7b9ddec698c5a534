//! The Debian package: built from existing binaries, unpacked, installed into a root of its own, used there and removed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_test_support::{built, find_program, skip};
use ferroce_tests::tool;

use crate::{root, scratch};

/// Builds the package, and returns its path. Not compressed, which takes longer than all else.
fn build(folder: &Path) -> PathBuf {
    let mut deb = Command::new(root().join("scripts/deb"));
    deb.arg(folder).env("BUILT", built::folder()).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    for name in ["MAKEFLAGS", "MAKELEVEL", "DESTDIR", "DEBFULLNAME", "DEBEMAIL"] {
        deb.env_remove(name);
    }
    PathBuf::from(String::from_utf8(tool::run(&mut deb)).expect("a path").trim_end())
}

fn dpkg_deb(arguments: &[&str], package: &Path) -> String {
    let mut command = Command::new("dpkg-deb");
    command.args(arguments).arg(package);
    String::from_utf8(tool::run(&mut command)).expect("text")
}

/// Runs the command of a root, which finds its libraries by itself.
fn devices(root: &Path) -> String {
    let mut command = Command::new(root.join("usr/bin/ferroce"));
    command.args(["run", "--", "ibv_devices"]).stdin(Stdio::null());
    for name in ["FERROCE_LIB", "FERROCE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    String::from_utf8_lossy(&tool::run(&mut command)).into_owned()
}

/// Returns `dpkg` for a root with a database of its own, in which the packages of this host are not installed.
fn dpkg(root: &Path) -> Command {
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display())).args(["--force-depends", "--no-triggers"]);
    // dpkg requires tools that are in folders for administrators.
    let path = std::env::var("PATH").unwrap_or_default();
    dpkg.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    dpkg
}

#[test]
fn package_works_where_it_is_installed() {
    let programs = ["dpkg-deb", "strip", "objdump", "ibv_devices"];
    if programs.iter().any(|name| find_program(name).is_none()) {
        return;
    }
    let folder = scratch("package");
    let package = build(&folder);
    let field = |name: &str| {
        dpkg_deb(&["--field"], &package)
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
    };
    assert_eq!(field("Package").as_deref(), Some("ferroce"));
    assert_eq!(field("Version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(field("Depends").is_some_and(|depends| depends.starts_with("libc6 (>= 2.")));

    // The libraries do not hide those of rdma-core, and nothing belongs to the user who built it.
    let list = dpkg_deb(&["--contents"], &package);
    for line in list.lines() {
        assert!(line.contains(" root/root "), "{line}");
        let path = line.split_whitespace().nth(5).expect("a path");
        assert!(!path.contains(".so") || path.starts_with("./usr/lib/ferroce/"), "{line}");
    }

    let unpacked = folder.join("unpacked");
    let mut unpack = Command::new("dpkg-deb");
    tool::run(unpack.arg("--extract").arg(&package).arg(&unpacked));
    let said = devices(&unpacked);
    assert!(said.contains("ferroce_lo"), "{said}");
    for name in [
        "share/man/man1/ferroce.1.gz",
        "share/man/man1/ferroce-run.1.gz",
        "share/bash-completion/completions/ferroce",
        "share/zsh/vendor-completions/_ferroce",
        "share/fish/vendor_completions.d/ferroce.fish",
        "share/doc/ferroce/copyright",
        "share/doc/ferroce/changelog.gz",
    ] {
        assert!(fs::metadata(unpacked.join("usr").join(name)).is_ok_and(|m| m.len() > 0), "{name}");
    }

    if fs::metadata("/proc/self").expect("this process").uid() != 0 {
        return skip("dpkg installs packages only as root");
    }
    let other = folder.join("other");
    for part in ["info", "updates"] {
        fs::create_dir_all(other.join("var/lib/dpkg").join(part)).expect("a folder");
    }
    fs::write(other.join("var/lib/dpkg/status"), "").expect("a file");
    tool::run(dpkg(&other).arg("--install").arg(&package));
    let said = devices(&other);
    assert!(said.contains("ferroce_lo"), "{said}");
    // dpkg compares the files with the package's checksums, and prints those that differ.
    assert_eq!(String::from_utf8_lossy(&tool::run(dpkg(&other).args(["--verify", "ferroce"]))), "");
    tool::run(dpkg(&other).args(["--purge", "ferroce"]));
    assert!(!other.join("usr").exists(), "{} is not empty", other.join("usr").display());
}

//! The command and the libraries that tests run: `ferroce`, `libferroce_capi.so`, `libferroce_view.so`,
//! `libferroce_sockets.so`.
//!
//! No test links them, so cargo does not build them for a test. `scripts/test` and nextest's set-up script
//! (`.config/nextest.toml`) build them once before a run; a test that is started without either builds them itself.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the folder that already has them.
const BUILT_FOLDER_ENV: &str = "FERROCE_TEST_BUILT";

/// Returns the folder that they are in, which is cargo's for the profile of this test.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // A test is TARGET/PROFILE/deps/NAME.
        let test = env::current_exe().expect("this program has a path");
        let folder = test.ancestors().nth(2).expect("cargo has started this program");
        // A folder of another profile does not count.
        if env::var_os(BUILT_FOLDER_ENV).is_none_or(|ready| Path::new(&ready) != folder) {
            build(folder);
        }
        folder.to_owned()
    })
}

fn build(folder: &Path) {
    let profile = folder.file_name().and_then(|name| name.to_str()).expect("a profile's folder");
    let profile = if profile == "debug" { "dev" } else { profile };
    let target = folder.parent().expect("it is in the target folder");
    let status = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--locked", "--offline", "--profile", profile])
        .args([
            "--package",
            "ferroce-cli",
            "--package",
            "ferroce-capi",
            "--package",
            "ferroce-view",
            "--package",
            "ferroce-sockets",
        ])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status();
    assert!(status.expect("cargo runs").success(), "the command and the libraries are built");
}

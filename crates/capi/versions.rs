//! Shared by the build scripts of `capi` and `view`: reading the list of exports in `src/export.rs`, and passing a
//! version script to the linker.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Returns version and name of every function in the list of exports.
pub(crate) fn exports(list: &str) -> Vec<(String, String)> {
    println!("cargo:rerun-if-changed={list}");
    let source = fs::read_to_string(list).expect("the list of exports can be read");
    let list = source.split_once("exports! {\n").expect("the list of exports is there").1;
    let mut version = String::new();
    let mut symbols = Vec::new();
    for line in list.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix('"').and_then(|rest| rest.split_once("\" {")) {
            version = name.to_owned();
        } else if let Some((name, _)) = line.split_once(" => ") {
            symbols.push((version.clone(), name.to_owned()));
        }
    }
    symbols
}

/// Makes the linker assign these versions to the symbols. The symbols of a version are consecutive.
pub(crate) fn link_with(symbols: &[(String, String)]) {
    let mut script = String::new();
    let mut current = "";
    for (version, name) in symbols {
        if version != current {
            script += if current.is_empty() { "" } else { "};\n" };
            script += &format!("{version} {{\n  global:\n");
            current = version;
        }
        script += &format!("    {name};\n");
    }
    script += "};\n";
    let path = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("versions");
    fs::write(&path, script).expect("the version script can be written");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    if !links_with_lld() {
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    }
}

/// Whether the compiler uses LLD by default. GNU ld accepts no second version script beside the compiler's, so LLD is
/// requested otherwise, and has to be installed (Debian: lld).
fn links_with_lld() -> bool {
    /// The first minor version that does, and the processor.
    const SINCE: (u32, &str) = (90, "x86_64");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output().map(|output| output.stdout);
    let said = String::from_utf8(said.unwrap_or_default()).unwrap_or_default();
    let minor = said.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0u32);
    minor >= SINCE.0 && env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == SINCE.1)
}

//! The linker's version script, from the list of exports, and the name of the library.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const LIST: &str = "src/export.rs";
/// Beside the functions of the list, a variable.
const VARIABLE: (&str, &str) = ("IBVERBS_PRIVATE_65", "verbs_allow_disassociate_destroy");

fn main() {
    println!("cargo:rerun-if-changed={LIST}");
    println!("cargo:rerun-if-changed=build.rs");
    let source = fs::read_to_string(LIST).expect("the list of exports can be read");
    let list = source.split_once("exports! {\n").expect("the list of exports is there").1;
    let mut script = String::new();
    for line in list.lines().map(str::trim) {
        if let Some((version, _)) = line.strip_prefix('"').and_then(|rest| rest.split_once("\" {"))
        {
            script += &format!("{version} {{\n  global:\n");
            if version == VARIABLE.0 {
                script += &format!("    {};\n", VARIABLE.1);
            }
        } else if let Some((name, _)) = line.split_once(" => ") {
            script += &format!("    {name};\n");
        } else if line == "}" {
            script += "};\n";
        }
    }
    // The last brace is the list's own.
    let script = script.strip_suffix("};\n").unwrap_or(&script);
    let out = env::var_os("OUT_DIR").expect("cargo says where to");
    let path = Path::new(&out).join("versions");
    fs::write(&path, script).expect("the version script can be written");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", path.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    if !links_with_lld() {
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    }
}

/// Whether the compiler's own choice is LLD. GNU ld takes no second version script beside the compiler's, so LLD is asked
/// for where it is not, and has to be installed (Debian: lld).
fn links_with_lld() -> bool {
    /// From this minor version on, for this processor.
    const SINCE: (u32, &str) = (90, "x86_64");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output().map(|output| output.stdout);
    let said = String::from_utf8(said.unwrap_or_default()).unwrap_or_default();
    let minor = said.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0u32);
    minor >= SINCE.0 && env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == SINCE.1)
}

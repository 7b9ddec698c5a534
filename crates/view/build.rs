//! The entries that lead to our libibverbs and librdmacm (`src/forward.rs`): assembly, names, and the linker's version script.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

#[path = "../capi/versions.rs"]
mod versions;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../capi/versions.rs");
    let symbols: Vec<_> =
        versions::exports("../capi/src/export.rs").into_iter().filter(is_forwarded).collect();
    versions::link_with(&symbols);
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).expect("the build's folder can be written");
    };
    write("entries.s", assembly(&symbols, &arch));
    let mut names = format!("[(&CStr, &CStr); {}] = [\n", symbols.len());
    for (version, name) in &symbols {
        let _ = writeln!(names, "    (c\"{name}\", c\"{version}\"),");
    }
    let text = format!("static NAMES: {names}];\nconst COUNT: usize = {};\n", symbols.len());
    write("names.rs", text);
}

/// The names that only libibverbs and librdmacm have. Those of rsockets (`rread`, `rclose` and so on) a library that has
/// nothing to do with RDMA may have as well, and would then get ours; and private symbols belong to the drivers beside a
/// library, which know its insides.
fn is_forwarded((version, name): &(String, String)) -> bool {
    let prefixes = ["ibv_", "_ibv_", "rdma_", "mult_to_ibv_", "mbps_to_ibv_"];
    !version.contains("PRIVATE") && prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// An entry jumps to where its slot says: at first to code that looks the function up, with the entry's number in a register
/// that calls may change on their way.
fn assembly(symbols: &[(String, String)], arch: &str) -> String {
    let mut text = "    .text\n".to_owned();
    let mut slots = "    .section .data.rel.ferroce_slots,\"aw\"\n    .balign 8\n".to_owned();
    slots += "    .globl ferroce_slots\n    .hidden ferroce_slots\nferroce_slots:\n";
    for (number, (_, name)) in symbols.iter().enumerate() {
        let offset = 8 * number;
        let (jump, first) = match arch {
            "x86_64" => (
                format!("jmp qword ptr [rip + ferroce_slots + {offset}]"),
                format!("mov r11d, {number}\n    jmp ferroce_first"),
            ),
            "aarch64" => (
                format!(
                    "adrp x16, ferroce_slots + {offset}\n    ldr x16, [x16, :lo12:ferroce_slots + {offset}]\n    br x16"
                ),
                format!("mov w17, #{number}\n    b ferroce_first"),
            ),
            other => panic!("no entries for {other} yet"),
        };
        let _ = write!(
            text,
            "    .balign 16\n    .globl {name}\n    .type {name}, @function\n{name}:\n    {jump}\n\
             ferroce_first_{number}:\n    {first}\n    .size {name}, . - {name}\n"
        );
        let _ = writeln!(slots, "    .quad ferroce_first_{number}");
    }
    text + &slots + "    .text\n"
}

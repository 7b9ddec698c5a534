//! Generates the stubs of `src/forward.rs`: assembly, symbol names, and the linker's version script.

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
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    let out = env::var_os("OUT_DIR").expect("set by cargo");
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).expect("write to OUT_DIR");
    };
    write("entries.s", assembly(&symbols, &arch));
    let mut names = format!("[(&CStr, &CStr); {}] = [\n", symbols.len());
    for (version, name) in &symbols {
        let _ = writeln!(names, "    (c\"{name}\", c\"{version}\"),");
    }
    let text = format!("static NAMES: {names}];\nconst COUNT: usize = {};\n", symbols.len());
    write("names.rs", text);
}

/// Whether a symbol is forwarded: only names that are unique to libibverbs and librdmacm. Names of rsockets (`rread`, `rclose`
/// and so on) may also occur in libraries unrelated to RDMA, whose calls would then be forwarded by mistake. Private symbols
/// belong to the drivers that come with a library and depend on its internals.
fn is_forwarded((version, name): &(String, String)) -> bool {
    let prefixes = ["ibv_", "_ibv_", "rdma_", "mult_to_ibv_", "mbps_to_ibv_"];
    !version.contains("PRIVATE") && prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the assembly of the stubs. A stub jumps to the address in its slot: initially code that resolves the function, with
/// the number of the stub in a register that the ABI lets calls clobber.
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

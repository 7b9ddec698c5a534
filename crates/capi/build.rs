//! Generates the linker's version script from the list of exports, and sets the soname.

mod versions;

/// A variable, which is not in the list of functions.
const VARIABLE: (&str, &str) = ("IBVERBS_PRIVATE_65", "verbs_allow_disassociate_destroy");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=versions.rs");
    let mut symbols = versions::exports("src/export.rs");
    let index = symbols.iter().position(|(version, _)| version == VARIABLE.0);
    let index = index.expect("the variable's version has functions, too");
    symbols.insert(index, (VARIABLE.0.to_owned(), VARIABLE.1.to_owned()));
    versions::link_with(&symbols);
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
}

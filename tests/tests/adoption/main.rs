//! What a stranger copies or installs to use Ferroce.
//!
//! - [`porting`]: the figures of `docs/porting.md` are those of a device.
//! - [`ci`]: the commands of the CI jobs in `contrib/ci` are executed, in a project and a home directory of their own.
//! - [`containers`]: the commands of the containers and pods in `contrib` are executed, each in a network namespace.
//! - [`package`]: the Debian package works where it is installed.
//! - [`static_binary`]: the command as one file runs without any library.

mod ci;
mod containers;
mod package;
mod porting;
mod static_binary;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_test_support::{built, skip};
use ferroce_tests::tool;
use serde_json::Value;

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns an empty folder.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("adoption").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Returns the documents of a YAML file in `contrib`. Returns `None`, after a skip, if no parser is installed.
fn yaml(name: &str) -> Option<Vec<Value>> {
    let mut python = tool::python();
    if !python.args(["-c", "import yaml"]).output().is_ok_and(|output| output.status.success()) {
        skip("python3-yaml is not installed: run `make setup`");
        return None;
    }
    let program = "import json, sys, yaml\n\
                   print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let mut python = tool::python();
    python.args(["-c", program]).arg(root().join("contrib").join(name));
    Some(serde_json::from_slice(&tool::run(&mut python)).expect("JSON"))
}

/// Returns `make`, not influenced by an outer one, which installs what is already built.
fn make() -> Command {
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("DESTDIR");
    make.arg("--no-print-directory").env("BUILT", built::folder()).current_dir(root());
    make
}

/// Returns a list of strings in a document.
fn strings(value: &Value) -> Vec<String> {
    let texts = value.as_array().expect("a list").iter().map(|text| text.as_str());
    texts.map(|text| text.expect("a string").to_owned()).collect()
}

//! Locates and runs the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_test_support::{built, skip};
use ferroce_tests::hosts::Hosts;
use ferroce_tests::{libraries, tool};
use serde_json::Value;

/// The folder of Debian's package rdma-core; some files are compressed.
const PACKAGE: &str = "/usr/share/doc/rdma-core/tests";
const PYTHON: &str = "/usr/bin/python3";
/// The module that looks for the device's interface under /sys, which `ferroce run` provides.
const MANAGER: &str = "test_rdmacm";
/// Seconds per test: the slowest takes half a second on an idle machine.
const LIMIT: &str = "60";
/// Modules for the devices of two vendors, all of whose tests are skipped: they share a process.
const VENDORS: [&str; 2] = ["test_mlx5_", "test_efa"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Skip,
    Fail,
}

#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) module: String,
    /// Class and function.
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// The suite's message if it was skipped or failed.
    pub(crate) reason: String,
}

/// The device that the tests use.
#[derive(Clone, Copy)]
pub(crate) enum Device<'a> {
    /// The loopback of this namespace.
    Loopback,
    /// The Ethernet interface of the first host.
    Ethernet(&'a Hosts),
}

impl Device<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Loopback => "ferroce_lo",
            Self::Ethernet(_) => "ferroce_eth0",
        }
    }

    /// Returns a command that runs where the device is.
    fn place(self, command: Command) -> Command {
        match self {
            Self::Loopback => command,
            Self::Ethernet(hosts) => hosts.command(0, &command),
        }
    }
}

pub(crate) struct Suite {
    folder: PathBuf,
    modules: Vec<String>,
    version: String,
}

impl Suite {
    /// Unpacks the tests. Returns `None`, after a skip, if they are not installed.
    pub(crate) fn unpack() -> Option<Self> {
        let has_pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs.device"]).output();
        if !Path::new(PACKAGE).is_dir() || !has_pyverbs.is_ok_and(|it| it.status.success()) {
            skip("rdma-core or python3-pyverbs is not installed: run `make setup`");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyverbs");
        let tests = folder.join("tests");
        fs::create_dir_all(&tests).expect("a folder for the tests");
        let mut modules = Vec::new();
        for entry in fs::read_dir(PACKAGE).expect("the package's folder") {
            let path = entry.expect("its entries").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let plain = name.trim_end_matches(".gz");
            let text = if plain == name {
                fs::read(&path).expect("a module")
            } else {
                tool::run(Command::new("gzip").arg("-dc").arg(&path))
            };
            fs::write(tests.join(plain), text).expect("a module can be written");
            let module = plain.strip_suffix(".py").filter(|name| name.starts_with("test_"));
            modules.extend(module.map(str::to_owned));
        }
        modules.sort();
        let mut query = Command::new("dpkg-query");
        let version = tool::run(query.args(["-f", "${Version}", "-W", "python3-pyverbs"]));
        let version = String::from_utf8_lossy(&version);
        let version = version.split('-').next().unwrap_or_default().to_owned();
        Some(Self { folder, modules, version })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Runs all modules, each in its own process, so that a crash affects no other. There are no results if the device
    /// has no address of this family.
    pub(crate) fn run(&self, device: Device<'_>, family: &str) -> Vec<Tested> {
        let vendors = |name: &&str| VENDORS.iter().any(|vendor| name.starts_with(vendor));
        let modules = self.modules.iter().map(String::as_str);
        let (others, generic): (Vec<_>, Vec<_>) = modules.partition(vendors);
        let mut results: Vec<_> = generic
            .into_iter()
            .flat_map(|module| self.run_modules(device, family, &[module]))
            .collect();
        results.extend(self.run_modules(device, family, &others));
        results.sort_by(|a, b| (&a.module, &a.name).cmp(&(&b.module, &b.name)));
        results
    }

    /// Runs modules in one process.
    pub(crate) fn run_modules(
        &self,
        device: Device<'_>,
        family: &str,
        modules: &[&str],
    ) -> Vec<Tested> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("pyverbs/run.py");
        let mut command = if modules == [MANAGER] && has_manager() {
            with_files()
        } else {
            libraries::program(PYTHON).expect("it ran before")
        };
        command.arg(script).arg(&self.folder).args([device.name(), family, LIMIT]).args(modules);
        let output = device.place(command).output().expect("Python starts");
        let mut results = Vec::new();
        let mut started = None;
        // The output of a test's processes has more detail than the failure itself.
        let mut aside = String::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(told) = serde_json::from_str::<Value>(line) else {
                aside = aside + line + "\n";
                continue;
            };
            let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
            let outcome = match text("outcome").as_str() {
                "start" => {
                    started = Some(text("test"));
                    continue;
                }
                "pass" => Outcome::Pass,
                "skip" => Outcome::Skip,
                _ => Outcome::Fail,
            };
            let reason = match outcome {
                Outcome::Fail => text("reason") + &aside,
                _ => text("reason"),
            };
            aside.clear();
            results.push(result(&text("test"), outcome, reason));
            started = None;
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let name = started.unwrap_or_else(|| format!("{}.(all)", modules[0]));
            results.push(result(&name, Outcome::Fail, format!("{}: {said}", output.status)));
        }
        results
    }
}

/// Whether librdmacm is implemented, according to the list of exports.
fn has_manager() -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/capi/src/export.rs");
    let list = fs::read_to_string(path).expect("the list of exports");
    !list.contains("rdma_create_id => refuse::")
}

/// Returns Python under `ferroce run`.
fn with_files() -> Command {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(["run", "--", PYTHON]);
    command
}

fn result(id: &str, outcome: Outcome, reason: String) -> Tested {
    let (module, name) = id.split_once('.').unwrap_or((id, ""));
    Tested { module: module.to_owned(), name: name.to_owned(), outcome, reason }
}

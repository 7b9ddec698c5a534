//! Where programs run: `ferroce run`, on this host or on one of two others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ferroce_tests::tool;

/// The command, after it is built with its libraries.
pub(crate) fn ferroce() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--quiet"]);
        tool::run(build.args(["-p", "ferroce-cli", "-p", "ferroce-view", "-p", "ferroce-capi"]));
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("../debug/ferroce")
    })
}

/// Whether a program is there, and a word about it when it is not.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: {program} is not installed: run `make setup`");
    }
    found
}

/// Two hosts with a cable between them. They go with this.
pub(crate) struct Hosts {
    names: [String; 2],
}

fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    let ran = command.args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

impl Hosts {
    /// `None`, and a word about it, where namespaces cannot be made.
    pub(crate) fn new() -> Option<Self> {
        let names = ["a", "b"].map(|side| format!("ferroce-apps-{}{side}", std::process::id()));
        let [a, b] = &names;
        if !ip(&format!("netns add {a}")) {
            eprintln!("SKIPPED: network namespaces need root and iproute2");
            return None;
        }
        let hosts = Self { names: names.clone() };
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}")));
        for (side, name) in names.iter().enumerate() {
            assert!(ip(&format!("-n {name} link set lo up")));
            assert!(ip(&format!("-n {name} address add {}/24 dev eth0", Self::address(side))));
            assert!(ip(&format!("-n {name} link set eth0 up")));
        }
        hosts.names.iter().for_each(|name| wait_for_signal(name));
        Some(hosts)
    }

    pub(crate) fn address(side: usize) -> String {
        format!("10.9.0.{}", side + 1)
    }

    /// A program on one of them, by `ferroce run` without any option.
    pub(crate) fn program(&self, side: usize, name: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[side]]).arg(ferroce()).args(["run", "--", name]);
        plain(&mut command);
        command
    }
}

/// A port counts as active when the kernel has noticed the cable.
fn wait_for_signal(name: &str) {
    for _ in 0..1000 {
        let mut command = Command::new("ip");
        let shown = tool::run(command.args(["-n", name, "link", "show", "eth0"]));
        if String::from_utf8_lossy(&shown).contains("state UP") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{name}: no signal on the cable");
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| assert!(ip(&format!("netns delete {name}"))));
    }
}

/// What the surroundings have set is not for these programs.
pub(crate) fn plain(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["FERROCE_", "UCX_", "OMPI_", "FI_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD").stdin(Stdio::null());
}

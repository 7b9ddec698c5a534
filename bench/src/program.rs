//! A program of a sample: its command line, how it runs, and when a server is ready.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runner {
    /// As it is.
    Plain,
    /// By `ferroce run`.
    Ferroce,
    /// A subcommand of this program.
    Driver,
    /// The command `ferroce` itself.
    Command,
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) runner: Runner,
    /// Name and arguments, separated by spaces.
    pub(crate) line: String,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Whether it loses CAP_NET_ADMIN, and with it the right to exceed `net.core.rmem_max`.
    pub(crate) ordinary_user: bool,
    /// Whether packets between processes on one host may go through shared memory instead of sockets.
    pub(crate) memory: bool,
}

/// When a server can serve, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It listens on a TCP port, and ends when its client has ended.
    Once(u16),
    /// It listens on a TCP port, and runs until it is killed.
    Serves(u16),
    /// It has printed a line that contains this, and runs until it is killed.
    Prints(&'static str),
}

impl Program {
    fn new(runner: Runner, line: impl Into<String>) -> Self {
        Self {
            runner,
            line: line.into(),
            variables: Vec::new(),
            ordinary_user: false,
            memory: false,
        }
    }

    /// A program as it is.
    pub(crate) fn plain(line: impl Into<String>) -> Self {
        Self::new(Runner::Plain, line)
    }

    /// A program on Ferroce's devices.
    pub(crate) fn on_ferroce(line: impl Into<String>) -> Self {
        Self::new(Runner::Ferroce, line)
    }

    /// A driver of this program.
    pub(crate) fn driver(line: impl Into<String>) -> Self {
        Self::new(Runner::Driver, line)
    }

    /// The command `ferroce`.
    pub(crate) fn command(line: impl Into<String>) -> Self {
        Self::new(Runner::Command, line)
    }

    /// Sets an environment variable.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Takes CAP_NET_ADMIN away.
    pub(crate) fn for_ordinary_user(mut self) -> Self {
        self.ordinary_user = true;
        self
    }

    /// All environment variables to set.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        let wire = matches!(self.runner, Runner::Driver | Runner::Command) && !self.memory;
        let wire = wire.then(|| ("FERROCE_LOCAL", "sockets".to_owned()));
        self.variables.iter().cloned().chain(wire)
    }

    /// The command line, for readers.
    pub(crate) fn shown(&self) -> String {
        let variables: String =
            self.environment().map(|(name, value)| format!("{name}={value} ")).collect();
        let runner = match self.runner {
            Runner::Plain => "",
            Runner::Ferroce if self.memory => "ferroce run -- ",
            Runner::Ferroce => "ferroce run --wire -- ",
            Runner::Driver => "ferroce-bench driver ",
            Runner::Command => "ferroce ",
        };
        // The folder of this program, as `make bench` has it.
        let exe = env::current_exe().ok();
        let folder = exe.as_deref().and_then(Path::parent).map(Path::to_string_lossy);
        let line = match folder {
            Some(folder) => self.line.replace(&*folder, "target/release"),
            None => self.line.clone(),
        };
        let user = if self.ordinary_user { "setpriv --bounding-set -net_admin -- " } else { "" };
        format!("{variables}{user}{runner}{line}")
    }

    /// The program that has to be installed, and the Debian package that has it, if it is not.
    pub(crate) fn missing(&self) -> Option<String> {
        let name = match self.runner {
            // `env NAME=VALUE… PROGRAM`.
            Runner::Plain | Runner::Ferroce => {
                self.line.split(' ').find(|word| *word != "env" && !word.contains('='))
            }
            Runner::Driver | Runner::Command => None,
        };
        let setpriv = self.ordinary_user.then_some("setpriv");
        let name = name.into_iter().chain(setpriv).find(|name| !is_installed(name))?;
        Some(format!("{name} is not installed: apt-get install {}", package(name)))
    }

    /// The words of the command.
    pub(crate) fn words(&self) -> Result<Vec<String>, String> {
        let mut words: Vec<String> = Vec::new();
        if self.ordinary_user {
            let drop =
                ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"];
            words.extend(drop.map(str::to_owned));
        }
        match self.runner {
            Runner::Plain => {}
            Runner::Ferroce => {
                words.extend([beside("ferroce")?, "run".into()]);
                words.extend((!self.memory).then(|| "--wire".into()));
                words.push("--".into());
            }
            Runner::Driver => words.extend([beside("ferroce-bench")?, "driver".into()]),
            Runner::Command => words.push(beside("ferroce")?),
        }
        words.extend(self.line.split_whitespace().map(str::to_owned));
        Ok(words)
    }
}

/// Returns a command from words.
pub(crate) fn command(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command.args(words);
    command
}

/// Returns the path of a program in the folder of this one.
fn beside(name: &str) -> Result<String, String> {
    let exe = env::current_exe().map_err(|error| error.to_string())?;
    let path = exe.with_file_name(name);
    if path.is_file() {
        return Ok(path.to_string_lossy().into_owned());
    }
    Err(format!("{} does not exist: run `make bench`, which builds it", path.display()))
}

/// Whether a program is in `PATH`.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    name.contains('/') && Path::new(name).is_file()
        || folders.iter().any(|folder| folder.join(name).is_file())
}

/// The Debian package of a program.
pub(crate) fn package(name: &str) -> &str {
    match name {
        name if name.starts_with("ib_") => "perftest",
        "ucx_perftest" => "ucx-utils",
        "fi_pingpong" => "libfabric-bin",
        "unshare" | "setpriv" | "nsenter" => "util-linux",
        "ip" => "iproute2",
        "qemu-system-x86_64" => "qemu-system-x86",
        "dumpcap" => "wireshark-common",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_a_user_types_them() {
        let mut program = Program::on_ferroce("ib_write_bw -q 2").with("FERROCE_FAULTS", "loss=1%");
        let shown = "FERROCE_FAULTS=loss=1% ferroce run --wire -- ib_write_bw -q 2";
        assert_eq!(program.shown(), shown);
        program.memory = true;
        assert_eq!(program.shown(), shown.replace(" --wire", ""));
        let exe = env::current_exe().unwrap();
        let program = Program::plain(format!("peer {}", exe.parent().unwrap().display()));
        assert_eq!(program.shown(), "peer target/release");
        let program = Program::driver("write-server").for_ordinary_user();
        assert!(program.shown().ends_with("-net_admin -- ferroce-bench driver write-server"));
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = Program::plain("ib_no_such_thing -q 1").missing().unwrap();
        assert_eq!(missing, "ib_no_such_thing is not installed: apt-get install perftest");
        assert_eq!(Program::plain("env A=b sh -c true").missing(), None);
        assert_eq!(Program::driver("write-server").missing(), None);
    }
}

//! `ferroce run`: runs a command on Ferroce's devices.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};

use clap::{Args, ValueHint};
use ferroce_sys::signal::{Signal, Signals, send};

use crate::environment::{Environment, EnvironmentArgs};
use crate::style::Screen;

/// The exit statuses of `run` itself, as of env(1) and timeout(1). Lower numbers belong to the command.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments of `ferroce run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    environment: EnvironmentArgs,

    /// Print the variables that are set
    #[arg(long, short)]
    verbose: bool,

    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// Runs a command, and returns its exit status.
pub(crate) fn run(args: &RunArgs, screen: &Screen) -> ExitCode {
    match try_run(args, screen) {
        Ok(code) => code.into(),
        Err(message) => {
            screen.complain(message);
            FAILED.into()
        }
    }
}

fn try_run(args: &RunArgs, screen: &Screen) -> Result<u8, String> {
    // First, so that no signal terminates us while there is a folder to remove.
    let signals = Signals::new().map_err(|error| error.to_string())?;
    let environment = Environment::of_this_process(&args.environment)?;
    if args.verbose {
        for variable in &environment.variables {
            eprintln!("{}={}", variable.name, Path::new(&variable.value).display());
        }
    }
    if environment.is_empty {
        // Programs only report that there is no device, not why.
        screen.complain("no device: no network interface is up with an address; bring one up with `ip link set DEV up`");
    }
    let [program, arguments @ ..] = args.command.as_slice() else {
        return Err("no command".into());
    };
    if let Some(libraries) = environment.libraries() {
        for obstacle in crate::doctor::obstacles(program, libraries) {
            screen.complain(format_args!("warning: {obstacle}"));
        }
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command.envs(environment.variables.iter().map(|variable| (variable.name, &variable.value)));
    let ledger = environment.ledger();
    command.envs(ledger.iter().map(|folder| ("FERROCE_LEDGER", folder)));
    let child = match signals.restore_mask(&mut command).spawn() {
        Ok(child) => child,
        Err(error) => {
            let program = Path::new(program).display();
            if error.kind() == io::ErrorKind::NotFound {
                screen.complain(format_args!("{program}: command not found"));
                return Ok(NOT_FOUND);
            }
            screen.complain(format_args!("{program}: {error}"));
            return Ok(NOT_EXECUTABLE);
        }
    };
    environment.is_used_by(child.id());
    let status = wait(child, &signals)?;
    if let Some(folder) = ledger {
        say_goodbye(&folder);
    }
    Ok(code(status))
}

/// Disconnects the peers of processes that were killed or called `_exit`. Other processes have removed their ledger.
fn say_goodbye(ledger: &Path) {
    let Ok(files) = ledger.read_dir() else { return };
    for path in files.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((process, _)) = name.split_once('-') else { continue };
        if !Path::new("/proc").join(process).exists() {
            let options = ferroce::Options::from_env().unwrap_or_default();
            ferroce::disconnect_orphans(&path, &options);
        }
    }
}

/// Waits for the command and forwards signals to it.
fn wait(mut child: Child, signals: &Signals) -> Result<ExitStatus, String> {
    loop {
        match signals.wait().map_err(|error| error.to_string())? {
            Signal::Child => {
                let ended = child.try_wait();
                let ended =
                    ended.map_err(|error| format!("cannot wait for the command: {error}"))?;
                if let Some(status) = ended {
                    return Ok(status);
                }
            }
            // The command has received it from the terminal already.
            Signal::Terminal(_) => {}
            Signal::Process(signal) => send(child.id(), signal),
        }
    }
}

/// The status as a shell reports it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_signal_is_128_plus_its_number() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
        // With a core dump.
        assert_eq!(code(ExitStatus::from_raw(0x80 | 11)), 139);
    }
}

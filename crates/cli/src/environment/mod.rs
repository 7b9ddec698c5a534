//! What a program needs around it to find Ferroce's devices: libraries, variables, and a view of `/sys` and `/dev`.
//!
//! `ferroce run` sets it up for one command, `ferroce env` for a shell.

mod devices;
mod folder;
mod libraries;
mod messaging;
mod variables;
mod view;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use ferroce::Names;

use crate::exit::ExitStatus;
use crate::style::Screen;
use folder::{Folder, Owner};
use libraries::Wanted;
use variables::Variable;

/// Options of `ferroce run` and `ferroce env`.
#[derive(Args, Debug)]
pub(crate) struct EnvironmentArgs {
    /// Show these devices alone, by their names or their interfaces'; may be repeated
    #[arg(long = "device", value_name = "NAME", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,

    /// Call the devices by this pattern: %d is a device's number, %s its interface [default: ferroce_%s]
    ///
    /// For programs and scripts that look for names such as rxe0 or mlx5_0: --name rxe%d.
    #[arg(long = "name", value_name = "PATTERN")]
    pub(crate) names: Option<Names>,

    /// Write all packets to a pcapng file; %p in its name is the process's number
    ///
    /// A file has one writer: where several processes use devices, their files need names of their own, with %p.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    /// Say each call of the libraries, with its time (UTC), arguments, result and duration, on the standard error output or
    /// in a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-",
        value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// Carry TCP connections over RDMA, and over TCP where the peer does not
    ///
    /// A server that listens by TCP is reached by RDMA, too, at the same address and port. A client tries RDMA first, for a
    /// second at most, and then TCP. Programs that are linked statically or make system calls themselves do not notice.
    #[arg(long, conflicts_with = "no_libraries")]
    pub(crate) sockets: bool,

    /// The views of /sys and /dev alone, without libibverbs and librdmacm
    #[arg(long, hide = true)]
    pub(crate) no_libraries: bool,
}

/// All of it. The view's folder goes with this value.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) variables: Vec<Variable>,
    /// There is no device in it.
    pub(crate) is_empty: bool,
    folder: Folder,
}

impl Environment {
    /// Sets it up, for as long as this process lives.
    pub(crate) fn of_this_process(args: &EnvironmentArgs) -> Result<Self, String> {
        Self::new(args, &Owner::this_process())
    }

    fn new(args: &EnvironmentArgs, owner: &Owner) -> Result<Self, String> {
        let devices = devices::chosen(&args.devices, args.names.as_ref())?;
        let wanted = Wanted { verbs: !args.no_libraries, sockets: args.sockets };
        let found = libraries::Found::new(wanted)?;
        let capture = args.capture.as_deref().map(variables::capture).transpose()?;
        let folder = Folder::new(owner)
            .map_err(|error| format!("cannot make a folder for the view: {error}"))?;
        let place = |error| format!("{}: cannot make the view: {error}", folder.path().display());
        view::build(folder.path(), &devices).map_err(place)?;
        let libraries = found.placed(folder.path()).map_err(place)?;
        let interfaces: Vec<_> =
            devices.iter().map(|device| device.interface().name.as_str()).collect();
        let mut variables = vec![
            Variable::path("FERROCE_VIEW", folder.path().to_owned()),
            // The libraries show what the view shows, also when an interface comes up meanwhile.
            Variable::text("FERROCE_DEVICES", interfaces.join(",")),
        ];
        let preloaded = libraries.sockets.iter().chain([&libraries.view]);
        // What the user preloads stays in front: it may stand before functions that ours have, too, and sanitizers must
        // come first.
        variables.push(Variable::behind("LD_PRELOAD", preloaded, b": "));
        if let Some(folder) = libraries.folder {
            // For programs that carry a libibverbs under another name: the view leads their calls here.
            variables.push(Variable::path("FERROCE_VERBS", folder.join("libibverbs.so.1")));
            variables.push(Variable::before("LD_LIBRARY_PATH", folder, b":"));
        }
        let names = args.names.as_ref().map(ToString::to_string);
        variables.extend(names.map(|names| Variable::text("FERROCE_NAME", names)));
        variables.extend(capture.map(|path| Variable::path("FERROCE_CAPTURE", path)));
        if let Some(path) = &args.trace {
            variables.push(variables::trace(path)?);
            // A program that we have not started ourselves may have others beside it: its lines say which it is.
            variables.push(Variable::text("FERROCE_RUN", std::process::id().to_string()));
        }
        variables.extend(messaging::variables(args));
        Ok(Self { variables, is_empty: devices.is_empty(), folder })
    }

    /// A folder in which processes write their connections down, for whoever says goodbye when they are killed.
    pub(crate) fn ledger(&self) -> Option<PathBuf> {
        let path = self.folder.path().join("connections");
        std::fs::create_dir(&path).ok()?;
        Some(path)
    }

    /// Notes a process that needs the view, even if this one is killed before it.
    pub(crate) fn is_used_by(&self, process: u32) {
        self.folder.is_used_by(process);
    }
}

/// Writes the variables for a shell.
pub(crate) fn run(args: &EnvironmentArgs, screen: &Screen) -> ExitStatus {
    match Environment::new(args, &Owner::session()) {
        Ok(environment) => {
            // The folder stays. The next `ferroce run` or `env` after the session has ended removes it.
            environment.folder.stay();
            let mut output = io::stdout().lock();
            let result = environment
                .variables
                .iter()
                .try_for_each(|variable| output.write_all(&variable.exported()))
                .map(|()| ExitStatus::Success);
            ExitStatus::of_output(result, screen)
        }
        Err(message) => {
            screen.complain(message);
            ExitStatus::Failure
        }
    }
}

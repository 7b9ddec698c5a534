//! The environment in which a program finds Ferroce's devices: libraries, variables, and a view of `/sys` and `/dev`.
//!
//! `ferroce run` sets it up for one command, `ferroce env` for a shell.

mod devices;
mod folder;
mod libraries;
mod messaging;
mod variables;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use ferroce::Names;

use crate::capture::PolicyArgs;
use crate::exit::ExitStatus;
use crate::style::Screen;
use folder::{Folder, Owner};
use libraries::Wanted;
pub(crate) use messaging::selects;
use variables::Variable;

/// Options of `ferroce run` and `ferroce env`.
#[derive(Args, Debug)]
pub(crate) struct EnvironmentArgs {
    /// Show only these devices, by name or interface; can be repeated
    #[arg(long = "device", value_name = "NAME", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,

    /// Name the devices by this pattern: %d is the device's number, %s its interface [default: ferroce_%s]
    ///
    /// For programs and scripts that expect names such as rxe0 or mlx5_0: --name rxe%d.
    #[arg(long = "name", value_name = "PATTERN")]
    pub(crate) names: Option<Names>,

    /// Write all packets to a pcapng file; %p in its name becomes the process ID
    ///
    /// A file has one writer: if several processes use devices, use %p to give each its own file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    /// Trace each library call with its time (UTC), arguments, result and duration, on standard error or to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-",
        value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// Carry TCP connections over RDMA, and over TCP if the peer does not support it
    ///
    /// A server that listens on TCP also accepts RDMA connections at the same address and port. A client tries RDMA
    /// first, for at most one second, then TCP. Has no effect on programs that are linked statically or make system
    /// calls directly.
    #[arg(long, conflicts_with = "no_libraries")]
    pub(crate) sockets: bool,

    /// Send all packets through sockets, also between processes on this host
    ///
    /// By default, packets between processes of one user on one host go through memory that they share: faster, and
    /// --capture records them, but packet sniffers such as tcpdump do not see them.
    #[arg(long)]
    pub(crate) wire: bool,

    /// Only the views of /sys and /dev, without libibverbs and librdmacm
    #[arg(long, hide = true)]
    pub(crate) no_libraries: bool,
}

/// The environment. Dropping it removes the view's folder.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) variables: Vec<Variable>,
    /// It contains no device.
    pub(crate) is_empty: bool,
    folder: Folder,
}

impl Environment {
    /// Sets up the environment for the lifetime of this process.
    pub(crate) fn of_this_process(args: &EnvironmentArgs) -> Result<Self, String> {
        Self::new(args, &Owner::this_process())
    }

    fn new(args: &EnvironmentArgs, owner: &Owner) -> Result<Self, String> {
        let devices = devices::chosen(&args.devices, args.names.as_ref())?;
        let wanted = Wanted { verbs: !args.no_libraries, sockets: args.sockets };
        let found = libraries::Found::new(wanted)?;
        let capture = args.capture.as_deref().map(variables::capture).transpose()?;
        let folder = Folder::new(owner).map_err(|error| {
            format!("cannot create a folder for the view of the devices: {error}")
        })?;
        let place = |error| {
            format!("{}: cannot create the view of the devices: {error}", folder.path().display())
        };
        view::build(folder.path(), &devices).map_err(place)?;
        let libraries = found.placed(folder.path()).map_err(place)?;
        let interfaces: Vec<_> =
            devices.iter().map(|device| device.interface().name.as_str()).collect();
        let mut variables = vec![
            Variable::path("FERROCE_VIEW", folder.path().to_owned()),
            // The libraries show the same devices as the view, even if an interface comes up later.
            Variable::text("FERROCE_DEVICES", interfaces.join(",")),
        ];
        let preloaded = libraries.sockets.iter().chain([&libraries.view]);
        // The user's preloads stay first: they may interpose functions that our libraries define as well, and
        // sanitizers must come first.
        variables.push(Variable::behind("LD_PRELOAD", preloaded, b": "));
        if let Some(folder) = libraries.folder {
            // For programs with a renamed copy of libibverbs: the view redirects their calls here.
            variables.push(Variable::path("FERROCE_VERBS", folder.join("libibverbs.so.1")));
            variables.push(Variable::before("LD_LIBRARY_PATH", folder, b":"));
        }
        let names = args.names.as_ref().map(ToString::to_string);
        variables.extend(names.map(|names| Variable::text("FERROCE_NAME", names)));
        variables.extend(capture.map(|path| Variable::path("FERROCE_CAPTURE", path)));
        let policy = args.policy.capture_policy.map(|policy| policy.name().to_owned());
        variables.extend(policy.map(|policy| Variable::text("FERROCE_CAPTURE_POLICY", policy)));
        if args.wire {
            variables.push(Variable::text("FERROCE_LOCAL", "sockets".into()));
        }
        if let Some(path) = &args.trace {
            variables.push(variables::trace(path)?);
            // Several processes may trace to standard error, so each line contains the process ID.
            variables.push(Variable::text("FERROCE_RUN", std::process::id().to_string()));
        }
        variables.extend(messaging::variables(args));
        Ok(Self { variables, is_empty: devices.is_empty(), folder })
    }

    /// The folder of libibverbs and librdmacm, if they are used.
    pub(crate) fn libraries(&self) -> Option<&Path> {
        let verbs = self.variables.iter().find(|variable| variable.name == "FERROCE_VERBS")?;
        Path::new(&verbs.value).parent()
    }

    /// The folder in which processes record their connections, so that they can be disconnected if a process is killed.
    pub(crate) fn ledger(&self) -> Option<PathBuf> {
        let path = self.folder.path().join("connections");
        std::fs::create_dir(&path).ok()?;
        Some(path)
    }

    /// Records a process that needs the view even if this one is killed first.
    pub(crate) fn is_used_by(&self, process: u32) {
        self.folder.is_used_by(process);
    }
}

/// The folder in which `ferroce run` finds its libraries, or why it does not find them.
pub(crate) fn library_folder() -> Result<String, String> {
    let found = libraries::Found::new(Wanted { verbs: true, sockets: false })?;
    Ok(found.folder().display().to_string())
}

/// Whether `ferroce run` leaves this variable as it is: the user has set it. `outer` is the value of `FERROCE_TOLD`.
pub(crate) fn is_set_by_user(name: &str, value: &str, outer: &str) -> bool {
    !messaging::is_free(name, Some(value.into()), outer)
}

/// Prints the variables for a shell.
pub(crate) fn run(args: &EnvironmentArgs, screen: &Screen) -> ExitStatus {
    match Environment::new(args, &Owner::session()) {
        Ok(environment) => {
            // The folder stays. The next `ferroce run` or `env` after the end of the session removes it.
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

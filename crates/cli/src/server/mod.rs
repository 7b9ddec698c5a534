//! `ferroce server`: serves memory to clients over the network.

mod exchange;
mod report;
mod serve;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use clap::Args;
use ferroce::cm::{CmId, EventChannel, EventKind, PortSpace};
use ferroce::setup::Presence;
use ferroce::{Context, Device, SystemError, devices};

use crate::capture;
use crate::exit::ExitStatus;
use crate::session::address::Listen;
use crate::session::bytes::Size;
use crate::session::failure::Failure;
use crate::session::options;
use crate::session::set_up::SetUp;
use crate::style::Screen;
pub(crate) use report::{Report, Reporter};
use serve::{Budget, Offer, Session, accept, refuse};

/// The maximum number of clients, and of clients that have not confirmed their connection. A client takes a thread and
/// a few file descriptors.
const MAX_CLIENTS: usize = 256;
const MAX_UNCONFIRMED: usize = 128;

/// Arguments of `ferroce server`.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Where to listen: an address of this machine and an RDMA-CM port; 0 chooses any port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7471")]
    pub(crate) listen: Listen,

    /// Maximum memory for all clients together
    #[arg(long, value_name = "BYTES", default_value = "4G")]
    pub(crate) memory: Size,

    /// Write all packets to this file, for Wireshark; %p in its name becomes the process ID
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) policy: capture::PolicyArgs,

    /// Exit after the first client, with the status of its session
    #[arg(long)]
    pub(crate) once: bool,

    /// Print JSON: one line per event
    #[arg(long)]
    pub(crate) json: bool,

    /// Report every step, and exit at the end of standard input.
    #[arg(long, hide = true, requires = "json")]
    pub(crate) demo: bool,

    /// How the demo's connection is set up.
    #[arg(long, hide = true, requires = "demo", default_value = "cm")]
    pub(crate) set_up: SetUp,
}

/// Listens and serves until terminated.
pub(crate) fn run(args: &ServerArgs, screen: &Screen) -> ExitStatus {
    let reporter = Arc::new(Reporter::new(args.json, args.demo, *screen));
    let interrupted = Arc::clone(&reporter);
    match options(args.capture.as_ref(), args.policy) {
        Ok(options) => capture::finish_on_signal(&options, move || interrupted.captures()),
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    }
    if args.demo {
        // The end of standard input means that the parent process is gone.
        thread::spawn(|| {
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    let result = match args.set_up {
        SetUp::Cm => listen(args, &reporter),
        SetUp::Exchange => exchange::serve(args.listen.0, &reporter),
    };
    reporter.captures();
    match result {
        Ok(()) => ExitStatus::Success,
        Err(failure) => {
            screen.complain(failure);
            ExitStatus::Failure
        }
    }
}

fn listen(args: &ServerArgs, reporter: &Arc<Reporter>) -> Result<(), Failure> {
    let channel = EventChannel::with_options(options(args.capture.as_ref(), args.policy)?)?;
    let listener = CmId::new(&channel, PortSpace::Tcp)?;
    bind(&listener, args.listen.0)?;
    listener.listen(0)?;
    let address = listener.local_address().unwrap_or(args.listen.0);
    let _found = if args.demo { Vec::new() } else { found(address, args) };
    reporter.report(&Report::Listening { address });
    Session::new(reporter).say("cm", format!("listen(): accepting clients on {address}"));
    let budget = Arc::new(Budget::new(args.memory));
    let (mut offers, mut sessions) = (HashMap::new(), Vec::new());
    loop {
        let Some(event) = channel.wait(None)? else { continue };
        match event.kind {
            EventKind::ConnectRequest(request) => {
                sessions.retain(|session: &JoinHandle<_>| !session.is_finished());
                // A client confirms within a round trip, so the oldest unconfirmed one is dropped. Refusing new clients
                // would let anyone who never confirms lock them out.
                if offers.len() >= MAX_UNCONFIRMED {
                    let oldest = offers.iter().min_by_key(|(_, offer): &(_, &Offer)| offer.start);
                    let oldest = oldest.map(|(name, _)| *name);
                    if let Some(offer) = oldest.and_then(|name| offers.remove(&name)) {
                        offer.withdraw(reporter);
                    }
                }
                let name = request.id.name();
                let accepted = match sessions.len() >= MAX_CLIENTS {
                    true => Err(refuse(&request, "it has too many clients".into(), reporter)),
                    false => accept(request, &budget, reporter),
                };
                match accepted {
                    Ok(offer) => drop(offers.insert(name, offer)),
                    Err(failure) if args.once => return Err(failure),
                    Err(_) => {}
                }
            }
            EventKind::Established(_) => {
                let Some(offer) = offers.remove(&event.id) else { continue };
                let (reporter, budget) = (Arc::clone(reporter), Arc::clone(&budget));
                let serve = move || offer.serve(&budget, &reporter);
                let session = thread::Builder::new().spawn(serve);
                let session = session
                    .map_err(|error| Failure::Other(format!("cannot start a thread: {error}")))?;
                if args.once {
                    let panicked = |_| Err(Failure::Other("the session panicked".into()));
                    return session.join().unwrap_or_else(panicked);
                }
                sessions.push(session);
            }
            // The end of an established connection is noticed by its QP, which goes to the error state.
            _ => {
                if let Some(offer) = offers.remove(&event.id) {
                    offer.withdraw(reporter);
                }
            }
        }
    }
}

/// Answers `ferroce discover` for the served devices while the returned value exists. If another process already
/// answers, nothing is done.
fn found(address: SocketAddr, args: &ServerArgs) -> Vec<Presence> {
    let options = options(args.capture.as_ref(), args.policy).unwrap_or_default();
    let devices = match address.ip().is_unspecified() {
        true => devices(),
        false => Device::with_address(address).map(|(device, _)| vec![device]),
    };
    let open = |device| Context::open(&device, &options).ok();
    let contexts = devices.unwrap_or_default().into_iter().filter_map(open);
    contexts.filter_map(|context| Presence::new(&context).ok()).collect()
}

fn bind(listener: &CmId, address: SocketAddr) -> Result<(), Failure> {
    listener.bind(address).map_err(|error| match error {
        // The connection manager's ports are no UDP ports: `ss` does not show who has one.
        ferroce::cm::Error::System(SystemError::ServiceTaken { .. }) => {
            let port = address.port();
            Failure::Other(format!(
                "another server listens at port {port} of RDMA-CM already: choose another by \
                 --listen, or 0 for any"
            ))
        }
        error => error.into(),
    })
}

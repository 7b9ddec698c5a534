//! `ferroce perf --server`: runs the other side of tests, any number at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use ferroce::Options;
use serde::Serialize;

use super::control::{Control, Event, Message, PROTOCOL, VERSION, canonical};
use super::session::{Route, Session};
use super::test::Test;
use super::worker::Side;
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::session::failure::Failure;
use crate::style::Screen;

/// Tests at the same time. Each takes threads, memory and QPs.
const MAX_CLIENTS: usize = 64;

/// What the server prints: a line of text, or of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Report<'a> {
    Listening { address: SocketAddr },
    Started { client: SocketAddr, test: &'a Test },
    Finished { client: SocketAddr, sizes: usize },
    Failed { client: SocketAddr, failure: String },
}

/// How reports are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reporter {
    pub(super) json: bool,
    pub(super) screen: Screen,
    /// Only the address: the client that started the server prints the rest.
    pub(super) child: bool,
}

impl Reporter {
    fn report(&self, report: &Report<'_>) {
        let text = match report {
            Report::Listening { .. } => self.text(report),
            _ if self.child => return,
            _ => self.text(report),
        };
        // A closed pipe does not end the server.
        let mut output = io::stdout().lock();
        let _ = writeln!(output, "{text}").and_then(|()| output.flush());
    }

    fn text(&self, report: &Report<'_>) -> String {
        if self.json {
            return serde_json::to_string(report).unwrap_or_default();
        }
        match report {
            Report::Listening { address } => {
                format!("perf server: listening on TCP {address}; Ctrl-C stops it")
            }
            Report::Started { client, test } => {
                let longest = Size(test.longest());
                let sizes = match test.sizes.len() {
                    1 => longest.to_string(),
                    count => format!("{count} sizes up to {longest}"),
                };
                let (operation, measure) = (test.operation.name(), test.measure.name());
                let transport = test.transport.name();
                format!("{client}: {operation} {measure} over {transport}, {sizes}")
            }
            Report::Finished { client, .. } => format!("{client}: finished"),
            Report::Failed { client, failure } => {
                format!("{client}: failed: {}", crate::style::printable(failure))
            }
        }
    }
}

/// Listens and serves until terminated.
pub(super) fn run(listen: SocketAddr, reporter: Reporter) -> ExitStatus {
    let screen = &reporter.screen;
    if reporter.child {
        // The end of standard input means that the client is gone.
        thread::spawn(|| {
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    match bind(listen).and_then(|listener| serve(&listener, reporter)) {
        Ok(()) => ExitStatus::Success,
        Err(failure) => {
            screen.complain(failure);
            ExitStatus::Failure
        }
    }
}

fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    let refused = |error: io::Error| {
        let port = listen.port();
        Failure::Other(match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "cannot listen on {listen}: TCP port {port} is in use, perhaps by another perf \
                 server; choose another by --listen"
            ),
            _ => format!("cannot listen on {listen}: {error}; choose another by --listen"),
        })
    };
    TcpListener::bind(listen)
        .or_else(|error| match (error.kind(), listen.ip().is_unspecified()) {
            (io::ErrorKind::AddrInUse, _) | (_, false) => Err(error),
            // A host without IPv6.
            _ => TcpListener::bind(("0.0.0.0", listen.port())),
        })
        .map_err(refused)
}

fn serve(listener: &TcpListener, reporter: Reporter) -> Result<(), Failure> {
    let options = Options::from_env()?;
    let address =
        listener.local_addr().map_err(|error| Failure::Other(format!("cannot listen: {error}")))?;
    reporter.report(&Report::Listening { address });
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // A client that is gone already.
        let Ok(stream) = stream else { continue };
        let Ok(client) = stream.peer_addr().map(canonical) else { continue };
        let (options, clients) = (options.clone(), Arc::clone(&clients));
        let work = move || {
            let busy = clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS;
            let served = serve_client(stream, client, options, busy, reporter);
            clients.fetch_sub(1, Ordering::Relaxed);
            if let Err(failure) = served {
                reporter.report(&Report::Failed { client, failure: failure.to_string() });
            }
        };
        if let Err(error) = thread::Builder::new().spawn(work) {
            let failure = format!("cannot start a thread: {error}");
            reporter.report(&Report::Failed { client, failure });
        }
    }
    Ok(())
}

fn serve_client(
    stream: TcpStream,
    client: SocketAddr,
    options: Options,
    busy: bool,
    reporter: Reporter,
) -> Result<(), Failure> {
    let (sender, events) = mpsc::channel();
    let control = Control::new(stream, sender, events)?;
    let Message::Hello { protocol, version, test, ends } = control.receive()? else {
        return Err(Failure::IncompatiblePeer);
    };
    let refuse = |why: String| {
        let _ = control.send(&Message::Refuse { why: why.clone() });
        Err(Failure::Refused(why))
    };
    if protocol != PROTOCOL || version != VERSION {
        return refuse(format!("the server speaks version {VERSION} of {PROTOCOL}"));
    }
    if busy {
        return refuse(format!("the server runs {MAX_CLIENTS} tests already"));
    }
    // Before anything is allocated. Only the MTU is not known yet.
    if let Err(why) = test.check(u64::MAX) {
        return refuse(why);
    }
    let route = match Route::open(&control, options, test.threads) {
        Ok(route) => route,
        Err(failure) => return refuse(failure.to_string()),
    };
    if let Err(why) = test.check(route.mtu()) {
        return refuse(why);
    }
    reporter.report(&Report::Started { client, test: &test });
    let test = Arc::new(test);
    let mut session = Session::new(control, route, &test, Side::Server)?;
    session.connect(&ends)?;
    session.control.send(&Message::Accept { ends: session.ends() })?;
    let sizes = serve_sizes(&session, &test)?;
    reporter.report(&Report::Finished { client, sizes });
    Ok(())
}

/// Runs one size after another until the client leaves.
fn serve_sizes(session: &Session, test: &Test) -> Result<usize, Failure> {
    let mut sizes = 0;
    loop {
        // The client may take any time between two sizes, but it is there while the connection is.
        match session.control.events.recv() {
            Ok(Event::Peer(Message::Run { size })) if test.sizes.contains(&size) => {
                session.prepare(size)?;
                session.control.send(&Message::Go)?;
                let measured = session.run(size, |_| {})?;
                session.control.send(&Message::Done { tally: measured.own })?;
                sizes += 1;
            }
            Ok(Event::Peer(Message::Failed { why })) => return Err(Failure::Other(why)),
            Ok(Event::Peer(Message::Interrupt | Message::Mail { .. })) => {}
            Ok(Event::Peer(_)) => return Err(Failure::IncompatiblePeer),
            Ok(Event::Gone(_)) | Err(_) => return Ok(sizes),
            Ok(_) => {}
        }
    }
}

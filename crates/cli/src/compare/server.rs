//! `ferroce compare --server`: serves clients one after another, so that its CPU time is that of one transfer.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ferroce::cm::{CmId, EventChannel, EventKind, PortSpace};
use ferroce::{Buffer, Options, SystemError};
use ferroce_sys::random;
use serde::{Deserialize, Serialize};

use super::CompareArgs;
use super::control::{Control, Request, Response, VERSION};
use super::interrupt;
use super::memory;
use super::rdma;
use super::serve::{Arrival, Session};
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::session::end::COMPLETION_TIMEOUT;
use crate::session::failure::Failure;
use crate::style::{Role, Screen};

/// The maximum number of TCP connections: each takes a thread.
const MAX_CONNECTIONS: usize = 64;

/// How often a client that waits for its turn is told so.
const WAITING_INTERVAL: Duration = Duration::from_secs(1);

/// An event, as a line of text or JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The server accepts clients.
    Listening { address: SocketAddr },
    /// A client begins.
    Connected { client: SocketAddr, size: u64, chunk: u64 },
    /// A client has left.
    Left { client: SocketAddr, bytes: u64, failure: Option<String> },
    /// A client was refused.
    Refused { client: SocketAddr, reason: String },
}

/// What all connections share.
struct Server {
    /// Where the connections for data of each session go, by its token.
    sessions: Mutex<HashMap<u64, Sender<Arrival>>>,
    /// Whether a client is being served.
    busy: Mutex<bool>,
    idle: Condvar,
    connections: AtomicUsize,
    memory: u64,
    json: bool,
    screen: Screen,
}

/// Listens and serves until terminated.
pub(super) fn run(args: &CompareArgs, screen: &Screen) -> ExitStatus {
    interrupt::handle(|| {});
    if args.child {
        thread::spawn(|| {
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
    }
    match listen(args, screen) {
        Ok(()) => ExitStatus::Success,
        Err(failure) => {
            screen.complain(failure);
            ExitStatus::Failure
        }
    }
}

fn listen(args: &CompareArgs, screen: &Screen) -> Result<(), Failure> {
    let channel = EventChannel::with_options(Options::from_env()?)?;
    let (listener, id) = bind(args.listen.0, &channel)?;
    let address = listener.local_addr().map_err(cannot_listen(args.listen.0))?;
    let server = Arc::new(Server {
        sessions: Mutex::default(),
        busy: Mutex::new(false),
        idle: Condvar::new(),
        connections: AtomicUsize::new(0),
        memory: args.memory.0,
        json: args.json,
        screen: *screen,
    });
    server.report(&Event::Listening { address });
    let requests = Arc::clone(&server);
    thread::spawn(move || {
        let _listener = id;
        requests.take_requests(&channel);
    });
    loop {
        // Errors concern one connection, or a lack of descriptors that ends when others close theirs.
        let Ok((stream, client)) = listener.accept() else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        // IPv4 clients of an IPv6 listener.
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let server = Arc::clone(&server);
        if server.connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            server.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        thread::spawn(move || {
            server.connection(stream, client);
            server.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Listens on the same port of TCP and RDMA-CM.
fn bind(wanted: SocketAddr, channel: &EventChannel) -> Result<(TcpListener, CmId), Failure> {
    let mut attempts = 0;
    loop {
        let listener = TcpListener::bind(wanted).or_else(|error| match wanted.ip() {
            // A host without IPv6.
            IpAddr::V6(any) if any.is_unspecified() => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, wanted.port()))
            }
            _ => Err(error),
        });
        let listener = listener.map_err(cannot_listen(wanted))?;
        let port = listener.local_addr().map_err(cannot_listen(wanted))?.port();
        let mut address = wanted;
        address.set_port(port);
        let id = CmId::new(channel, PortSpace::Tcp)?;
        match id.bind(address) {
            Ok(()) => {
                id.listen(0)?;
                return Ok((listener, id));
            }
            // The port that TCP chose is taken in RDMA-CM.
            Err(ferroce::cm::Error::System(SystemError::ServiceTaken { .. }))
                if wanted.port() == 0 && attempts < 100 =>
            {
                attempts += 1;
            }
            Err(ferroce::cm::Error::System(SystemError::ServiceTaken { .. })) => {
                return Err(Failure::Other(format!(
                    "another server listens on port {port} of RDMA-CM, such as `ferroce server`: \
                     choose another with --listen, or 0 for any"
                )));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn cannot_listen(address: SocketAddr) -> impl Fn(io::Error) -> Failure {
    move |error| {
        Failure::Other(format!(
            "cannot listen on TCP {address}: {error}; choose another port or address with --listen"
        ))
    }
}

/// The session of a client; dropping it lets the next one begin.
struct Turn<'a>(&'a Server);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.busy) = false;
        self.0.idle.notify_one();
    }
}

/// The entry of a session, removed on drop.
struct Registered<'a>(&'a Server, u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        lock(&self.0.sessions).remove(&self.1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Hands connection requests to their sessions.
    fn take_requests(&self, channel: &EventChannel) {
        loop {
            let event = match channel.wait(None) {
                Ok(Some(event)) => event,
                Ok(None) => continue,
                Err(error) => {
                    self.screen.complain(error);
                    std::process::exit(ExitStatus::Failure.code().into());
                }
            };
            let EventKind::ConnectRequest(request) = event.kind else { continue };
            let token = rdma::token(&request.private_data);
            let session = token.and_then(|token| lock(&self.sessions).get(&token).cloned());
            let Some(session) = session else {
                // The peer may have given up.
                let _ = request.id.reject(b"this server is for `ferroce compare`");
                continue;
            };
            let _ = session.send(Arrival::Rdma(request));
        }
    }

    /// Serves a TCP connection.
    fn connection(&self, stream: TcpStream, client: SocketAddr) {
        let Ok(mut control) = Control::new(stream) else { return };
        match control.receive("the client's request", COMPLETION_TIMEOUT) {
            Ok(Some(Request::Data { token })) => {
                let session = lock(&self.sessions).get(&token).cloned();
                if let Some(session) = session {
                    let _ = session.send(Arrival::Tcp(control));
                }
            }
            Ok(Some(Request::Hello { version: VERSION, plan })) => {
                let mut bytes = 0;
                let served = self.client(&mut control, client, plan, &mut bytes);
                if let Err(Failure::Refused(reason)) = served {
                    let _ = control.send(&Response::Refused { reason: reason.clone() });
                    self.report(&Event::Refused { client, reason });
                    return;
                }
                let failure = served.err().map(|failure| failure.to_string());
                self.report(&Event::Left { client, bytes, failure });
            }
            other => {
                let reason = match other {
                    Ok(Some(Request::Hello { version, .. })) => format!(
                        "the client has version {version} of this protocol, the server {VERSION}: \
                         use the same version of ferroce on both hosts"
                    ),
                    Ok(None) => return,
                    Ok(Some(_)) | Err(_) => "the peer is not `ferroce compare`".to_owned(),
                };
                let _ = control.send(&Response::Refused { reason: reason.clone() });
                self.report(&Event::Refused { client, reason });
            }
        }
    }

    fn client(
        &self,
        control: &mut Control,
        client: SocketAddr,
        plan: super::plan::Plan,
        bytes: &mut u64,
    ) -> Result<(), Failure> {
        plan.check().map_err(Failure::Refused)?;
        if plan.size > self.memory {
            let (wanted, limit) = (Size(plan.size), Size(self.memory));
            let reason = format!("{wanted} are more than its limit of {limit}: see its --memory");
            return Err(Failure::Refused(reason));
        }
        let _turn = self.turn(control)?;
        let buffer = memory::allocate(plan.size, 1, "the server").map_err(Failure::Refused)?;
        let (sender, arrivals) = mpsc::channel();
        let token = random::number();
        lock(&self.sessions).insert(token, sender);
        let _registered = Registered(self, token);
        self.report(&Event::Connected { client, size: plan.size, chunk: plan.chunk });
        control.send(&Response::Ready { token })?;
        let mut session = Session::new(plan, Arc::<Buffer>::clone(&buffer), arrivals);
        let served = session.converse(control);
        *bytes = session.bytes;
        served
    }

    /// Waits until no other client is served, and tells the client meanwhile.
    fn turn(&self, control: &mut Control) -> Result<Turn<'_>, Failure> {
        let mut busy = lock(&self.busy);
        while *busy {
            drop(busy);
            control.send(&Response::Waiting)?;
            busy = lock(&self.busy);
            if *busy {
                let waited = self.idle.wait_timeout(busy, WAITING_INTERVAL);
                busy = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        *busy = true;
        Ok(Turn(self))
    }

    /// Prints an event. A closed output does not stop the server.
    fn report(&self, event: &Event) {
        let mut output = io::stdout().lock();
        let paint = self.screen.paint;
        let written = match event {
            _ if self.json => serde_json::to_writer(&mut output, event)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(output)),
            Event::Listening { address } => writeln!(
                output,
                "listening on {address} (TCP and RDMA-CM), UDP port 4791; Ctrl-C ends it"
            ),
            Event::Connected { client, size, chunk } => {
                writeln!(output, "{client}: {} in chunks of {}", Size(*size), Size(*chunk))
            }
            Event::Left { client, bytes, failure: None } => {
                writeln!(output, "{client}: left after {} bytes", bytes)
            }
            Event::Left { client, failure: Some(failure), .. } => {
                writeln!(output, "{client}: {}", paint.role(Role::Bad, failure))
            }
            Event::Refused { client, reason } => {
                writeln!(output, "{client}: {}", paint.role(Role::Warning, reason))
            }
        };
        let _ = written.and_then(|()| output.flush());
    }
}

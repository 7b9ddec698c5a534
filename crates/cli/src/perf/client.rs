//! The client: connects, runs all sizes and returns the result.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use ferroce::{Local, Options};
use ferroce_sys::signal::{Signal, Signals};

use super::args::{Measure, PerfArgs};
use super::control::{Control, Event, Message, PROTOCOL, TIMEOUT, VERSION};
use super::result::{Link, Outcome, Row};
use super::session::{Route, Session};
use super::test::{Amount, Test};
use super::worker::Side;
use crate::child_server::ServerProcess;
use crate::progress::{Progress, Unit};
use crate::session::address;
use crate::session::bytes::Size;
use crate::session::failure::Failure;

/// The largest path MTU there is (IBA 9.2.4), to check the options before the device is known.
const MAX_MTU: u64 = 4096;

/// Where a server of the client's own listens.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs the test; the signal that interrupted it, if one did.
pub(super) fn run(args: &PerfArgs) -> Result<(Outcome, Option<i32>), Failure> {
    args.test(MAX_MTU).map_err(Failure::Other)?;
    let mut options = Options::from_env()?;
    if args.wire {
        options.local = Local::Sockets;
    }
    let (server, _process) = match &args.host {
        Some(host) => (address::resolve(host)?, None),
        None => {
            let process = ServerProcess::start("perf", LOOPBACK, &[])?;
            (process.address, Some(process))
        }
    };
    let (sender, events) = mpsc::channel();
    // Before the first thread, and after the child, which must not inherit the blocked signals.
    let signal = Arc::new(AtomicI32::new(0));
    if let Ok(signals) = Signals::new() {
        let (sender, signal) = (sender.clone(), Arc::clone(&signal));
        thread::spawn(move || watch(&signals, &signal, &sender));
    }
    let stream = TcpStream::connect_timeout(&server, TIMEOUT).map_err(|e| refused(server, &e))?;
    let control = Control::new(stream, sender, events)?;
    let route = Route::open(&control, options, args.threads)?;
    let test = Arc::new(args.test(route.mtu()).map_err(Failure::Other)?);
    let session = connect(control, route, &test)?;
    let mut outcome = Outcome::new(server, args.host.is_none(), &test);
    for (number, &size) in test.sizes.iter().enumerate() {
        let row = measure(&session, &test, number, args.quiet || args.json)?;
        // A size that was interrupted early may have no messages.
        if row.messages > 0 {
            outcome.results.push(row);
        }
        // Of UD it is known only now.
        if session.shares_memory() {
            outcome.link = Link::SharedMemory;
        }
        if session.is_interrupted() {
            outcome.interrupted = Some(size);
            break;
        }
    }
    let signal = Some(signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0);
    Ok((outcome, signal))
}

/// Passes signals on as events. The second one ends the process.
fn watch(signals: &Signals, last: &AtomicI32, sender: &mpsc::Sender<Event>) {
    loop {
        let (Ok(Signal::Terminal(signal)) | Ok(Signal::Process(signal))) = signals.wait() else {
            continue;
        };
        if last.swap(signal, Ordering::Relaxed) != 0 || sender.send(Event::Interrupted).is_err() {
            std::process::exit(128 + signal);
        }
    }
}

fn refused(server: SocketAddr, error: &std::io::Error) -> Failure {
    let (ip, port) = (server.ip(), server.port());
    Failure::Other(match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!(
            "no perf server listens on {server}: start `ferroce perf --server` there first (its \
             port is {port} by --listen)"
        ),
        std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => format!(
            "{ip} does not respond: check that the host is up and that firewalls on the path allow \
             TCP port {port} and UDP port 4791"
        ),
        _ => format!("cannot connect to {server}: {error}"),
    })
}

fn connect(control: Control, route: Route, test: &Arc<Test>) -> Result<Session, Failure> {
    let mut session = Session::new(control, route, test, Side::Client)?;
    let hello = Message::Hello {
        protocol: PROTOCOL.into(),
        version: VERSION,
        test: Test::clone(test),
        ends: session.ends(),
    };
    session.control.send(&hello)?;
    match session.control.receive()? {
        Message::Accept { ends } => session.connect(&ends)?,
        Message::Refuse { why } => return Err(Failure::Refused(why)),
        _ => return Err(Failure::IncompatiblePeer),
    }
    Ok(session)
}

/// Measures one size.
fn measure(session: &Session, test: &Test, number: usize, quiet: bool) -> Result<Row, Failure> {
    let size = test.sizes[number];
    session.prepare(size)?;
    session.control.send(&Message::Run { size })?;
    let Message::Go = session.control.receive()? else {
        return Err(Failure::IncompatiblePeer);
    };
    let name = match test.sizes.len() {
        1 => format!("{}", Size(size)),
        count => format!("size {} of {count}: {}", number + 1, Size(size)),
    };
    let name = format!("{} {}, {name}", test.operation.name(), test.measure.name());
    let unit = if test.measure == Measure::Bw { Unit::Bytes } else { Unit::Count };
    let factor = if test.measure == Measure::Bw { size } else { 1 };
    let length = match test.amount {
        Amount::Iterations(count) => Some(
            count
                .saturating_add(test.warm_up(size))
                .saturating_mul(test.qps.into())
                .saturating_mul(factor),
        ),
        Amount::Nanoseconds(_) => None,
    };
    let mut progress = Progress::new(&name, length, unit, quiet);
    let measured = session.run(size, |messages| progress.show(messages.saturating_mul(factor)));
    progress.erase();
    Ok(Row::new(test, size, &measured?))
}

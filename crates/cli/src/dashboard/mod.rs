//! `ferroce dashboard`: what `ferroce stat` and `ferroce top` show, in a browser.

mod anomalies;
mod args;
mod assets;
mod choices;
mod detail;
mod jobs;
mod listener;
mod metrics;
mod monitor;
mod sampler;
mod security;
mod server;
#[cfg(test)]
mod tests;
mod view;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ferroce_sys::signal::{Signal, Signals};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use args::Packets;
pub(crate) use args::{DashboardArgs, EXAMPLES};

use crate::exit::ExitStatus;
use crate::recent::{RecentOnDemand, RecentPackets};
use crate::style::{Role, Screen};
use jobs::Jobs;
use listener::LimitedListener;
use monitor::Monitor;
use security::{Guard, MetricsAccess, Token};
use server::{Recent, Shared};

/// How long connections may take to end after Ctrl-C.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// Serves until interrupted.
pub(crate) fn run(args: &DashboardArgs, screen: &Screen) -> ExitStatus {
    match serve(args, screen) {
        Ok(()) => ExitStatus::Success,
        Err(message) => {
            screen.complain(message);
            ExitStatus::Failure
        }
    }
}

fn serve(args: &DashboardArgs, screen: &Screen) -> Result<(), String> {
    // Before any thread, which would otherwise be ended by the signals.
    let signals = Signals::new().map(Arc::new).map_err(|error| error.to_string())?;
    let metrics = metrics_access(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the server: {error}"))?;
    let wanted = args.listen.0;
    let listener =
        runtime.block_on(TcpListener::bind(wanted)).map_err(|error| refused(wanted, &error))?;
    let address = listener.local_addr().map_err(|error| refused(wanted, &error))?;
    let jobs = match args.allow_run {
        true => {
            let program = std::env::current_exe();
            let program = program
                .map_err(|error| format!("cannot find this program for --allow-run: {error}"))?;
            Some(Jobs::new(program, Arc::clone(&signals)))
        }
        false => None,
    };
    let guard =
        Guard { token: Token::random(), metrics, names: args.allow_host.clone(), listen: address };
    announce(args, &guard, screen);
    let monitor = Monitor::new(Duration::from_nanos(args.interval.nanoseconds));
    let sampling = monitor.start();
    let recent = match args.packets {
        Packets::Open => Recent::OnDemand(RecentOnDemand::default()),
        Packets::Always => Recent::Always(RecentPackets::collect()?),
        Packets::Never => Recent::Never,
    };
    let shared = Shared {
        guard: Arc::new(guard),
        monitor: Arc::clone(&monitor),
        recent: Arc::new(recent),
        jobs: jobs.clone(),
    };
    let served = runtime.block_on(serve_until(listener, shared, interrupted(signals)));
    if let Some(jobs) = jobs {
        jobs.close();
    }
    monitor.stop();
    let _ = sampling.join();
    served.map_err(|error| format!("the server stopped: {error}"))
}

/// Serves until `end`, and then for a moment until the requests in progress are answered.
async fn serve_until(
    listener: TcpListener,
    shared: Shared,
    end: oneshot::Receiver<()>,
) -> io::Result<()> {
    let (begin, began) = oneshot::channel();
    let end = async {
        let _ = end.await;
        let _ = begin.send(());
    };
    let server = axum::serve(LimitedListener::new(listener), server::router(shared))
        .with_graceful_shutdown(end);
    tokio::select! {
        result = async { server.await } => result,
        // A browser keeps its connection open.
        () = async { let _ = began.await; tokio::time::sleep(SHUTDOWN).await } => Ok(()),
    }
}

/// Resolves at the first signal that ends the process.
fn interrupted(signals: Arc<Signals>) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    thread::spawn(move || {
        while let Ok(Signal::Child) = signals.wait() {}
        let _ = sender.send(());
    });
    receiver
}

fn metrics_access(args: &DashboardArgs) -> Result<MetricsAccess, String> {
    if args.metrics_public {
        return Ok(MetricsAccess::Public);
    }
    let Some(path) = &args.metrics_token_file else { return Ok(MetricsAccess::Page) };
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let token = Token::from_text(&text);
    token.map(MetricsAccess::Token).map_err(|error| format!("{shown}: {error}"))
}

fn refused(address: SocketAddr, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there, perhaps another dashboard; choose another port with --listen PORT, or any \
             free one with --listen 0"
        }
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address: see `ip address`"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges; choose a higher one with --listen PORT"
        }
        _ => return format!("cannot listen on {address}: {error}"),
    };
    format!("cannot listen on {address}: {why}")
}

#[derive(Serialize)]
#[serde(tag = "event", rename = "listening")]
struct Listening<'a> {
    address: SocketAddr,
    url: &'a str,
    metrics: &'a str,
    token: &'a str,
}

/// Prints where the dashboard is. What is wrong with the output does not stop it.
fn announce(args: &DashboardArgs, guard: &Guard, screen: &Screen) {
    let address = guard.listen;
    // An address to connect to, where the dashboard listens on all.
    let host = match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(
            if ip.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() },
            address.port(),
        ),
        _ => address,
    };
    let token = guard.token.as_str();
    let (url, metrics) =
        (format!("http://{host}/?token={token}"), format!("http://{host}/metrics"));
    if !address.ip().is_loopback() {
        screen.complain(format_args!(
            "warning: {address} can be reached from other hosts, and the connection is not encrypted: whoever sees its \
             packets sees the token. `ssh -L {port}:localhost:{port} HOST` is the safe way",
            port = address.port()
        ));
    }
    let mut out = io::stdout().lock();
    let _ = if args.json {
        let event = Listening { address, url: &url, metrics: &metrics, token };
        serde_json::to_writer(&mut out, &event)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        let paint = screen.paint;
        writeln!(out, "{} {url}", paint.role(Role::Title, "Dashboard:"))
            .and_then(|()| writeln!(out, "{} {metrics}", paint.role(Role::Title, "Metrics:  ")))
            .and_then(|()| writeln!(out, "{}", paint.role(Role::Quiet, "Ctrl-C stops it.")))
    };
    let _ = out.flush();
}

//! A server, a client, and a limit of time.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::libraries::program;

const LIMIT: Duration = Duration::from_secs(100);

/// A process whose output is read while it runs. It ends with this.
struct Running {
    name: String,
    child: Child,
    output: Option<JoinHandle<String>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let output = thread::spawn(move || {
            let errors = thread::spawn(move || text(err));
            text(out) + &errors.join().unwrap_or_default()
        });
        Self { name, child, output: Some(output) }
    }

    /// Waits for a good end, and returns what was printed.
    fn finish(mut self, until: Instant) -> String {
        let status = loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let _ = self.child.kill();
        let output = self.output.take().map(|reader| reader.join().unwrap_or_default());
        let output = output.unwrap_or_default();
        let good = status.is_some_and(|status| status.success());
        assert!(good, "{}: {status:?} (none is too late), and it said:\n{output}", self.name);
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    listener.and_then(|listener| listener.local_addr()).expect("there is a port").port()
}

/// Whether somebody listens there. To connect would be taken for the client.
fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).unwrap_or_default().lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&wanted) && fields[3] == LISTEN
        })
    })
}

/// What every program is told: our loopback device, by its first address, and where the server listens.
fn command(name: &str, arguments: &str, port: u16) -> Option<Command> {
    let mut command = program(name)?;
    let device = if name.starts_with("ibv_") { "-g 0" } else { "-x 0 -F" };
    command.args(["-d", "ferroce_lo", "-p", &port.to_string()]);
    command.args(device.split(' ')).args(arguments.split_whitespace());
    Some(command)
}

/// These programs poll without rest: two pairs at once would wait for each other's processors longer than a peer does.
static ONE: Mutex<()> = Mutex::new(());

/// Runs both ends, and returns what the client printed.
pub(crate) fn run(name: &str, arguments: &str) -> Option<String> {
    changed(name, arguments, |_, _| {})
}

/// One of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Server,
    Client,
}

/// As [`run`], after something was changed about each end's command.
pub(crate) fn changed(
    name: &str,
    arguments: &str,
    change: impl Fn(End, &mut Command),
) -> Option<String> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (until, port) = (Instant::now() + LIMIT, free_port());
    let mut server = command(name, arguments, port)?;
    change(End::Server, &mut server);
    let server = Running::start(server);
    while !listens(port) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let mut client = command(name, arguments, port)?;
    client.arg("localhost");
    change(End::Client, &mut client);
    let said = Running::start(client).finish(until);
    server.finish(until);
    Some(said)
}

/// Runs a program that has no other end.
pub(crate) fn alone(name: &str, arguments: &str) -> Option<String> {
    let mut command = program(name)?;
    command.args(arguments.split_whitespace());
    Some(Running::start(command).finish(Instant::now() + LIMIT))
}

/// Runs a program that has no end: until it has said a line, which is returned.
pub(crate) fn watch(name: &str, arguments: &str) -> Option<String> {
    // So that it says what it has to say while it runs.
    let mut command = program("stdbuf")?;
    command.arg("-oL").arg(program(name)?.get_program()).args(arguments.split_whitespace());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let _ = child.kill();
    let _ = child.wait();
    read.expect("an output").expect("a line");
    Some(line)
}

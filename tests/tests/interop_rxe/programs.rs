//! The second matrix: Debian's programs here, on our libibverbs.so.1, with the same programs in the machine.
//!
//! What both halves are told is in [`ROWS`], one a line. Either half is the server once.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ferroce_tests::peer::{Output, Peer, Remote};

use crate::SOON;
use crate::bench::{Bench, Case};
use crate::cells::{Column, Role};
use crate::libraries;
use crate::table::{PROGRAMS, Row};

/// Program, arguments of both halves, and the anomalies that are the point of it.
///
/// What UC and UD lose is lost: no more than a receiver has posted and a socket holds. -e sleeps until events come, -b
/// works both ways at once, -q is the number of queue pairs, -t of requests under way in each, -I what is sent inline.
///
/// With -q, -n is a multiple of -t: with `-b -q 4 -t 8 -n 20` perftest in the machine once never posted its last requests,
/// probably because it counts a completion as eight and so stops looking for them too early.
#[rustfmt::skip]
const ROWS: &[(&str, &str, &[&str])] = &[
    ("ibv_rc_pingpong",  "-c -s 4096 -n 300",        &[]),
    ("ibv_rc_pingpong",  "-e -c -s 70001 -n 30",     &[]),
    ("ibv_uc_pingpong",  "-c -s 4096 -n 300",        &[]),
    ("ibv_uc_pingpong",  "-e -s 20001 -n 30",        &[]),
    ("ibv_ud_pingpong",  "-c -s 1024 -n 300",        &[]),
    ("ibv_ud_pingpong",  "-e -s 777 -n 100",         &[]),
    ("ibv_srq_pingpong", "-c -s 4096 -n 300",        GONE),
    ("ibv_srq_pingpong", "-e -s 10001 -n 100",       GONE),
    ("ib_write_bw",      "-t 8 -n 50",               &[]),
    ("ib_write_bw",      "-b -q 4 -t 8 -s 8192 -n 24", &[]),
    ("ib_write_bw",      "-I 64 -s 64 -n 200",       &[]),
    ("ib_write_bw",      "-c UC -s 8192 -n 20",      &[]),
    ("ib_write_lat",     "-n 100",                   &[]),
    ("ib_write_lat",     "-c UC -I 0 -s 5000 -n 50", &[]),
    ("ib_read_bw",       "-t 8 -n 20",               &[]),
    ("ib_read_bw",       "-b -q 4 -t 8 -s 8192 -n 24", &[]),
    ("ib_read_bw",       "-e -s 5000 -n 100",        &[]),
    ("ib_read_lat",      "-n 100",                   &[]),
    ("ib_send_bw",       "-t 8 -n 50",               &[]),
    ("ib_send_bw",       "-b -q 4 -t 8 -s 8192 -n 24", &[]),
    ("ib_send_bw",       "-e -t 8 -n 50",            &[]),
    ("ib_send_bw",       "-c UC -s 1024 -n 50",      &[]),
    ("ib_send_bw",       "-c UD -s 1024 -n 50",      &[]),
    ("ib_send_lat",      "-n 100",                   &[]),
    ("ib_send_lat",      "-e -I 64 -s 64 -n 100",    &[]),
    ("ib_send_lat",      "-c UC -n 100",             &[]),
    ("ib_send_lat",      "-c UD -n 100",             &[]),
    ("ib_atomic_bw",     "-n 100",                   &[]),
    ("ib_atomic_bw",     "-A CMP_AND_SWAP -q 4 -t 8 -n 48", &[]),
    ("ib_atomic_lat",    "-n 100",                   &[]),
];

/// `ibv_srq_pingpong` ends when it has counted enough messages on all queue pairs together, and the other half may be
/// sending on some.
const GONE: &[&str] = &["retry_exceeded"];

/// Where all of them listen.
const PORT: u16 = 18515;

/// Whatever takes longer will never end.
const LIMIT: Duration = Duration::from_secs(45);

/// A row with a client, in a column.
struct Pair {
    program: &'static str,
    arguments: &'static str,
    expected: &'static [&'static str],
    client: Role,
    column: Column,
}

impl Pair {
    /// All arguments but the server's address. The machine's GID 0 is link-local, and our last one.
    fn arguments(&self, side: Role) -> String {
        let Column { ipv6, mtu } = self.column;
        let (device, gid) = match side {
            Role::Ours => (" -d ferroce_eth0", usize::from(ipv6)),
            Role::Theirs => ("", 1 + usize::from(ipv6)),
        };
        // perftest waits longer for answers than 67 ms: the machine may be busy.
        let general = match self.program {
            "ibv_ud_pingpong" => format!("-g {gid}"),
            name if name.starts_with("ibv_") => format!("-g {gid} -m {mtu}"),
            _ => format!("-x {gid} -m {mtu} -F -u 18"),
        };
        format!("{general}{device} {}", self.arguments)
    }

    /// The machine's half. By IPv4 also where the GIDs are IPv6: it is not what is tested.
    fn start_there(&self, peer: &Peer) -> Result<Remote, String> {
        let server = if self.client == Role::Theirs { " 10.47.91.1" } else { "" };
        let line = format!("{} {}{server}", self.program, self.arguments(Role::Theirs));
        peer.spawn(&line).map_err(|error| error.to_string())
    }

    /// Our half.
    fn start_here(&self, peer: &Peer) -> Result<Ours, String> {
        let Some(found) = libraries::program(self.program) else {
            return Err(format!("{} is not installed: run `make setup`", self.program));
        };
        let mut command = peer.command_here(found.get_program());
        for (name, value) in found.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(self.arguments(Role::Ours).split_whitespace());
        if self.client == Role::Ours {
            command.arg(peer.address_v4().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let said = thread::spawn(move || {
            let errors = thread::spawn(move || text(err));
            text(out) + &errors.join().unwrap_or_default()
        });
        Ok(Ours { child, said: Some(said) })
    }

    /// Whether the client's figures are there, and the server found what was sent.
    fn judge(&self, ours: &str, theirs: &str) -> Result<(), String> {
        let client = if self.client == Role::Ours { ours } else { theirs };
        let measured = match self.program {
            name if name.starts_with("ibv_") => client.contains("usec/iter"),
            name if name.ends_with("_bw") => figure(client, 3) > 0.0,
            _ => figure(client, 5) > 0.0,
        };
        let invalid = [ours, theirs].iter().any(|said| said.contains("invalid data"));
        if measured && !invalid {
            return Ok(());
        }
        Err(format!("our side: {ours}\ntheir side: {theirs}"))
    }
}

/// The number in a column of the last line that has nothing but numbers: bandwidth, or latency.
fn figure(said: &str, column: usize) -> f64 {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let mut rows = said.lines().filter_map(numbers).filter(|row| !row.is_empty());
    rows.next_back().and_then(|row| row.get(column).copied()).unwrap_or_default()
}

fn text(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Our half: it ends with this.
struct Ours {
    child: Child,
    said: Option<JoinHandle<String>>,
}

impl Ours {
    /// Whether it ended well; `None` while it runs.
    fn ended(&mut self) -> Option<bool> {
        self.child.try_wait().ok().flatten().map(|status| status.success())
    }

    /// Ends it, if it has not, and returns what it said.
    fn finish(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said.take().map(|said| said.join().unwrap_or_default()).unwrap_or_default()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Waits for both to end. One that fails leaves the other waiting for it: that is ended soon.
fn both(peer: &Peer, pair: &Pair, mut ours: Ours, theirs: Remote) -> Result<(), String> {
    const STEP: Duration = Duration::from_millis(20);
    const GRACE: Duration = Duration::from_secs(3);
    let (sender, theirs_ended) = mpsc::channel();
    thread::spawn(move || sender.send(theirs.wait()));
    let mut until = Instant::now() + LIMIT;
    let mut theirs: Option<Output> = None;
    loop {
        if let Ok(output) = theirs_ended.recv_timeout(STEP) {
            theirs = Some(output.map_err(|error| error.to_string())?);
        }
        let (our_end, their_end) = (ours.ended(), theirs.as_ref().map(|output| output.status == 0));
        if our_end.is_some() && their_end.is_some() {
            break;
        }
        if our_end == Some(false) || their_end == Some(false) {
            until = until.min(Instant::now() + GRACE);
        }
        if Instant::now() > until {
            let _ = peer.run(&format!("killall -KILL {}", pair.program));
            break;
        }
        if theirs.is_some() {
            // Nothing more comes from there.
            thread::sleep(STEP);
        }
    }
    let good = ours.ended();
    let said = ours.finish();
    let theirs = match theirs {
        Some(output) => output,
        None => {
            let output = theirs_ended.recv().map_err(|error| error.to_string())?;
            output.map_err(|error| error.to_string())?
        }
    };
    if good != Some(true) || theirs.status != 0 {
        return Err(format!("our side, success {good:?}: {said}\ntheir side: {theirs:?}"));
    }
    pair.judge(&said, &theirs.stdout)
}

impl Case for Pair {
    fn row(&self) -> Row {
        Row::new(&format!("`{} {}`", self.program, self.arguments), self.client)
    }

    fn run(&self, peer: &Peer) -> Result<(), String> {
        let (ours, theirs);
        match self.client {
            Role::Ours => {
                theirs = self.start_there(peer)?;
                let listens = peer.machine(1).wait_for_tcp(PORT, SOON);
                listens.map_err(|error| error.to_string())?;
                ours = self.start_here(peer)?;
            }
            Role::Theirs => {
                ours = self.start_here(peer)?;
                peer.wait_for_tcp_here(PORT, SOON).map_err(|error| error.to_string())?;
                theirs = self.start_there(peer)?;
            }
        }
        both(peer, self, ours, theirs)
    }

    fn expects(&self, anomaly: &str) -> bool {
        self.expected.contains(&anomaly)
    }
}

/// Runs all rows in a column, with each half as the server.
pub(crate) fn column(column: Column) {
    let Some(mut bench) = Bench::start(column) else { return };
    let mut pairs = Vec::new();
    for &(program, arguments, expected) in ROWS {
        for client in [Role::Theirs, Role::Ours] {
            pairs.push(Pair { program, arguments, expected, client, column });
        }
    }
    bench.run(&pairs);
    bench.finish(&PROGRAMS);
}

//! The second matrix: Debian's programs here, on our libibverbs.so.1, with the same programs in the machine.
//!
//! What both halves are told is in [`ROWS`], one a line. Either half is the server once.

use ferroce_tests::peer::{Peer, Remote};
use ferroce_tests::{perftest, pingpong};

use crate::SOON;
use crate::bench::{Bench, Case, Scope};
use crate::cells::{Column, Role};
use crate::halves::{self, Ends, GRACE, Ours};
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
        let mut words: Vec<String> =
            self.arguments(Role::Ours).split_whitespace().map(str::to_owned).collect();
        if self.client == Role::Ours {
            words.push(peer.address_v4().to_string());
        }
        Ours::start(peer, self.program, &words)
    }

    /// Whether the client's figures are there, and the server found what was sent.
    fn judge(&self, ours: &str, theirs: &str) -> Result<(), String> {
        let client = if self.client == Role::Ours { ours } else { theirs };
        let judged = match pingpong::check(self.program, self.arguments, client) {
            Some(judged) => judged,
            None => {
                let path_mtu = self.column.mtu as u64;
                let table = perftest::Table::of(self.program, self.arguments, path_mtu);
                perftest::check(client, table)
            }
        };
        if [ours, theirs].iter().any(|said| said.contains("invalid data")) {
            return Err(format!("our side: {ours}\ntheir side: {theirs}"));
        }
        judged.map_err(|wrong| format!("{wrong}\nour side: {ours}\ntheir side: {theirs}"))
    }

    /// Runs both halves once.
    fn once(&self, peer: &Peer) -> Result<Ends, String> {
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
        halves::both(peer, self.program, ours, theirs, GRACE)
    }
}

impl Case for Pair {
    fn row(&self) -> Row {
        Row::new(&format!("`{} {}`", self.program, self.arguments), self.client)
    }

    fn run(&self, peer: &Peer) -> Result<(), String> {
        let ends = perftest::calibrated(
            || self.once(peer),
            |ends| match ends {
                Ok(ends) => format!("{}{}", ends.ours, ends.theirs.stdout),
                Err(_) => String::new(),
            },
        )?;
        if ends.our_success != Some(true) || ends.theirs.status != 0 {
            return Err(ends.to_string());
        }
        self.judge(&ends.ours, &ends.theirs.stdout)
    }

    fn expects(&self, anomaly: &str) -> bool {
        self.expected.contains(&anomaly)
    }
}

/// Runs all rows in a column, with each half as the server.
pub(crate) fn column(column: Column, scope: Scope) {
    let Some(mut bench) = Bench::start(column, scope) else { return };
    let mut pairs = Vec::new();
    for &(program, arguments, expected) in ROWS {
        for client in [Role::Theirs, Role::Ours] {
            pairs.push(Pair { program, arguments, expected, client, column });
        }
    }
    bench.run(&pairs);
    bench.finish(&PROGRAMS);
}

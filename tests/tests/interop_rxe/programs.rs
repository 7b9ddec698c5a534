//! The second matrix: Debian's programs here, on our libibverbs.so.1, with the same programs in the machine.
//!
//! [`ROWS`] has the arguments of both sides, one row per line. Each side is the server once.

use ferroce_tests::peer::{Peer, Remote};
use ferroce_tests::{perftest, pingpong};

use crate::TIMEOUT;
use crate::bench::{Bench, Case, Scope};
use crate::cells::{Column, Role};
use crate::halves::{self, Ends, GRACE, Ours};
use crate::table::{PROGRAMS, Row};

/// Program, arguments of both sides, and expected anomalies.
///
/// UC and UD do not retransmit: no more is sent than a receiver has posted and a socket holds. -e sleeps until events
/// arrive, -b sends in both directions, -q is the number of queue pairs, -t the requests in flight in each, -I the
/// bytes sent inline.
///
/// With -q, -n is a multiple of -t: with `-b -q 4 -t 8 -n 20` perftest in the machine once never posted its last
/// requests, probably because it counts a completion as eight and stops waiting for them too early.
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

/// `ibv_srq_pingpong` exits when it has counted enough messages on all queue pairs together, while the other side may
/// still be sending on some.
const GONE: &[&str] = &["retry_exceeded"];

/// The port of all of them.
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
        // A longer ACK timeout than 67 ms for perftest, because the machine may be busy.
        let general = match self.program {
            "ibv_ud_pingpong" => format!("-g {gid}"),
            name if name.starts_with("ibv_") => format!("-g {gid} -m {mtu}"),
            _ => format!("-x {gid} -m {mtu} -F -u 18"),
        };
        format!("{general}{device} {}", self.arguments)
    }

    /// Starts the machine's side. The TCP connection uses IPv4 even if the GIDs are IPv6: it is not under test.
    fn start_there(&self, peer: &Peer) -> Result<Remote, String> {
        let server = if self.client == Role::Theirs { " 10.47.91.1" } else { "" };
        let line = format!("{} {}{server}", self.program, self.arguments(Role::Theirs));
        peer.spawn(&line).map_err(|error| error.to_string())
    }

    /// Starts our side.
    fn start_here(&self, peer: &Peer) -> Result<Ours, String> {
        let mut words: Vec<String> =
            self.arguments(Role::Ours).split_whitespace().map(str::to_owned).collect();
        if self.client == Role::Ours {
            words.push(peer.address_v4().to_string());
        }
        Ours::start(peer, self.program, &words)
    }

    /// Checks the client's results, and that the server found the data sent.
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
                let listens = peer.machine(1).wait_for_tcp(PORT, TIMEOUT);
                listens.map_err(|error| error.to_string())?;
                ours = self.start_here(peer)?;
            }
            Role::Theirs => {
                ours = self.start_here(peer)?;
                peer.wait_for_tcp_here(PORT, TIMEOUT).map_err(|error| error.to_string())?;
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
                // perftest writes about its clock to standard error.
                Ok(ends) => format!("{}{}{}", ends.ours, ends.theirs.stdout, ends.theirs.stderr),
                Err(_) => String::new(),
            },
        )?;
        if ends.our_success != Some(true) || ends.theirs.status != 0 {
            return Err(ends.to_string());
        }
        self.judge(&ends.ours, &ends.theirs.stdout)
            .map_err(|wrong| format!("{wrong}\ntheir errors: {}", ends.theirs.stderr))
    }

    fn expects(&self, anomaly: &str) -> bool {
        self.expected.contains(&anomaly)
    }
}

/// Runs all rows in a column, with each side as the server.
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

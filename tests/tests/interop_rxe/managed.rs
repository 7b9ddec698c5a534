//! The third matrix: Debian's librdmacm programs here, on our librdmacm.so.1, with the same programs in the machine.
//!
//! [`ROWS`] has the arguments of both sides, one row per line. Each side is the server once, so that both sides send
//! each connection manager message for the same program: `messages` compares them.

use std::time::Duration;

use ferroce_tests::listening;
use ferroce_tests::peer::{Peer, Remote};

use crate::TIMEOUT;
use crate::bench::{Bench, Case, Scope};
use crate::cells::{Column, Role};
use crate::halves::{self, Ends, GRACE, Ours};
use crate::messages::Messages;
use crate::table::{MANAGED, Row};

/// When a server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    /// It listens on this port.
    Port(u16),
    /// It has joined the group.
    Group,
}

/// The programs of a row.
#[derive(Clone, Copy, Debug)]
struct Programs {
    /// The row's name, if it is not the client's program and arguments.
    name: &'static str,
    /// Program and arguments; `HERE` is the side's own address and `SERVER` the server's, `FAMILY` the option for the
    /// address family.
    server: &'static str,
    client: &'static str,
    ready: Ready,
    /// The client's expected output, and whether it succeeds.
    proof: &'static str,
    success: bool,
    /// Whether the row is for IPv4 only: Linux's connection manager rejects IPv6 groups on RoCEv2.
    ipv4_only: bool,
}

const RPING: Ready = Ready::Port(7174);
const UCMATOSE: Ready = Ready::Port(7471);
const UDADDY: Ready = Ready::Port(7174);
const OTHER: Ready = Ready::Port(7999);

/// The group of the rows, as in `/proc/net/igmp`, and the Ethernet address that rdma_rxe joins for a queue pair: as if
/// it were an IPv6 group.
const IGMP: &str = "070809EF";
const ETHERNET: &str = "3333ef090807";

const fn good(
    server: &'static str,
    client: &'static str,
    ready: Ready,
    proof: &'static str,
) -> Programs {
    Programs { name: "", server, client, ready, proof, success: true, ipv4_only: false }
}

const fn group(server: &'static str, client: &'static str) -> Programs {
    let programs = good(server, client, Ready::Group, DONE);
    Programs { ipv4_only: true, ..programs }
}

/// No program listens on the client's port, although there is another connection manager program.
const fn refused(name: &'static str, client: &'static str, proof: &'static str) -> Programs {
    let programs = good("rping -s -p 7999 -a HERE", client, OTHER, proof);
    Programs { name, success: false, ..programs }
}

const TEN: &str = "rdma-ping-9";
const DONE: &str = "return status 0";

#[rustfmt::skip]
const ROWS: &[Programs] = &[
    good("rping -s -v -V -C 10 -a HERE",                     "rping -c -v -V -C 10 -a SERVER",                       RPING,    TEN),
    good("rping -s -v -V -q -S 20000 -C 10 -a HERE",         "rping -c -v -V -q -S 20000 -C 10 -a SERVER",           RPING,    TEN),
    good("ucmatose FAMILY -b HERE -c 3 -C 10 -S 5000",       "ucmatose FAMILY -s SERVER -c 3 -C 10 -S 5000",         UCMATOSE, DONE),
    good("ucmatose FAMILY -b HERE -t 96 -a 14",              "ucmatose FAMILY -s SERVER -t 96 -a 14",                UCMATOSE, DONE),
    good("udaddy FAMILY -b HERE -c 3 -C 10 -S 1000",         "udaddy FAMILY -s SERVER -c 3 -C 10 -S 1000",           UDADDY,   DONE),
    good("udaddy FAMILY -b HERE -t 96",                      "udaddy FAMILY -s SERVER -t 96",                        UDADDY,   DONE),
    refused("rejected: nobody listens",                      "rping -c -C 1 -a SERVER",                              "RDMA_CM_EVENT_REJECTED, error 8"),
    refused("rejected: nobody listens for datagrams",        "udaddy FAMILY -s SERVER",                              "RDMA_CM_EVENT_UNREACHABLE"),
    group("mckey -m 239.9.8.7 -b HERE -C 10",                "mckey -m 239.9.8.7 -s -b HERE -C 10"),
    group("mckey -m 239.9.8.7 -b HERE -C 10",                "mckey -m 239.9.8.7 -o -s -b HERE -C 10"),
];

/// A row with a client, in a column.
struct Pair {
    programs: Programs,
    client: Role,
    column: Column,
}

impl Pair {
    fn server(&self) -> Role {
        match self.client {
            Role::Ours => Role::Theirs,
            Role::Theirs => Role::Ours,
        }
    }

    fn address(&self, side: Role) -> &'static str {
        match (side, self.column.ipv6) {
            (Role::Ours, false) => "10.47.91.1",
            (Role::Ours, true) => "fd00:4791::1",
            (Role::Theirs, false) => "10.47.91.11",
            (Role::Theirs, true) => "fd00:4791::11",
        }
    }

    /// Returns the command line of a side.
    fn line(&self, side: Role) -> String {
        let line = if side == self.client { self.programs.client } else { self.programs.server };
        let family = if self.column.ipv6 { "-f ipv6" } else { "-f ip" };
        let line = line.replace("HERE", self.address(side)).replace("FAMILY", family);
        line.replace("SERVER", self.address(self.server()))
    }

    fn start_here(&self, peer: &Peer) -> Result<Ours, String> {
        let line = self.line(Role::Ours);
        let mut words = line.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        Ours::start(peer, &program, &words.collect::<Vec<_>>())
    }

    fn start_there(&self, peer: &Peer) -> Result<Remote, String> {
        peer.spawn(&self.line(Role::Theirs)).map_err(|error| error.to_string())
    }

    /// Waits until the machine's server is ready.
    fn wait_there(&self, peer: &Peer) -> Result<(), String> {
        let machine = peer.machine(1);
        let waited = match self.programs.ready {
            Ready::Port(port) => machine.wait_for_cm(port, TIMEOUT),
            Ready::Group => {
                let line = format!("grep -q 'eth0.*{ETHERNET}' /proc/net/dev_mcast");
                machine.wait_until(&line, TIMEOUT)
            }
        };
        waited.map_err(|error| error.to_string())
    }

    /// Waits until our server is ready, or has ended.
    fn wait_here(&self, peer: &Peer, server: &mut Ours) -> Result<(), String> {
        let (table, wanted) = match self.programs.ready {
            Ready::Port(port) => ("unix", listening::entry(port)),
            Ready::Group => ("igmp", IGMP.to_owned()),
        };
        peer.wait_for_text_here(table, &wanted, TIMEOUT, || server.ended().is_some())
            .map_err(|error| format!("{error}: {}", server.finish()))
    }

    fn judge(&self, ends: &Ends) -> Result<(), String> {
        let Programs { proof, success, .. } = self.programs;
        let theirs = ends.theirs.stdout.clone() + &ends.theirs.stderr;
        let (our_end, their_end) = (ends.our_success, ends.theirs.status == 0);
        let (client_end, client) = match self.client {
            Role::Ours => (our_end, &ends.ours),
            Role::Theirs => (Some(their_end), &theirs),
        };
        let server_end = if self.client == Role::Ours { Some(their_end) } else { our_end };
        let good = match success {
            true => client_end == Some(true) && server_end == Some(true),
            false => client_end == Some(false),
        };
        let bad = [&ends.ours, &theirs].iter().any(|said| said.contains("mismatch"));
        if good && client.contains(proof) && !bad { Ok(()) } else { Err(ends.to_string()) }
    }
}

impl Case for Pair {
    fn row(&self) -> Row {
        let Programs { name, client, .. } = self.programs;
        if !name.is_empty() {
            return Row::new(name, self.client);
        }
        let places = ["HERE", "SERVER", "FAMILY"];
        let mut words = Vec::new();
        let mut rest = client.split_whitespace().peekable();
        while let Some(word) = rest.next() {
            let of_address = rest.peek().is_some_and(|next| ["HERE", "SERVER"].contains(next));
            let is_role = word == "-s" || word == "-c" && client.starts_with("rping");
            if !of_address && !is_role && !places.contains(&word) {
                words.push(word);
            }
        }
        Row::new(&format!("`{}`", words.join(" ")), self.client)
    }

    fn run(&self, peer: &Peer) -> Result<(), String> {
        let (ours, theirs);
        match self.client {
            Role::Ours => {
                theirs = self.start_there(peer)?;
                self.wait_there(peer)?;
                ours = self.start_here(peer)?;
            }
            Role::Theirs => {
                let mut server = self.start_here(peer)?;
                self.wait_here(peer, &mut server)?;
                ours = server;
                theirs = self.start_there(peer)?;
            }
        }
        let line = self.line(Role::Theirs);
        let there = line.split(' ').next().unwrap_or_default();
        // If the client is refused, its server has nothing to wait for.
        let grace = if self.programs.success { GRACE } else { Duration::ZERO };
        let ends = halves::both(peer, there, ours, theirs, grace)?;
        self.judge(&ends)
    }

    fn expects(&self, anomaly: &str) -> bool {
        anomaly == "cm_reject" && !self.programs.success
    }
}

/// Runs all rows in a column, with each side as the server.
pub(crate) fn column(column: Column, scope: Scope) {
    let Some(mut bench) = Bench::start(column, scope) else { return };
    let mut pairs = Vec::new();
    for &programs in ROWS.iter().filter(|row| !(row.ipv4_only && column.ipv6)) {
        for client in [Role::Theirs, Role::Ours] {
            pairs.push(Pair { programs, client, column });
        }
    }
    bench.run(&pairs);
    let mut messages = Messages::default();
    for (row, path) in bench.captures() {
        messages.read(row.program(), path);
    }
    // A subset of the rows does not have all messages.
    if bench.captures().len() == pairs.len() {
        messages.compare(if column.ipv6 { "ipv6" } else { "ipv4" });
    }
    bench.finish(&MANAGED);
}

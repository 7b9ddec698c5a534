//! The cells of the matrix: the program in the machine, the program on our side, and the expected result.

use crate::ours::Task;

/// Which side is the client, or the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The machine's program is the client, ours the server.
    Theirs,
    /// Ours is the client, the machine's program the server.
    Ours,
}

/// How the machine's program must exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Failure,
    /// With any status: some treat a disconnect as a failure.
    Any,
}

/// One row of the matrix, for one path MTU and address family.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// The name of the machine's program in the table.
    pub program: String,
    pub role: Role,
    pub task: Task,
    /// The shell command in the machine.
    pub line: String,
    pub end: End,
    /// What it must print, and the minimum number of times.
    pub proof: (&'static str, usize),
    /// The port on which its server listens with the connection manager.
    pub listens: Option<u16>,
    /// Expected anomalies.
    pub expected: &'static [&'static str],
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub ipv6: bool,
    pub mtu: usize,
}

/// Builds the cells of one column.
struct Maker {
    column: Column,
    lossy: bool,
    cells: Vec<Cell>,
}

impl Maker {
    fn task(&self, program: &'static str, serves: bool, size: usize, count: usize) -> Task {
        let Column { ipv6, mtu } = self.column;
        let lossy = self.lossy;
        Task { program, serves, ipv6, mtu, size, count, events: false, lossy }
    }

    fn here(&self) -> &'static str {
        if self.column.ipv6 { "fd00:4791::1" } else { "10.47.91.1" }
    }

    fn there(&self) -> &'static str {
        if self.column.ipv6 { "fd00:4791::11" } else { "10.47.91.11" }
    }

    fn add(&mut self, program: &str, role: Role, task: Task, line: String) -> &mut Cell {
        let lossy = if self.lossy { ", 1 % lost each way" } else { "" };
        self.cells.push(Cell {
            program: format!("{program}{lossy}"),
            role,
            task,
            line,
            end: End::Success,
            proof: ("", 0),
            listens: None,
            expected: &[],
        });
        self.cells.last_mut().expect("the cell of now")
    }

    /// Adds `ibv_NAME_pingpong`, in both roles.
    fn pingpong(&mut self, name: &'static str, size: usize, count: usize, events: bool) {
        let Column { ipv6, mtu } = self.column;
        let gid = if ipv6 { 2 } else { 1 };
        let mut line = format!("ibv_{name}_pingpong -g {gid} -s {size} -n {count}");
        if name != "ud" {
            line += &format!(" -m {mtu}");
        }
        let mut title = format!("`ibv_{name}_pingpong -s {size}`");
        if events {
            line += " -e";
            title = title.replace("` ", "").trim_end_matches('`').to_owned() + " -e`";
        }
        for role in [Role::Theirs, Role::Ours] {
            let task = Task { events, ..self.task(name, role == Role::Theirs, size, count) };
            let line = match role {
                // TCP over IPv4 even if the GIDs are IPv6: it is not under test.
                Role::Theirs => format!("{line} 10.47.91.1"),
                Role::Ours => format!("{line} -c"),
            };
            self.add(&title, role, task, line).proof = ("iters in", 1);
        }
    }

    fn rping(&mut self, size: usize, count: usize) {
        let (here, there) = (self.here(), self.there());
        let title = format!("`rping -S {size}`");
        let task = self.task("rping", true, size, count);
        let line = format!("rping -c -a {here} -C {count} -S {size} -v -V");
        self.add(&title, Role::Theirs, task.clone(), line).proof = ("ping data: rdma-ping", count);
        let line = format!("rping -s -a {there} -C {count} -S {size} -v");
        let cell = self.add(&title, Role::Ours, Task { serves: false, ..task }, line);
        cell.proof = ("server ping data: rdma-ping", count);
        (cell.end, cell.listens) = (End::Any, Some(7174));
    }

    fn cma(&mut self, program: &'static str, port: u16, size: usize, count: usize) {
        let (here, there) = (self.here(), self.there());
        let title = format!("`{program} -S {size}`");
        let task = self.task(program, true, size, count);
        let line = format!("{program} -C {count} -S {size}");
        let theirs = format!("{line} -s {here}");
        self.add(&title, Role::Theirs, task.clone(), theirs).proof = ("return status 0", 1);
        let task = Task { serves: false, ..task };
        let cell = self.add(&title, Role::Ours, task, format!("{line} -b {there}"));
        (cell.proof, cell.listens) = (("return status 0", 1), Some(port));
    }

    /// Adds clients without a listener, and rejected clients.
    fn nobody(&mut self) {
        let here = self.here();
        let rping = format!("rping -c -a {here} -C 1 -p 7471 2>&1");
        for (title, program, line, proof) in [
            ("rejected: nobody listens", "nobody", rping.clone(), "REJECTED, error 8"),
            ("rejected: the program says no", "refuse", rping, "REJECTED, error 28"),
            (
                "rejected: nobody listens for datagrams",
                "nobody",
                format!("udaddy -s {here} 2>&1"),
                "UNREACHABLE",
            ),
        ] {
            let task = self.task(program, true, 0, 0);
            let cell = self.add(title, Role::Theirs, task, line);
            (cell.end, cell.proof, cell.expected) = (End::Failure, (proof, 1), &["cm_reject"]);
        }
        for (title, program) in [
            ("rejected: nobody listens", "nobody-there"),
            ("rejected: nobody listens for datagrams", "no-datagrams-there"),
        ] {
            let task = self.task(program, false, 0, 0);
            self.add(title, Role::Ours, task, "true".into()).expected = &["cm_reject"];
        }
    }

    /// Adds our own program for single operations.
    fn puppet(&mut self, title: &str, program: &'static str, expected: &'static [&'static str]) {
        let line = format!("puppet 7500 {}", if self.column.ipv6 { 2 } else { 1 });
        for role in [Role::Theirs, Role::Ours] {
            // UC does not retransmit: no more is sent than a queue holds.
            let longest = if program == "unreliable-operations" { 200_000 } else { 1 << 20 };
            let task = self.task(program, role == Role::Theirs, longest, 0);
            self.add(title, role, task, line.clone()).expected = expected;
        }
    }
}

/// Returns all cells of a column: without packet loss, and with it.
pub(crate) fn all(column: Column) -> (Vec<Cell>, Vec<Cell>) {
    let mut good = Maker { column, lossy: false, cells: Vec::new() };
    good.pingpong("rc", 4096, 300, false);
    good.pingpong("rc", 300_000, 20, true);
    good.pingpong("uc", 4096, 300, false);
    good.pingpong("uc", 50_000, 20, true);
    good.pingpong("ud", 1024, 300, false);
    good.pingpong("ud", 777, 50, true);
    good.pingpong("srq", 4096, 300, false);
    good.pingpong("srq", 20_000, 100, true);
    good.rping(100, 20);
    good.rping(65_000, 5);
    good.cma("ucmatose", 7471, 100, 10);
    good.cma("ucmatose", 7471, 20_000, 10);
    good.cma("udaddy", 7174, 100, 10);
    good.nobody();
    // The first has late receives, and rdma_rxe sends another NAK after an RNR NAK.
    good.puppet(
        "WRITE, READ, SEND, immediate, atomics, RNR",
        "operations",
        &["rnr_nak", "nak_sequence"],
    );
    good.puppet("UC: WRITE, SEND, immediate", "unreliable-operations", &[]);
    good.puppet(
        "refused: key, bounds, rights, length; RNR exceeded",
        "refusals",
        &[
            "nak_remote_access",
            "nak_invalid_request",
            "nak_remote_operational",
            "nak_sequence",
            "rnr_nak",
            "rnr_retry_exceeded",
        ],
    );
    let mut bad = Maker { column, lossy: true, cells: Vec::new() };
    bad.pingpong("rc", 4096, 200, true);
    bad.pingpong("srq", 4096, 200, true);
    bad.rping(20_000, 3);
    bad.cma("ucmatose", 7471, 5000, 10);
    bad.puppet("WRITE, READ, SEND, immediate, atomics, RNR", "operations", &[]);
    (good.cells, bad.cells)
}

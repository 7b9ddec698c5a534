//! Our side of a cell: a process on our side of the network that uses `ferroce` like any program.
//!
//! The process that starts it waits for [`ready`] before it starts a client in the machine, and closes our input when
//! the machine's program has exited. Any failure is a panic, and thereby our exit status.

mod cma;
mod end;
mod operations;
mod pingpong;
mod puppet;
mod refusals;
mod rping;
mod shared;

use std::env;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::process;
use std::thread;
use std::time::Duration;

use ferroce::ServiceType;
use ferroce_tests::peer::{OUR_V4, OUR_V6};

/// The environment variable with the task.
pub(crate) const TASK: &str = "FERROCE_INTEROP_TASK";

/// The timeout of a task; nothing below has its own.
const LIMIT: Duration = Duration::from_secs(45);

/// The task of our side of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The name of the program.
    pub program: &'static str,
    /// We listen, and the machine's program is the client.
    pub serves: bool,
    /// The address family.
    pub ipv6: bool,
    /// The path MTU.
    pub mtu: usize,
    /// Bytes of a message.
    pub size: usize,
    /// Messages.
    pub count: usize,
    /// Sleep until something completes, instead of polling.
    pub events: bool,
    /// The network loses packets, possibly including the last acknowledgement of a peer that has exited.
    pub lossy: bool,
}

type Program = fn(&Task);

/// The programs by name.
const PROGRAMS: [(&str, Program); 14] = [
    ("rc", |task| pingpong::run(task, ServiceType::ReliableConnection)),
    ("uc", |task| pingpong::run(task, ServiceType::UnreliableConnection)),
    ("ud", |task| pingpong::run(task, ServiceType::UnreliableDatagram)),
    ("srq", shared::run),
    ("rping", rping::run),
    ("ucmatose", cma::connections),
    ("udaddy", cma::datagrams),
    ("nobody", cma::nobody),
    ("refuse", cma::refuse),
    ("nobody-there", cma::nobody_there),
    ("no-datagrams-there", cma::no_datagrams_there),
    ("operations", operations::reliable),
    ("unreliable-operations", operations::unreliable),
    ("refusals", refusals::run),
];

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, serves, ipv6, mtu, size, count, events, lossy } = self;
        write!(f, "{program} {serves} {ipv6} {mtu} {size} {count} {events} {lossy}")
    }
}

impl Task {
    fn parse(text: &str) -> Option<(Self, Program)> {
        let mut words = text.split(' ');
        let program = words.next()?;
        let (program, run) = PROGRAMS.iter().find(|(name, _)| *name == program)?;
        let flag = |word: Option<&str>| word?.parse().ok();
        let number = |word: Option<&str>| word?.parse().ok();
        let task = Self {
            program,
            serves: flag(words.next())?,
            ipv6: flag(words.next())?,
            mtu: number(words.next())?,
            size: number(words.next())?,
            count: number(words.next())?,
            events: flag(words.next())?,
            lossy: flag(words.next())?,
        };
        Some((task, *run))
    }

    /// Returns our address.
    fn here(&self) -> IpAddr {
        if self.ipv6 { OUR_V6.into() } else { OUR_V4.into() }
    }

    /// Returns the machine's address.
    fn there(&self) -> IpAddr {
        if self.ipv6 { [0xfd00, 0x4791, 0, 0, 0, 0, 0, 0x11].into() } else { THERE_V4.into() }
    }
}

/// The first machine's address for TCP, for both families.
const THERE_V4: [u8; 4] = [10, 47, 91, 11];

/// Runs the task in the environment.
pub(crate) fn run() {
    let text = env::var(TASK).expect("a task");
    let (task, program) = Task::parse(&text).expect("a task that there is");
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("our side did not end in {} s", LIMIT.as_secs());
        process::exit(3);
    });
    program(&task);
}

/// Reports that a client can connect.
fn ready() {
    println!("\nready");
    io::stdout().flush().expect("somebody who reads");
}

/// Waits until the machine's program has exited. Until then our device's thread serves its requests.
fn wait_for_the_other() {
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest).expect("an end");
}

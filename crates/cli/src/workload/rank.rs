//! One rank: a process that connects to the others and does its part of the work.

use std::io::{self, Stdout};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::{Buffer, Local, Options};

use super::control::{self, FromRank, Start, ToRank, VERSION};
use super::fault::Fault;
use super::link::{Link, RdmaLink, TcpLink};
use super::method::Method;
use super::node::{Moment, Node};
use super::tally::RankResult;
use crate::exit::ExitStatus;
use crate::session::failure::Failure;

/// How often a rank tells that it is alive.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// How long a wait lasts at most after the work is done.
const IDLE: Duration = Duration::from_millis(100);

/// The connection to the command that started the rank.
#[derive(Clone)]
struct Parent(Arc<Mutex<Stdout>>);

impl Parent {
    fn send(&self, message: &FromRank) {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if control::send(&mut *out, message).is_err() {
            // The command is gone: nobody is left to report to.
            process::exit(1);
        }
    }
}

/// Runs a rank.
pub(super) fn run() -> ExitStatus {
    let parent = Parent(Arc::new(Mutex::new(io::stdout())));
    let messages = listen(parent.clone());
    match work(&parent, &messages) {
        Ok(()) => ExitStatus::Success,
        Err(fault) => {
            parent.send(&FromRank::Failed { message: fault.to_string() });
            ferroce::exit::shut_down();
            ExitStatus::Failure
        }
    }
}

/// Receives the messages of the command. The messages that end the rank, and the end of the command itself, end it at
/// once, wherever it waits.
fn listen(parent: Parent) -> Receiver<ToRank> {
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let status = loop {
            match control::receive(&mut input) {
                Ok(Some(ToRank::Quit)) => break 0,
                Ok(Some(ToRank::Abort)) => {
                    parent.send(&FromRank::Aborted);
                    break 1;
                }
                // The main thread ends only with the process.
                Ok(Some(message)) => _ = sender.send(message),
                Ok(None) | Err(_) => break 1,
            }
        };
        // So that captures are complete.
        ferroce::exit::shut_down();
        process::exit(status);
    });
    messages
}

fn expected<T>(message: Option<T>) -> Result<T, Fault> {
    message.ok_or_else(|| Failure::IncompatiblePeer.into())
}

fn work(parent: &Parent, messages: &Receiver<ToRank>) -> Result<(), Fault> {
    let start = match messages.recv() {
        Ok(ToRank::Start(start)) if start.version == VERSION => Some(start),
        _ => None,
    };
    let start = expected(start)?;
    let job = &start.job;
    job.check().map_err(Failure::Other)?;
    expected((start.rank < job.ranks).then_some(()))?;
    let memory = Buffer::new(job.memory())
        .map_err(|error| Failure::Other(format!("cannot allocate memory: {error}")))?;
    let memory = Arc::new(memory);
    let mut link = link(&start, &memory)?;
    parent.send(&FromRank::Here { pid: process::id(), endpoint: link.endpoint()? });

    let endpoints = match messages.recv() {
        Ok(ToRank::Connect { endpoints }) if endpoints.len() == job.ranks => Some(endpoints),
        _ => None,
    };
    link.connect(&expected(endpoints)?)?;
    parent.send(&FromRank::Ready { shares_memory: link.shares_memory() });
    expected(matches!(messages.recv(), Ok(ToRank::Go)).then_some(()))?;

    let operations = Arc::new(AtomicU64::new(0));
    beat(parent.clone(), Arc::clone(&operations));
    let timeout = Duration::from_nanos(job.timeout_ns);
    let mut node = Node::new((start.rank, job.ranks), memory, link, timeout, operations);
    node.barrier()?;
    let begin = Moment::now();
    let tally = job.run(&mut node)?;
    let (nanoseconds, cpu_ns) = node.measured_since(begin);
    let result = Box::new(RankResult::new(tally, nanoseconds, cpu_ns));
    parent.send(&FromRank::Finished { result });
    // The others may still need this rank, over TCP also to execute their requests. Those that end earlier close their
    // connections, which is not a failure any more.
    loop {
        if node.poll(Instant::now() + IDLE).is_err() {
            thread::sleep(IDLE);
        }
    }
}

fn link(start: &Start, memory: &Arc<Buffer>) -> Result<Box<dyn Link>, Fault> {
    let (rank, ranks) = (start.rank, start.job.ranks);
    let local = match start.method {
        Method::Tcp => {
            return Ok(Box::new(TcpLink::new(rank, start.address, memory, start.token)?));
        }
        Method::RdmaSharedMemory => Local::Memory,
        Method::RdmaWire => Local::Sockets,
    };
    let mut options = Options { local, ..Options::from_env()? };
    options.capture = start.capture.clone().or(options.capture);
    let message = start.job.message();
    Ok(Box::new(RdmaLink::new(rank, ranks, start.address, memory, message, &options)?))
}

/// Tells the command at intervals that this rank is alive, and how far it is.
fn beat(parent: Parent, operations: Arc<AtomicU64>) {
    thread::spawn(move || {
        loop {
            thread::sleep(HEARTBEAT);
            parent.send(&FromRank::Alive { operations: operations.load(Ordering::Relaxed) });
        }
    });
}

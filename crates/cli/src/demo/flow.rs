//! The demo client: performs every operation once and verifies every byte.

use std::net::SocketAddr;
use std::path::Path;

use ferroce::cm::EventChannel;
use ferroce::setup::{self, ConnectionParameters, Phase, RetryPolicy};
use ferroce::{
    Context, Data, Device, Gid, Immediate, MemoryRegion, Operation, SendRequest, WorkCompletion,
    clock,
};

use super::DemoArgs;
use super::output::Outcome;
use crate::capture::PolicyArgs;
use crate::client::connect::Connection;
use crate::session::bytes::{Pattern, bytes};
use crate::session::dump;
use crate::session::end::{COMPLETION_TIMEOUT, End, LOCAL, Parts, SHARED};
use crate::session::events::{Caller, Haste};
use crate::session::failure::Failure;
use crate::session::log::Log;
use crate::session::options;
use crate::session::protocol::{MemoryGrant, MemoryRequest, SessionMessage};
use crate::session::set_up::SetUp;

/// The message that the server receives by SEND.
const TEXT: &str = "client-sent-this";

/// The immediate data of WRITE_WITH_IMM: "ready". Its payload is the pattern of this seed.
const READY: u32 = 1;

/// The value that the counter is swapped for, and the value that is added.
const SWAP: u64 = 4791;
const ADD: u64 = 100;

/// The client of an established connection.
struct Client<'a> {
    end: End,
    wish: MemoryRequest,
    grant: MemoryGrant,
    /// Disconnects; the set-up exchange has no message for that.
    caller: Option<Caller>,
    /// The buffer for READ responses, followed by the counter's values.
    rx: MemoryRegion,
    tx: MemoryRegion,
    log: Log,
    outcome: &'a mut Outcome,
}

/// Performs all steps. The result contains the steps up to a failure.
pub(super) fn run(
    args: &DemoArgs,
    server: SocketAddr,
    capture: Option<&Path>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let mut log = Log::new("client");
    let options = options(capture.map(Path::to_path_buf).as_ref(), PolicyArgs::default())?;
    let wish = MemoryRequest { size: args.size.0 };
    let connected = match args.set_up {
        SetUp::Cm => EventChannel::with_options(options)
            .map_err(Failure::from)
            .and_then(|channel| Connection::open(channel, server, wish, Haste::Calm, &mut log))
            .and_then(|connection| registered(connection, &mut log)),
        SetUp::Exchange => exchanged(&options, server, wish, &mut log, outcome),
    };
    let (end, grant, caller, tx, rx) = match connected {
        Ok(connected) => connected,
        Err(failure) => {
            outcome.steps = log.steps;
            return Err(failure);
        }
    };
    outcome.queue_pairs.push(end.queue_pair.number().0);
    let mut client = Client { end, wish, grant, caller, rx, tx, log, outcome };
    let ran = client.operations().and_then(|()| client.leave());
    let context = client.end.queue_pair.context().clone();
    let captured = context.flush_capture().unwrap_or_default();
    client.outcome.dropped = captured.dropped;
    client.outcome.capture_complaint = captured.complaint();
    let Client { log, outcome, .. } = client;
    outcome.steps = log.steps;
    ran
}

type Connected = (End, MemoryGrant, Option<Caller>, MemoryRegion, MemoryRegion);

fn regions(
    end: &Parts,
    wish: MemoryRequest,
    log: &mut Log,
) -> Result<(MemoryRegion, MemoryRegion), Failure> {
    log.say("main", "Register local tx/rx");
    let since = clock::now();
    let tx = end.pd.allocate(wish.size as usize, LOCAL)?;
    dump::region(log, since, "tx", &tx);
    let since = clock::now();
    let rx = end.pd.allocate(wish.region().ok_or(Failure::IncompatiblePeer)?, SHARED)?;
    dump::region(log, since, "rx", &rx);
    Ok((tx, rx))
}

fn registered(connection: Connection, log: &mut Log) -> Result<Connected, Failure> {
    let Connection { end, wish, grant, caller } = connection;
    let (tx, rx) = regions(&end.parts, wish, log)?;
    Ok((end, grant, Some(caller), tx, rx))
}

/// Connects by the set-up exchange: the server registers a region to match ours.
fn exchanged(
    options: &ferroce::Options,
    server: SocketAddr,
    wish: MemoryRequest,
    log: &mut Log,
    outcome: &mut Outcome,
) -> Result<Connected, Failure> {
    let since = clock::now();
    let (device, index) = Device::toward(server)?;
    let context = Context::open(&device, options)?;
    log.done("main", since, format!("Open {}", device.name()));
    let since = clock::now();
    let parts = Parts::new(&context)?;
    let queue_pair = parts.pd.queue_pair(&parts.options())?;
    log.done("main", since, "Build PD/CQ/QP");
    let (tx, rx) = regions(&parts, wish, log)?;
    let end = parts.with(queue_pair);
    let since = clock::now();
    let gid = Gid::from_ip(server.ip());
    let exchange = setup::Client::begin(&context, index, gid, RetryPolicy::default())?;
    log.say("setup", format!("DEVICE_DISCOVERY_REQ to {}", server.ip()));
    let parameters = ConnectionParameters::default();
    let established = exchange.establish(&end.queue_pair, &[&rx], parameters)?;
    log.done("setup", since, "CONNECTION_CONFIRM: the queue pair is in RTS");
    end.post_receives()?;
    for phase in [Phase::Discovery, Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        if let Some(time) = established.times.phase(phase) {
            outcome.phase(phase, &time);
        }
    }
    dump::queue_pair(log, &end.queue_pair);
    let region = established.regions.first().ok_or(Failure::IncompatiblePeer)?;
    let remote = ferroce::RemoteAddress { address: region.region.address, key: region.remote_key };
    let text = format!("Got remote addr={:#x} rkey={:#x}", remote.address.0, remote.key.0);
    log.say("main", text);
    Ok((end, MemoryGrant { remote }, None, tx, rx))
}

impl Client<'_> {
    fn operations(&mut self) -> Result<(), Failure> {
        self.write_and_read()?;
        self.write_with_immediate()?;
        self.send_and_receive()?;
        self.atomics()
    }

    /// Posts a request and waits for its completion, logging both.
    fn run(&mut self, name: &'static str, request: SendRequest) -> Result<WorkCompletion, Failure> {
        self.log.say("main", format!("Post {name}"));
        dump::request(&mut self.log, &request);
        let (bytes, since) = (request.data.len(), clock::now());
        self.end.queue_pair.post_send(request)?;
        let done = self.end.completed()?;
        let took = clock::now() - since;
        dump::completion(&mut self.log, Some(since), Some(bytes), &done);
        self.outcome.timed(name, bytes, took);
        Ok(done)
    }

    fn all(&self, region: &MemoryRegion) -> Data {
        Data::SgList(region.sge(0, self.wish.size as u32).into())
    }

    fn write_and_read(&mut self) -> Result<(), Failure> {
        let pattern = Pattern::new(clock::now());
        let (size, remote) = (self.wish.size, self.grant.remote);
        pattern.write(&self.tx, 0, 0, size as usize)?;
        let write = Operation::Write { remote, immediate: None };
        let request = self.end.request(write, self.all(&self.tx));
        self.run("RDMA_WRITE", request)?;
        self.log.say("main", "WRITE complete");
        let request = self.end.request(Operation::Read { remote }, self.all(&self.rx));
        self.run("RDMA_READ", request)?;
        let right = pattern.check(&self.rx, 0, size as usize)? as u64;
        self.verify("what was written is read back", right, size)?;
        self.log.say("main", format!("READ complete: {right} of {} match", bytes(size)));
        Ok(())
    }

    fn write_with_immediate(&mut self) -> Result<(), Failure> {
        let size = self.wish.size;
        Pattern::new(u64::from(READY)).write(&self.tx, 0, 0, size as usize)?;
        let immediate = Some(Immediate(READY));
        let write = Operation::Write { remote: self.grant.remote, immediate };
        let request = self.end.request(write, self.all(&self.tx));
        self.run("RDMA_WRITE_WITH_IMM", request)?;
        match self.answer()? {
            SessionMessage::Verdict { right } => {
                self.verify("the server finds what came with the immediate", right, size)
            }
            _ => Err(Failure::IncompatiblePeer),
        }
    }

    fn send_and_receive(&mut self) -> Result<(), Failure> {
        let message = SessionMessage::Text(TEXT.to_owned());
        let request = self.end.message(&message)?;
        self.run("SEND", request)?;
        let same = self.answer()? == message;
        let length = TEXT.len() as u64;
        self.verify("the server sends the message back", if same { length } else { 0 }, length)?;
        self.log.say("main", format!("RECV complete: '{TEXT}'"));
        Ok(())
    }

    fn answer(&mut self) -> Result<SessionMessage, Failure> {
        let since = clock::now();
        let (message, done) = self.end.answer(COMPLETION_TIMEOUT)?;
        dump::completion(&mut self.log, Some(since), None, &done);
        Ok(message)
    }

    fn atomics(&mut self) -> Result<(), Failure> {
        let remote = self.grant.at(self.wish.counter());
        let swap = Operation::CompareSwap { remote, compare: 0, swap: SWAP };
        self.counter("COMP_SWAP", swap, 0)?;
        self.counter("FETCH_ADD", Operation::FetchAdd { remote, add: ADD }, SWAP)?;
        self.counter("RDMA_READ", Operation::Read { remote }, SWAP + ADD)
    }

    /// An atomic operation on the counter, which must return this value.
    fn counter(&mut self, name: &'static str, what: Operation, value: u64) -> Result<(), Failure> {
        let place = self.wish.counter();
        let data = Data::SgList(self.rx.sge(place, 8).into());
        let request = self.end.request(what, data);
        self.run(name, request)?;
        let mut found = [0; 8];
        self.rx.read(place as usize, &mut found)?;
        let found = u64::from_ne_bytes(found);
        self.log.say("main", format!("{name} complete: original value {found}"));
        let what = format!("{name} on the counter returns {value}");
        self.verify(&what, if found == value { 8 } else { 0 }, 8)
    }

    fn verify(&mut self, what: &str, right: u64, length: u64) -> Result<(), Failure> {
        self.outcome.check(what, right, length);
        match right == length {
            true => Ok(()),
            false => Err(Failure::DataMismatch(format!(
                "check failed: {what} ({right} of {})",
                bytes(length)
            ))),
        }
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let since = clock::now();
        match &self.caller {
            Some(caller) => {
                self.log.say("cm", "disconnect()");
                caller.disconnect()?;
                self.log.done("cm", since, "DISCONNECTED");
            }
            None => {
                let request = self.end.message(&SessionMessage::Goodbye)?;
                self.run("SEND", request)?;
            }
        }
        self.log.say("main", "Done");
        Ok(())
    }
}

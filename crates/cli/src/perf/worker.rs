//! A worker: a thread with a CQ and some of the QPs. Worker n of the client talks to worker n of the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ferroce::{
    CompletionChannel, CompletionKind, CompletionQueue, Gid, Status, WorkCompletion, clock,
};

use super::args::{Measure, Transport};
use super::control::{Event, Mail};
use super::end::{End, EndAddress, Resources, parts};
use super::tally::Tally;
use super::test::{Amount, Test};
use crate::session::failure::Failure;

/// How long a thread sleeps at most for a completion event before it looks for messages of the peer's worker.
const NAP: Duration = Duration::from_millis(2);

/// After this time without a message, those of an unreliable service that are missing count as lost.
const SILENCE: u64 = 500_000_000;

/// Completions that are taken at once.
const BATCH: usize = 64;

/// The two sides of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// What the main thread and the workers of a session share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The session ends at once.
    pub(super) abort: AtomicBool,
    /// The current size ends early.
    pub(super) interrupted: AtomicBool,
    /// Messages sent so far, for the progress line.
    pub(super) messages: AtomicU64,
}

/// A worker's connection to the main thread, and so to the worker of the peer.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) worker: usize,
    pub(super) mail: Receiver<Mail>,
    pub(super) events: Sender<Event>,
    pub(super) shared: Arc<Shared>,
}

impl Line {
    pub(super) fn send(&self, mail: Mail) -> Result<(), Failure> {
        self.events.send(Event::Mail(self.worker, mail)).map_err(|_| Failure::Disconnected)
    }
}

/// A CQ and QPs.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) side: Side,
    pub(super) test: Arc<Test>,
    pub(super) ends: Vec<End>,
    /// The number of its first end among those of all workers.
    pub(super) first: u64,
    cq: CompletionQueue,
}

impl Worker {
    /// Creates the QPs from `first` to `last`.
    pub(super) fn new(
        resources: &Resources,
        test: &Arc<Test>,
        side: Side,
        ends: std::ops::Range<u64>,
    ) -> Result<Self, Failure> {
        let count = (ends.end - ends.start) as u32;
        let entries = count * (test.tx_depth + test.post_list + test.receives());
        let channel = test.events.then(CompletionChannel::new).transpose()?;
        let cq = resources.context.completion_queue(entries as usize, channel.as_ref())?;
        let first = ends.start;
        let ends = (0..u64::from(count)).map(|index| End::new(resources, &cq, test, index));
        let ends = ends.collect::<Result<_, _>>()?;
        Ok(Self { side, test: Arc::clone(test), ends, first, cq })
    }

    /// Connects its QPs, and posts their receives.
    pub(super) fn connect(
        &mut self,
        resources: &Resources,
        route: (u8, Gid),
        peers: &[EndAddress],
    ) -> Result<(), Failure> {
        for (end, peer) in self.ends.iter_mut().zip(peers) {
            end.connect(resources, route, peer)?;
            for slot in 0..u64::from(self.test.receives()) {
                end.post_receive(&self.test, slot % self.test.slots())?;
            }
        }
        Ok(())
    }

    /// Whether this side sends in bandwidth tests.
    pub(super) fn sends(&self) -> bool {
        self.side == Side::Client || self.test.bidirectional
    }

    /// Prepares the memory for a size. The peer does nothing meanwhile.
    pub(super) fn prepare(&self, size: u64) -> Result<(), Failure> {
        self.ends.iter().enumerate().try_for_each(|(index, _)| self.prepare_memory(index, size))
    }

    /// Measures one size.
    pub(super) fn run(&self, size: u64, line: &Line) -> Result<Tally, Failure> {
        let mut run = Run::new(self, size, line);
        match self.test.measure {
            Measure::Bw | Measure::Rate => run.stream()?,
            Measure::Lat => run.latency()?,
        }
        Ok(run.tally)
    }
}

/// A received message that is not checked yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) slot: u64,
    pub(super) number: Option<u32>,
}

/// The state of an end during a run. Messages are numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) posted: u64,
    pub(super) completed: u64,
    pub(super) received: u64,
    /// The number that the last received message carried.
    pub(super) last: Option<u32>,
    pub(super) arrived: Vec<Arrival>,
}

/// A request of the peer to check messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    pub(super) end: usize,
    pub(super) first: u64,
    pub(super) count: u64,
    /// When it came.
    since: u64,
}

/// One size.
pub(super) struct Run<'a> {
    pub(super) worker: &'a Worker,
    pub(super) test: &'a Test,
    pub(super) size: u64,
    pub(super) line: &'a Line,
    pub(super) flows: Vec<Flow>,
    pub(super) tally: Tally,
    /// How many messages the peer's worker has sent, once it sends no more.
    pub(super) peer_sent: Option<u64>,
    /// Checks that the peer has not answered yet.
    pub(super) unanswered: u64,
    checks: VecDeque<Check>,
    /// When a message was last received.
    heard: u64,
    completions: Vec<WorkCompletion>,
    turns: u32,
}

impl<'a> Run<'a> {
    fn new(worker: &'a Worker, size: u64, line: &'a Line) -> Self {
        Self {
            worker,
            test: &worker.test,
            size,
            line,
            flows: worker.ends.iter().map(|_| Flow::default()).collect(),
            tally: Tally::default(),
            peer_sent: None,
            unanswered: 0,
            checks: VecDeque::new(),
            heard: clock::now(),
            completions: Vec::with_capacity(BATCH),
            turns: 0,
        }
    }

    /// Takes completions, and now and then messages of the peer's worker.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        let mut completions = std::mem::take(&mut self.completions);
        let mut found = self.worker.cq.poll(&mut completions, BATCH);
        if found == 0 && self.test.events {
            let waited = self.worker.cq.wait_until(Instant::now() + NAP)?;
            found = usize::from(waited.is_some());
            completions.extend(waited);
        }
        for completion in completions.drain(..) {
            self.complete(&completion)?;
        }
        self.completions = completions;
        self.turns = self.turns.wrapping_add(1);
        if self.turns % 16 == 0 || self.test.events && found == 0 {
            self.look_after_peer()?;
        }
        Ok(())
    }

    fn complete(&mut self, completion: &WorkCompletion) -> Result<(), Failure> {
        if completion.status != Status::Success {
            return Err(Failure::Work(completion.kind, completion.status));
        }
        let (end, number) = parts(completion.id);
        if completion.kind == CompletionKind::Receive && !self.has_length(completion)? {
            return self.worker.ends[end].post_receive(self.test, number);
        }
        let flow = &mut self.flows[end];
        if completion.kind != CompletionKind::Receive {
            let completed = flow.completed.max(number + 1);
            let more = completed - std::mem::replace(&mut flow.completed, completed);
            self.line.shared.messages.fetch_add(more, Ordering::Relaxed);
            return Ok(());
        }
        flow.received += 1;
        flow.last = completion.immediate.map(|immediate| immediate.0);
        self.tally.received += 1;
        if self.test.transport.is_lossy() {
            self.heard = clock::now();
        }
        if self.test.verify && self.test.measure != Measure::Lat {
            flow.arrived.push(Arrival { slot: number, number: flow.last });
            return Ok(());
        }
        self.worker.ends[end].post_receive(self.test, number)
    }

    /// Whether a received message has the length of this run. An unreliable service may deliver one of the run before.
    fn has_length(&self, completion: &WorkCompletion) -> Result<bool, Failure> {
        let header = if self.test.transport == Transport::Ud { super::end::GRH } else { 0 };
        let length = u64::from(completion.length).saturating_sub(header);
        if length == self.size || self.test.transport.is_lossy() {
            return Ok(length == self.size);
        }
        let size = self.size;
        Err(Failure::DataMismatch(format!("{length} bytes were received instead of {size}")))
    }

    /// Handles messages of the peer's worker.
    pub(super) fn look_after_peer(&mut self) -> Result<(), Failure> {
        if self.line.shared.abort.load(Ordering::Relaxed) {
            return Err(Failure::Disconnected);
        }
        while let Ok(mail) = self.line.mail.try_recv() {
            self.open(mail)?;
        }
        self.answer_checks()
    }

    fn open(&mut self, mail: Mail) -> Result<(), Failure> {
        match mail {
            Mail::Sent { count } => self.peer_sent = Some(count),
            Mail::Check { end, first, count } => {
                if end >= self.flows.len() || count > self.test.slots() {
                    return Err(Failure::IncompatiblePeer);
                }
                self.checks.push_back(Check { end, first, count, since: clock::now() });
            }
            Mail::Checked { lost, .. } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.tally.lost += lost;
            }
        }
        Ok(())
    }

    /// Checks what the peer asked for, as soon as it was received.
    fn answer_checks(&mut self) -> Result<(), Failure> {
        while let Some(&check) = self.checks.front() {
            if !self.has_arrived(&check)? && !self.is_silent(check.since) {
                return Ok(());
            }
            self.checks.pop_front();
            let lost = self.check_received(check)?;
            self.line.send(Mail::Checked { end: check.end, lost })?;
        }
        Ok(())
    }

    /// Whether all messages of a check are here. The completion of an unreliable request does not mean that.
    fn has_arrived(&self, check: &Check) -> Result<bool, Failure> {
        if !self.test.is_one_sided() {
            return Ok(self.flows[check.end].arrived.len() as u64 >= check.count);
        }
        if !self.test.transport.is_lossy() {
            return Ok(true);
        }
        for number in check.first..check.first + check.count {
            let (found, right) = self.written(check.end, number)?;
            if found != right {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether nothing is received any more that was sent before `since`. Only unreliable services lose messages.
    fn is_silent(&self, since: u64) -> bool {
        self.test.transport.is_lossy()
            && clock::now().saturating_sub(self.heard.max(since)) > SILENCE
    }

    /// Serves the peer until it has sent everything.
    pub(super) fn serve_peer(&mut self) -> Result<(), Failure> {
        let mut since = None;
        loop {
            if let Some(sent) = self.peer_sent {
                let since = *since.get_or_insert_with(clock::now);
                let expected = if self.test.is_one_sided() { 0 } else { sent };
                if self.tally.received >= expected || self.is_silent(since) {
                    return Ok(());
                }
            }
            if self.test.is_one_sided() {
                self.wait_for_mail()?;
            } else {
                self.turn()?;
            }
        }
    }

    /// Sleeps until the peer's worker has a message. The device thread serves the peer's requests meanwhile.
    fn wait_for_mail(&mut self) -> Result<(), Failure> {
        let pause = if self.checks.is_empty() { Duration::from_millis(50) } else { NAP };
        if let Ok(mail) = self.line.mail.recv_timeout(pause) {
            self.open(mail)?;
        }
        self.look_after_peer()
    }

    /// Waits for the answers to all checks.
    pub(super) fn wait_for_answers(&mut self) -> Result<(), Failure> {
        while self.unanswered > 0 {
            if self.test.is_one_sided() && !self.test.bidirectional {
                self.wait_for_mail()?;
            } else {
                self.turn()?;
                self.look_after_peer()?;
            }
        }
        Ok(())
    }

    /// The limits of a part of the run that starts now.
    pub(super) fn limit(&self, amount: Amount) -> Limit {
        match amount {
            Amount::Iterations(count) => Limit { messages: count, deadline: u64::MAX },
            Amount::Nanoseconds(time) => {
                Limit { messages: u64::MAX, deadline: clock::now().saturating_add(time) }
            }
        }
    }

    /// Whether the part is over.
    pub(super) fn is_over(&self, limit: &Limit) -> bool {
        self.line.shared.interrupted.load(Ordering::Relaxed)
            || limit.deadline != u64::MAX && clock::now() >= limit.deadline
    }
}

/// When a part of a run ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Messages of each end.
    pub(super) messages: u64,
    deadline: u64,
}

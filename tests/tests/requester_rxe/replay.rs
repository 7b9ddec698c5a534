//! Our requester, with the work requests that a capture implies, fed with the answers of the capture.
//!
//! Requests and answers are taken in captured order, at captured times. An answer goes to our queue pair. A request is
//! one that we must send, too: it is looked for among those that we sent and that have no counterpart yet, then among
//! those that our queue pair sends now, then, if the timer has run out, among those that it sends again.

use std::collections::BTreeMap;

use ferroce_proto::rc::QueuePair;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Status;
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::packet::MAX_PAYLOAD;
use ferroce_wire::syndrome::{NakCode, SyndromeKind};

use crate::differences::Difference;
use crate::memory::LocalMemory;
use crate::request::Request;
use crate::work::{Situation, Work};

/// When our requester gets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All it can, whenever a packet came or went.
    AtOnce,
    /// No further than rdma_rxe did.
    AsCaptured,
}

/// A way to be wrong: what is sent in place of one request.
pub(crate) type Change = fn(Request) -> Vec<Request>;

/// What came of an exchange.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Requests of rdma_rxe that have their counterpart, by class.
    pub(crate) compared: BTreeMap<&'static str, usize>,
    /// Of them, those that both sent again.
    pub(crate) again: usize,
    /// Of them, those that we sent because the timer had run out.
    pub(crate) timer: usize,
    /// Refusals, and gaps in READ responses, after which our next request was the one that was missing.
    pub(crate) went_back: usize,
    /// Times that we were told to wait, and sent nothing.
    pub(crate) waited: usize,
    /// Completions that were as the capture implies.
    pub(crate) completed: BTreeMap<&'static str, usize>,
    /// Bytes that READs and atomics brought to the right place.
    pub(crate) brought: usize,
    /// Requests that our queue pair sent.
    sent: usize,
    /// Whether one was made wrong.
    pub(crate) changed: bool,
    /// Those that have their counterpart, by the order in which they were sent.
    pub(crate) counterparts: Vec<usize>,
    pub(crate) differences: BTreeMap<Difference, usize>,
    /// What is wrong. Nothing behind it is compared.
    pub(crate) wrong: Option<String>,
}

/// A request of ours that has no counterpart yet.
struct Ours {
    request: Request,
    index: usize,
    /// rdma_rxe sent a later one before it.
    passed_over: bool,
    timer: bool,
}

struct Replay<'a> {
    exchange: &'a Exchange,
    queue_pair: QueuePair,
    memory: LocalMemory,
    works: &'a [Work],
    posted: usize,
    unmatched: Vec<Ours>,
    matched: Vec<Request>,
    /// The timer ran out: what is sent now is sent again for that.
    timer: bool,
    /// Where our next request must start, for the answers say that this is missing.
    next: Option<Psn>,
    /// The READ response that is due: before it, all came in order.
    due: Option<Psn>,
    /// The READ response that was found missing last. It is asked for once.
    missing: Option<Psn>,
    /// When the wait ends that an RNR NAK asked for.
    wait: Option<Instant>,
    /// What to make wrong: the request with this index.
    change: Option<(usize, Change)>,
    outcome: Outcome,
}

/// What our requester does when it hears what rdma_rxe heard, with one of its requests changed.
pub(crate) fn replay(
    exchange: &Exchange,
    situation: &Situation,
    pace: Pace,
    change: Option<(usize, Change)>,
) -> Outcome {
    let mut replay = Replay {
        exchange,
        queue_pair: QueuePair::new(situation.config.clone()),
        memory: situation.memory.clone(),
        works: &situation.works,
        posted: 0,
        unmatched: Vec::new(),
        matched: Vec::new(),
        timer: false,
        next: None,
        due: None,
        missing: None,
        wait: None,
        change,
        outcome: Outcome::default(),
    };
    if let Err(wrong) = replay.run(pace) {
        replay.outcome.wrong = Some(format!("{}: {wrong}", exchange.title));
    }
    replay.outcome
}

impl Replay<'_> {
    fn run(&mut self, pace: Pace) -> Result<(), String> {
        let exchange = self.exchange;
        let mut packets: Vec<(&Sent, bool)> =
            exchange.requests.iter().map(|sent| (sent, true)).collect();
        packets.extend(exchange.answers.iter().map(|sent| (sent, false)));
        packets.sort_by_key(|(sent, _)| sent.number);
        for (sent, request) in packets {
            if request {
                self.post_up_to(sent);
            } else {
                self.hear(sent)?;
            }
            if pace == Pace::AtOnce {
                while self.send(sent.time)? {}
                if let Some(next) = self.next.filter(|_| self.wait.is_none()) {
                    return Err(format!("{:#x} not sent after packet {}", next.0, sent.number));
                }
            }
            if request {
                self.expect(sent)?;
            }
        }
        // What rdma_rxe gave up, we give up when the timer runs out once more.
        if let Some(time) = self.queue_pair.poll_timeout() {
            self.queue_pair.handle_timeout(time);
            while self.send(time)? {}
        }
        // rdma_rxe sent each of them, too, but not as often.
        let known = |ours: &&Ours| self.matched.iter().any(|one| one.same(&ours.request));
        if let Some(ours) = self.unmatched.iter().find(|ours| !known(ours)) {
            return Err(format!("rdma_rxe never sent our {}", ours.request));
        }
        if !self.unmatched.is_empty() {
            self.outcome.differences.insert(Difference::NotCaptured, self.unmatched.len());
        }
        self.completions()
    }

    /// Posts the work request that this packet is of, and all before it.
    fn post_up_to(&mut self, sent: &Sent) {
        let psn = sent.packet().bth.psn;
        let own = |work: &Work| work.place(psn).is_some();
        let index = self.works.iter().position(own).expect("every request is of a work");
        while self.posted <= index {
            let request = self.works[self.posted].request.clone();
            self.queue_pair.post_send(request).expect("the queue is long enough");
            self.posted += 1;
        }
    }

    /// Hands an answer to our queue pair.
    fn hear(&mut self, sent: &Sent) -> Result<(), String> {
        let packet = sent.packet();
        self.timer = false;
        self.queue_pair.handle_packet(sent.time, &packet, false, None, &mut self.memory);
        self.wait = self.wait.filter(|&end| sent.time < end);
        match packet.extensions.aeth.map(|aeth| aeth.syndrome.kind()) {
            Some(SyndromeKind::RnrNak(timer)) => {
                self.wait = Some(sent.time + timer.duration());
                self.next = Some(packet.bth.psn);
            }
            Some(SyndromeKind::Nak(NakCode::PsnSequenceError)) => self.next = Some(packet.bth.psn),
            _ if sent.info().operation == Operation::ReadResponse => self.count_in(packet.bth.psn),
            _ => {}
        }
        if self.wait.is_some() {
            // Told to wait, we must not send: not even when a sequence NAK follows.
            if self.send(sent.time)? {
                return Err(format!("sent while told to wait, after answer {}", sent.number));
            }
            self.outcome.waited += 1;
        }
        Ok(())
    }

    /// A READ response came. One that comes too early shows that another is missing (IBA 9.7.5.2.8).
    fn count_in(&mut self, psn: Psn) {
        let work = self.works.iter().find(|work| work.place(psn).is_some());
        let first = work.expect("READ responses are answers to READs").first;
        let due = self.due.filter(|due| !due.is_before(first)).unwrap_or(first);
        if psn == due {
            self.due = Some(psn.add(1));
        } else if due.is_before(psn) && self.missing != Some(due) {
            self.missing = Some(due);
            self.next = Some(due);
        }
    }

    /// Lets our queue pair send one request. Returns whether it had one.
    fn send(&mut self, now: Instant) -> Result<bool, String> {
        let mut buffer = [0; MAX_PAYLOAD + 64];
        let Some(transmit) = self.queue_pair.poll_transmit(now, &mut self.memory) else {
            return Ok(false);
        };
        let length = transmit
            .encode(&self.memory, &mut buffer)
            .map_err(|error| format!("not encoded: {error:?}"))?;
        let request = Request::new(&buffer[..length]);
        let index = self.outcome.sent;
        self.outcome.sent += 1;
        let requests = match self.change {
            Some((place, change)) if place == index => {
                let changed = change(request.clone());
                self.outcome.changed = changed != [request];
                changed
            }
            _ => vec![request],
        };
        for request in requests {
            if let Some(next) = self.next.take() {
                if request.psn() != next {
                    return Err(format!("asked to go back to {:#x}, we sent {request}", next.0));
                }
                self.outcome.went_back += 1;
            }
            let timer = self.timer;
            self.unmatched.push(Ours { request, index, passed_over: false, timer });
        }
        Ok(true)
    }

    /// Finds our counterpart of a request of rdma_rxe's.
    fn expect(&mut self, sent: &Sent) -> Result<(), String> {
        let theirs = Request::captured(&sent.bytes);
        let mut found = self.find(&theirs);
        while found.is_none() && self.send(sent.time)? {
            found = self.find(&theirs);
        }
        if found.is_none() && self.queue_pair.poll_timeout().is_some_and(|time| time <= sent.time) {
            self.timer = true;
            self.queue_pair.handle_timeout(sent.time);
            while found.is_none() && self.send(sent.time)? {
                found = self.find(&theirs);
            }
        }
        match found {
            Some(index) => self.matched(index, theirs),
            None if self.matched.iter().any(|earlier| earlier.same(&theirs)) => {
                self.count(Difference::Repeated);
            }
            None => {
                let ours = self.unmatched.iter().map(|ours| format!("\n    {}", ours.request));
                let ours: String = ours.collect();
                return Err(format!("rdma_rxe's packet {} is {theirs}; ours:{ours}", sent.number));
            }
        }
        Ok(())
    }

    fn find(&self, theirs: &Request) -> Option<usize> {
        self.unmatched.iter().position(|ours| ours.request.same(theirs))
    }

    fn matched(&mut self, index: usize, theirs: Request) {
        let ours = self.unmatched.remove(index);
        for earlier in &mut self.unmatched[..index] {
            earlier.passed_over = true;
        }
        if ours.passed_over {
            self.count(Difference::Later);
        }
        match (ours.request.asks(), theirs.asks()) {
            (true, false) => self.count(Difference::AsksMore),
            (false, true) => self.count(Difference::AsksLess),
            _ => {}
        }
        self.outcome.counterparts.push(ours.index);
        self.outcome.timer += usize::from(ours.timer);
        self.outcome.again += usize::from(self.matched.iter().any(|one| one.same(&theirs)));
        *self.outcome.compared.entry(theirs.class()).or_default() += 1;
        self.matched.push(theirs);
    }

    fn count(&mut self, difference: Difference) {
        *self.outcome.differences.entry(difference).or_default() += 1;
    }

    /// Every work request must have ended as the capture implies, in order, with the bytes that it brought in place.
    fn completions(&mut self) -> Result<(), String> {
        for work in self.works {
            let Some(completion) = self.queue_pair.poll_send_completion() else {
                return Err(format!("{:?} did not complete", work.request));
            };
            if (completion.id, completion.status) != (work.request.id, work.status) {
                return Err(format!("{completion:?}, not {:?}", (work.request.id, work.status)));
            }
            if let Some(brought) = &work.brought {
                if self.memory.get(work.local) != brought {
                    return Err(format!("{:?} brought other bytes", work.request));
                }
                self.outcome.brought += brought.len();
            }
            let name = match work.status {
                Status::Success => "success",
                Status::RemoteAccess => "remote access",
                Status::RemoteOperation => "remote operation",
                Status::RemoteInvalidRequest => "invalid request",
                Status::RnrRetryExceeded => "never ready",
                Status::RetryExceeded => "no answer",
                _ => "other",
            };
            *self.outcome.completed.entry(name).or_default() += 1;
        }
        match self.queue_pair.poll_send_completion() {
            None => Ok(()),
            Some(extra) => Err(format!("completed twice: {extra:?}")),
        }
    }
}

//! Replays a capture to our requester: posts the work requests that it implies, and passes it the captured responses.
//!
//! Requests and responses are processed in captured order, at captured times. A response goes to our queue pair. A
//! request is one that we must send, too: it is looked for among those that we sent and that have no counterpart yet,
//! then among those that our queue pair sends now, then, if the timer has expired, among its retransmissions.

use std::collections::BTreeMap;

use ferroce_proto::budget::Budget;
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

/// When our requester may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// All it can, after every captured packet.
    Immediate,
    /// No further than rdma_rxe did.
    AsCaptured,
}

/// A mutation: what is sent in place of one request.
pub(crate) type Change = fn(Request) -> Vec<Request>;

/// The result of an exchange.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Requests of rdma_rxe with a counterpart, by class.
    pub(crate) compared: BTreeMap<&'static str, usize>,
    /// Retransmissions by both among them.
    pub(crate) retransmitted: usize,
    /// Our timer retransmissions among them.
    pub(crate) timer: usize,
    /// NAKs, and gaps in READ responses, after which our next request was the missing one.
    pub(crate) went_back: usize,
    /// RNR waits during which we sent nothing.
    pub(crate) waited: usize,
    /// Completions that match the capture.
    pub(crate) completed: BTreeMap<&'static str, usize>,
    /// Bytes that READs and atomics wrote to the right buffers.
    pub(crate) returned: usize,
    /// Requests that our queue pair sent.
    sent: usize,
    /// Whether one was mutated.
    pub(crate) changed: bool,
    /// Those with a counterpart, in the order in which they were sent.
    pub(crate) counterparts: Vec<usize>,
    pub(crate) differences: BTreeMap<Difference, usize>,
    /// The first error. Nothing after it is compared.
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
    /// The timer expired: what is sent now is a retransmission.
    timer: bool,
    /// The PSN of our next request, because the responses report it missing.
    next: Option<Psn>,
    /// The next expected READ response.
    due: Option<Psn>,
    /// The READ response that was found missing last. It is requested once.
    missing: Option<Psn>,
    /// The end of the wait that an RNR NAK requested.
    wait: Option<Instant>,
    /// The mutation, and the index of the request it applies to.
    change: Option<(usize, Change)>,
    outcome: Outcome,
}

/// Replays an exchange, with one of our requests mutated.
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
        packets.extend(exchange.responses.iter().map(|sent| (sent, false)));
        packets.sort_by_key(|(sent, _)| sent.number);
        for (sent, request) in packets {
            if request {
                self.post_up_to(sent);
            } else {
                self.receive(sent)?;
            }
            if pace == Pace::Immediate {
                while self.send(sent.time)? {}
                if let Some(next) = self.next.filter(|_| self.wait.is_none()) {
                    return Err(format!("{:#x} not sent after packet {}", next.0, sent.number));
                }
            }
            if request {
                self.expect(sent)?;
            }
        }
        // Where rdma_rxe gave up, we give up at the next timer expiry.
        if let Some(time) = self.queue_pair.poll_timeout() {
            self.queue_pair.handle_timeout(time);
            while self.send(time)? {}
        }
        // rdma_rxe sent each of them too, but not as often.
        let known = |ours: &&Ours| self.matched.iter().any(|one| one.same(&ours.request));
        if let Some(ours) = self.unmatched.iter().find(|ours| !known(ours)) {
            return Err(format!("rdma_rxe never sent our {}", ours.request));
        }
        if !self.unmatched.is_empty() {
            self.outcome.differences.insert(Difference::NotCaptured, self.unmatched.len());
        }
        self.completions()
    }

    /// Posts the work request that this packet belongs to, and all before it.
    fn post_up_to(&mut self, sent: &Sent) {
        let psn = sent.packet().bth.psn;
        let own = |work: &Work| work.packet_index(psn).is_some();
        let index = self.works.iter().position(own).expect("every request is of a work");
        while self.posted <= index {
            let request = self.works[self.posted].request.clone();
            self.queue_pair.post_send(request).expect("the queue is long enough");
            self.posted += 1;
        }
    }

    /// Passes a response to our queue pair.
    fn receive(&mut self, sent: &Sent) -> Result<(), String> {
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
            // During an RNR wait we must not send, even if a sequence NAK follows.
            if self.send(sent.time)? {
                return Err(format!("sent while told to wait, after response {}", sent.number));
            }
            self.outcome.waited += 1;
        }
        Ok(())
    }

    /// Tracks a READ response. One that is ahead of the expected PSN shows that another is missing (IBA 9.7.5.2.8).
    fn count_in(&mut self, psn: Psn) {
        let work = self.works.iter().find(|work| work.packet_index(psn).is_some());
        let first = work.expect("READ responses belong to READs").first;
        let due = self.due.filter(|due| !due.is_before(first)).unwrap_or(first);
        if psn == due {
            self.due = Some(psn.add(1));
        } else if due.is_before(psn) && self.missing != Some(due) {
            self.missing = Some(due);
            self.next = Some(due);
        }
    }

    /// Polls our queue pair for one request. Returns whether it had one.
    fn send(&mut self, now: Instant) -> Result<bool, String> {
        let mut buffer = [0; MAX_PAYLOAD + 64];
        let Some(transmit) =
            self.queue_pair.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut self.memory)
        else {
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

    /// Finds our counterpart of a request of rdma_rxe.
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
        match (ours.request.requests_ack(), theirs.requests_ack()) {
            (true, false) => self.count(Difference::ExtraAckRequest),
            (false, true) => self.count(Difference::MissingAckRequest),
            _ => {}
        }
        self.outcome.counterparts.push(ours.index);
        self.outcome.timer += usize::from(ours.timer);
        self.outcome.retransmitted += usize::from(self.matched.iter().any(|one| one.same(&theirs)));
        *self.outcome.compared.entry(theirs.class()).or_default() += 1;
        self.matched.push(theirs);
    }

    fn count(&mut self, difference: Difference) {
        *self.outcome.differences.entry(difference).or_default() += 1;
    }

    /// Checks that every work request completed as the capture implies, in order, and that READs and atomics returned
    /// the right bytes.
    fn completions(&mut self) -> Result<(), String> {
        for work in self.works {
            let Some(completion) = self.queue_pair.poll_send_completion() else {
                return Err(format!("{:?} did not complete", work.request));
            };
            if (completion.id, completion.status) != (work.request.id, work.status) {
                return Err(format!("{completion:?}, not {:?}", (work.request.id, work.status)));
            }
            if let Some(returned) = &work.returned {
                if self.memory.get(work.local) != returned {
                    return Err(format!("{:?} returned other bytes", work.request));
                }
                self.outcome.returned += returned.len();
            }
            let name = match work.status {
                Status::Success => "success",
                Status::RemoteAccess => "remote access",
                Status::RemoteOperation => "remote operation",
                Status::RemoteInvalidRequest => "invalid request",
                Status::RnrRetryExceeded => "never ready",
                Status::RetryExceeded => "no response",
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

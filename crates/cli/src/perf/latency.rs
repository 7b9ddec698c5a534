//! Latency: one message at a time on each worker.

use std::sync::atomic::Ordering;

use ferroce::clock;

use super::args::Operation;
use super::control::Mail;
use super::test::Amount;
use super::worker::{Run, Side};
use crate::latencies::Latencies;
use crate::session::failure::Failure;

/// Without an answer, a message of an unreliable service is sent again after this time.
const RESEND: u64 = 200_000_000;

/// After so many repetitions the peer is considered gone.
const MAX_RESENDS: u32 = 50;

/// A thread that watches memory looks for messages of the peer's worker after so many looks.
const SPINS: u64 = 1024;

/// The least untimed messages of latency tests.
const WARM_UP: u64 = 100;

impl Run<'_> {
    pub(super) fn latency(&mut self) -> Result<(), Failure> {
        if self.worker.side == Side::Server {
            return match self.test.operation {
                Operation::Send => self.pong_sends(),
                Operation::Write => self.pong_writes(),
                Operation::Read | Operation::Atomic => self.serve_peer(),
            };
        }
        let amount = match self.test.amount {
            Amount::Iterations(count) => Amount::Iterations(WARM_UP.min(count)),
            Amount::Nanoseconds(time) => Amount::Nanoseconds((time / 10).min(100_000_000)),
        };
        self.sample(amount, &mut Latencies::default())?;
        let mut latencies = Latencies::default();
        self.tally.start = clock::now();
        self.tally.messages = self.sample(self.test.amount, &mut latencies)?;
        self.tally.end = clock::now();
        self.tally.latency = Some(latencies);
        self.tally.sent = self.flows.iter().map(|flow| flow.posted).sum();
        if self.test.operation == Operation::Send {
            // An answer that only came late is not lost.
            let posted = self.tally.sent + self.tally.lost;
            self.tally.lost = posted.saturating_sub(self.tally.received);
        }
        self.line.send(Mail::Sent { count: self.tally.sent })
    }

    /// Measures on each QP in turn; returns the number of messages.
    fn sample(&mut self, amount: Amount, latencies: &mut Latencies) -> Result<u64, Failure> {
        let limit = self.limit(amount);
        let ends = self.flows.len() as u64;
        let most = limit.messages.saturating_mul(ends);
        // The turn of the QPs goes on from the warm-up: the server follows it.
        let before: u64 = self.flows.iter().map(|flow| flow.posted).sum();
        for count in 0..most {
            if self.is_over(&limit) {
                return Ok(count);
            }
            let end = ((before + count) % ends) as usize;
            let time = match self.test.operation {
                Operation::Send => self.ping_send(end)? / 2,
                Operation::Write => self.ping_write(end)? / 2,
                Operation::Read | Operation::Atomic => self.request(end)?,
            };
            latencies.record(time);
        }
        Ok(most)
    }

    /// Posts the next message of an end, with a completion.
    fn post_next(&mut self, end: usize) -> Result<(), Failure> {
        let flow = &mut self.flows[end];
        let number = flow.posted;
        flow.posted += 1;
        self.worker.ends[end].post(self.test, self.size, number..number + 1, |_| true)
    }

    /// Posts the last message again.
    fn repeat(&mut self, end: usize) -> Result<(), Failure> {
        let number = self.flows[end].posted - 1;
        self.worker.ends[end].post(self.test, self.size, number..number + 1, |_| true)
    }

    /// One READ or atomic operation, from post to completion.
    fn request(&mut self, end: usize) -> Result<u64, Failure> {
        let number = self.flows[end].posted;
        if self.test.verify {
            self.worker.fill(end, self.size, number..number + 1)?;
        }
        let start = clock::now();
        self.post_next(end)?;
        while self.flows[end].completed <= number {
            self.turn()?;
        }
        let time = clock::now().saturating_sub(start);
        if self.test.verify {
            self.check_results(end, number..number + 1)?;
        }
        Ok(time)
    }

    /// Waits until `done` holds. Messages of unreliable services are repeated.
    fn wait_until(&mut self, end: usize, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let lossy = self.test.transport.is_lossy();
        let (mut since, mut tries) = (if lossy { clock::now() } else { 0 }, 0);
        while !done(self) {
            self.turn()?;
            if lossy && clock::now().saturating_sub(since) > RESEND {
                self.resend(end, &mut tries)?;
                since = clock::now();
            }
        }
        Ok(())
    }

    fn ping_send(&mut self, end: usize) -> Result<u64, Failure> {
        let number = self.flows[end].posted;
        if self.test.verify {
            self.worker.fill(end, self.size, number..number + 1)?;
        }
        let before = self.flows[end].received;
        let numbered = self.test.is_numbered();
        let start = clock::now();
        self.post_next(end)?;
        self.wait_until(end, |run| {
            let flow = &run.flows[end];
            flow.received > before && (!numbered || flow.last == Some(number as u32))
        })?;
        let time = clock::now().saturating_sub(start);
        if self.test.verify {
            self.check_send(end, 0, number)?;
        }
        // The buffer is used again.
        self.wait_until(end, |run| run.flows[end].completed > number)?;
        Ok(time)
    }

    /// As in perftest: post, poll for the completion, then watch the memory. Messages are numbered from 1, because the
    /// memory is clear at first.
    fn ping_write(&mut self, end: usize) -> Result<u64, Failure> {
        let number = self.next_write(end)?;
        let start = clock::now();
        self.post_next(end)?;
        self.wait_until(end, |run| run.flows[end].completed >= number)?;
        self.watch_memory(end, number)?;
        let time = clock::now().saturating_sub(start);
        self.check_write(end, number)?;
        Ok(time)
    }

    /// Watches the memory without a call of the library, until the peer's WRITE is there. The device thread receives it.
    /// `false` if the peer sends no more. WRITEs of unreliable services are repeated.
    fn watch_memory(&mut self, end: usize, number: u64) -> Result<bool, Failure> {
        let mut tries = 0;
        let mut since = clock::now();
        for spin in 1_u64.. {
            if self.has_written(end, number) {
                return Ok(true);
            }
            if spin % SPINS == 0 {
                self.look_after_peer()?;
                if self.peer_sent.is_some() {
                    return Ok(false);
                }
                let lossy = self.test.transport.is_lossy() && self.flows[end].posted > 0;
                if lossy && clock::now().saturating_sub(since) > RESEND {
                    self.resend(end, &mut tries)?;
                    since = clock::now();
                }
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Repeats the last message, unless the peer is considered gone.
    fn resend(&mut self, end: usize, tries: &mut u32) -> Result<(), Failure> {
        // The server learns from the control connection that the client is gone.
        if *tries == MAX_RESENDS && self.worker.side == Side::Client {
            return Err(Failure::Other(
                "the peer does not answer: check that UDP port 4791 is open on the path".into(),
            ));
        }
        *tries = tries.saturating_add(1);
        self.tally.lost += 1;
        self.repeat(end)
    }

    /// Prepares the message after those that were posted, and returns its number.
    fn next_write(&mut self, end: usize) -> Result<u64, Failure> {
        let number = self.flows[end].posted + 1;
        if self.test.verify {
            self.worker.fill(end, self.size, number..number + 1)?;
        } else {
            self.worker.ends[end].tx.write(self.size as usize - 1, &[number as u8])?;
        }
        Ok(number)
    }

    /// Whether the last byte of message `number` is in memory.
    fn has_written(&self, end: usize, number: u64) -> bool {
        let rx = self.worker.ends[end].rx.buffer();
        let last = rx.and_then(|rx| rx.bytes().get(self.size as usize - 1));
        last.is_some_and(|last| last.load(Ordering::Acquire) == number as u8)
    }

    /// Checks all bytes of a WRITE whose last byte was seen.
    fn check_write(&mut self, end: usize, number: u64) -> Result<(), Failure> {
        if !self.test.verify {
            return Ok(());
        }
        let (found, right) = self.written(end, number)?;
        self.compare(end, number, &found, &right)
    }

    /// Answers each SEND of the client until it sends no more.
    fn pong_sends(&mut self) -> Result<(), Failure> {
        let mut answered = vec![0; self.flows.len()];
        while self.peer_sent.is_none() {
            self.turn()?;
            for (end, answered) in answered.iter_mut().enumerate() {
                if self.flows[end].received > *answered {
                    *answered = self.flows[end].received;
                    self.pong_send(end)?;
                }
            }
        }
        Ok(())
    }

    fn pong_send(&mut self, end: usize) -> Result<(), Failure> {
        // An answer has the number of the message. One that was repeated is answered again.
        let number = self.flows[end].last.map_or(self.flows[end].posted, u64::from);
        if self.test.verify {
            self.check_send(end, 0, number)?;
            self.worker.fill(end, self.size, number..number + 1)?;
        }
        self.flows[end].posted = number;
        self.post_next(end)
    }

    /// Answers each WRITE of the client until it sends no more. The client uses its QPs in turn.
    fn pong_writes(&mut self) -> Result<(), Failure> {
        loop {
            for end in 0..self.flows.len() {
                let number = self.flows[end].posted + 1;
                if !self.watch_memory(end, number)? {
                    return Ok(());
                }
                self.check_write(end, number)?;
                self.next_write(end)?;
                self.post_next(end)?;
                self.wait_until(end, |run| run.flows[end].completed >= number)?;
            }
        }
    }
}

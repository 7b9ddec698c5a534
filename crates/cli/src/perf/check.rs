//! `--verify`: the bytes of every message are a function of its direction, its QP and its number.
//!
//! | operation | who checks |
//! |---|---|
//! | send | the receiver, by the number in the immediate data |
//! | write | the receiver, which clears the memory afterwards |
//! | read | the sender of the request, against what the peer's memory is filled with |
//! | atomic | the sender by the returned values, the receiver by the sum |

use std::ops::Range;
use std::sync::atomic::Ordering;

use ferroce::MemoryRegion;

use super::args::{Measure, Operation, Transport};
use super::end::GRH;
use super::worker::{Arrival, Check, Run, Side, Worker};
use crate::session::bytes::Pattern;
use crate::session::failure::Failure;

/// Messages in the memory that READs read have numbers from here on.
const STORED: u64 = 1 << 60;

impl Worker {
    /// The pattern of a message. Every number gives another one.
    fn pattern(&self, sender: Side, end: usize, number: u64) -> Pattern {
        let direction = u64::from(sender == Side::Server);
        let connection = 2 * (self.first + end as u64) + direction;
        Pattern::new(
            number
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(connection.wrapping_mul(0xd1b5_4a32_d192_ed03)),
        )
    }

    const fn other(&self) -> Side {
        match self.side {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// The bytes of a message. The last one of a WRITE that is polled for is the low byte of its number.
    fn message(&self, sender: Side, end: usize, number: u64, size: u64) -> Vec<u8> {
        let mut bytes = vec![0; size as usize];
        self.pattern(sender, end, number).fill(0, &mut bytes);
        if (self.test.operation, self.test.measure) == (Operation::Write, Measure::Lat) {
            if let Some(last) = bytes.last_mut() {
                *last = number as u8;
            }
        }
        bytes
    }

    fn offset(&self, number: u64) -> usize {
        (number % self.test.slots() * self.test.stride()) as usize
    }

    /// Prepares the memory of an end for a size.
    pub(super) fn prepare_memory(&self, index: usize, size: u64) -> Result<(), Failure> {
        let end = &self.ends[index];
        clear(&end.tx, 0, end.tx.len())?;
        clear(&end.rx, 0, end.rx.len())?;
        if self.test.operation == Operation::Read && self.test.verify {
            for slot in 0..self.test.slots() {
                let bytes = self.message(self.side, index, STORED + slot, size);
                end.rx.write(self.offset(slot), &bytes)?;
            }
        }
        Ok(())
    }

    /// Fills the memory that messages are sent from, or clears that which results are written to.
    pub(super) fn fill(&self, end: usize, size: u64, numbers: Range<u64>) -> Result<(), Failure> {
        let tx = &self.ends[end].tx;
        for number in numbers {
            let bytes = match self.test.operation {
                Operation::Read | Operation::Atomic => vec![0xff; size as usize],
                _ => self.message(self.side, end, number, size),
            };
            tx.write(self.offset(number), &bytes)?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Checks what READs and atomics returned.
    pub(super) fn check_results(&mut self, end: usize, numbers: Range<u64>) -> Result<(), Failure> {
        let worker = self.worker;
        for number in numbers {
            let right = match self.test.operation {
                // Ferroce's atomics are in the byte order of the host, as the words in memory.
                Operation::Atomic => number.to_ne_bytes().to_vec(),
                _ => {
                    let stored = STORED + number % self.test.slots();
                    worker.message(worker.other(), end, stored, self.size)
                }
            };
            let mut found = vec![0; right.len()];
            worker.ends[end].tx.read(worker.offset(number), &mut found)?;
            self.compare(end, number, &found, &right)?;
        }
        Ok(())
    }

    /// Checks what the peer sent or wrote; returns how many messages were lost.
    pub(super) fn check_received(&mut self, check: Check) -> Result<u64, Failure> {
        match self.test.operation {
            Operation::Send => self.check_sends(check),
            Operation::Write => self.check_writes(check),
            Operation::Atomic => {
                let words = self.worker.ends[check.end].rx.buffer().map(|buffer| buffer.words());
                let word = words.and_then(|words| words.first());
                let found = word.map_or(0, |word| word.load(Ordering::Acquire));
                let right = check.first.saturating_add(check.count);
                self.compare(check.end, right, &found.to_ne_bytes(), &right.to_ne_bytes())?;
                Ok(0)
            }
            Operation::Read => Err(Failure::IncompatiblePeer),
        }
    }

    fn check_sends(&mut self, check: Check) -> Result<u64, Failure> {
        let arrived = std::mem::take(&mut self.flows[check.end].arrived);
        let lossy = self.test.transport.is_lossy();
        let (mut next, mut count) = (check.first, 0);
        for Arrival { slot, number } in arrived {
            // Messages are received in order. Unreliable ones may be missing, or come after they were counted as lost.
            let ahead = number.map(|number| number.wrapping_sub(next as u32) as i32);
            match ahead.map(|ahead| (ahead, next.saturating_add_signed(ahead.into()))) {
                Some((ahead, _)) if lossy && ahead < 0 => {}
                Some((ahead, number))
                    if (lossy || ahead == 0) && number < check.first + check.count =>
                {
                    self.check_send(check.end, slot, number)?;
                    (next, count) = (number + 1, count + 1);
                }
                _ => {
                    return Err(Failure::DataMismatch(format!(
                        "message {next} was expected, but the immediate data is {number:?}"
                    )));
                }
            }
            self.worker.ends[check.end].post_receive(self.test, slot)?;
        }
        Ok(check.count - count)
    }

    /// Checks a received message.
    pub(super) fn check_send(&mut self, end: usize, slot: u64, number: u64) -> Result<(), Failure> {
        let worker = self.worker;
        let header = if self.test.transport == Transport::Ud { GRH } else { 0 };
        let mut found = vec![0; self.size as usize];
        let offset = slot * (self.test.stride() + GRH) + header;
        worker.ends[end].rx.read(offset as usize, &mut found)?;
        let right = worker.message(worker.other(), end, number, self.size);
        self.compare(end, number, &found, &right)
    }

    fn check_writes(&mut self, check: Check) -> Result<u64, Failure> {
        let worker = self.worker;
        let (rx, mut lost) = (&worker.ends[check.end].rx, 0);
        for number in check.first..check.first + check.count {
            let (found, right) = self.written(check.end, number)?;
            // The memory was clear. Packets that are lost leave it so, and late ones are those of the round before.
            let partial = || {
                let before = number.checked_sub(self.test.slots());
                let late = |before| worker.message(worker.other(), check.end, before, self.size);
                let late = before.map_or_else(|| vec![0; right.len()], late);
                let bytes = found.iter().zip(right.iter().zip(&late));
                bytes.into_iter().all(|(found, (right, late))| [0, *right, *late].contains(found))
            };
            if found != right && self.test.transport.is_lossy() && partial() {
                lost += 1;
            } else {
                self.compare(check.end, number, &found, &right)?;
            }
            clear(rx, worker.offset(number) as u64, self.size)?;
        }
        Ok(lost)
    }

    /// What the peer wrote as message `number`, and what is right.
    pub(super) fn written(&self, end: usize, number: u64) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let worker = self.worker;
        let mut found = vec![0; self.size as usize];
        worker.ends[end].rx.read(worker.offset(number), &mut found)?;
        Ok((found, worker.message(worker.other(), end, number, self.size)))
    }

    /// Counts correct bytes, or fails with the first wrong one.
    pub(super) fn compare(
        &mut self,
        end: usize,
        number: u64,
        found: &[u8],
        right: &[u8],
    ) -> Result<(), Failure> {
        match found.iter().zip(right).position(|(found, right)| found != right) {
            None => self.tally.verified += right.len() as u64,
            Some(at) => {
                return Err(Failure::DataMismatch(format!(
                    "message {number} of QP {}: byte {at} of {} is {:#04x}, but should be {:#04x}",
                    self.worker.first + end as u64,
                    right.len(),
                    found[at],
                    right[at]
                )));
            }
        }
        Ok(())
    }
}

fn clear(region: &MemoryRegion, offset: u64, length: u64) -> Result<(), Failure> {
    const BLOCK: u64 = 1 << 20;
    let zeros = vec![0; BLOCK.min(length) as usize];
    for start in (0..length).step_by(BLOCK as usize) {
        let part = BLOCK.min(length - start) as usize;
        region.write((offset + start) as usize, &zeros[..part])?;
    }
    Ok(())
}

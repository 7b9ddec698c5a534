//! Posts WRITEs and takes their completions.

use std::time::{Duration, Instant};

use ferroce::{
    Data, Operation, RemoteAddress, SendRequest, Status, VirtualAddress, WorkCompletion, WorkId,
};

use super::end::{End, text};

/// How long all WRITEs together may make no progress.
const STALLED: Duration = Duration::from_secs(20);

/// Completions taken at once.
const BATCH: usize = 64;

/// How much to transfer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    /// This many bytes.
    Bytes(u64),
    /// As many as possible: first without, then with measuring.
    Time(Duration, Duration),
}

/// What was transferred.
#[derive(Debug)]
pub(super) struct Moved {
    /// Bytes of each QP in the measured time.
    pub(super) bytes: Vec<u64>,
    /// The measured time.
    pub(super) seconds: f64,
    /// Bytes of all QPs, including those before and after the measured time.
    pub(super) total: u64,
}

/// Keeps `depth` WRITEs of each QP in flight. Each QP posts again when one of its WRITEs completes, so the device
/// decides how the QPs share it. Message by message, all QPs together walk through the whole memory.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    end: &'a End,
    remote: RemoteAddress,
    size: usize,
    depth: usize,
    events: bool,
    /// Whether it READs instead.
    pub(super) reads: bool,
    /// Messages posted.
    posted: u64,
    done: Vec<WorkCompletion>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        end: &'a End,
        remote: RemoteAddress,
        size: usize,
        depth: usize,
        events: bool,
    ) -> Self {
        let done = Vec::with_capacity(BATCH);
        Self { end, remote, size, depth, events, reads: false, posted: 0, done }
    }

    fn post(&mut self, qp: usize) -> Result<(), String> {
        let slots = (self.end.region.len() / self.size as u64).max(1);
        let offset = self.posted % slots * self.size as u64;
        self.posted += 1;
        let address = VirtualAddress(self.remote.address.0 + offset);
        let remote = RemoteAddress { address, ..self.remote };
        let data = Data::SgList(self.end.region.sge(offset, self.size as u32).into());
        let operation = match self.reads {
            true => Operation::Read { remote },
            false => Operation::Write { remote, immediate: None },
        };
        let request = SendRequest::new(WorkId(qp as u64), operation, data);
        self.end.qps[qp].post_send(request).map_err(text)
    }

    /// Takes completions, at least one if it waits.
    fn take(&mut self) -> Result<(), String> {
        self.done.clear();
        if self.end.cq.poll(&mut self.done, BATCH) == 0 && self.events {
            let one = self.end.cq.wait_until(Instant::now() + STALLED).map_err(text)?;
            self.done.extend(one);
        }
        Ok(())
    }

    /// Transfers, and waits for all completions. A completion that is not successful is an error.
    pub(super) fn run(&mut self, amount: Amount) -> Result<Moved, String> {
        let qps = self.end.qps.len();
        let (warm_up, length) = match amount {
            Amount::Bytes(_) => (Duration::ZERO, Duration::MAX),
            Amount::Time(warm_up, length) => (warm_up, length),
        };
        let mut left = match amount {
            Amount::Bytes(bytes) => bytes.div_ceil(self.size as u64),
            Amount::Time(..) => u64::MAX,
        };
        let (mut bytes, mut total, mut in_flight) = (vec![0; qps], 0, 0);
        let (start, mut progress) = (Instant::now(), Instant::now());
        let (mut begin, mut measured) = (Some(start), None);
        let mut warm = warm_up.is_zero();
        for _ in 0..self.depth {
            for qp in 0..qps {
                if left > 0 {
                    self.post(qp)?;
                    (left, in_flight) = (left - 1, in_flight + 1);
                }
            }
        }
        while in_flight > 0 {
            self.take()?;
            let now = Instant::now();
            if !warm && now - start >= warm_up {
                (warm, begin) = (true, Some(now));
                bytes.fill(0);
            }
            let running = begin.filter(|_| warm).map(|begin| now - begin);
            if let Some(time) = running.filter(|time| measured.is_none() && *time >= length) {
                (measured, left) = (Some((time, bytes.clone())), 0);
            }
            if !self.done.is_empty() {
                progress = now;
            } else if now - progress > STALLED {
                return Err(format!("{in_flight} WRITEs made no progress for {STALLED:?}"));
            }
            for index in 0..self.done.len() {
                let (qp, status) = (self.done[index].id.0 as usize, self.done[index].status);
                if status != Status::Success {
                    return Err(format!("a WRITE of QP {qp} of {qps} failed: {status:?}"));
                }
                bytes[qp] += self.size as u64;
                total += self.size as u64;
                in_flight -= 1;
                if left > 0 {
                    self.post(qp)?;
                    (left, in_flight) = (left - 1, in_flight + 1);
                }
            }
        }
        let (time, bytes) = measured.unwrap_or_else(|| (start.elapsed(), bytes));
        Ok(Moved { bytes, seconds: time.as_secs_f64(), total })
    }
}

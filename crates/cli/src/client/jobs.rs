//! The jobs. Each verifies every byte it transfers.

use std::ops::Range;
use std::time::Duration;

use ferroce::{Data, Immediate, MemoryRegion, Operation, clock};

use super::Job;
use super::connect::Connection;
use super::output::Outcome;
use crate::progress::{Progress, Unit};
use crate::session::bytes::{Pattern, Size};
use crate::session::end::{COMPLETION_TIMEOUT, End, LOCAL, SENDS};
use crate::session::failure::Failure;
use crate::session::protocol::SessionMessage;

/// The longest message (IBA 9.7.7).
const LONGEST: u64 = 1 << 31;

/// The length of the buffer that bulk writes from, but at least one chunk. It bounds the bytes in flight.
const BUFFER: u64 = 64 << 20;

/// The page size of the test pattern: a chunk consists of whole pages.
const PAGE: u64 = 4096;

/// The slowest rate at which a server verifies bytes, to decide when it no longer answers.
const SLOWEST: u64 = 20_000_000;

/// Checks whether a job is possible with these options.
pub(super) fn check(job: Job, size: u64, chunk: Size) -> Result<(), Failure> {
    let too_long = |what: &str, bytes| {
        Failure::Other(format!("{what} of {}: a message is limited to 2 GiB", Size(bytes)))
    };
    match job {
        Job::Bulk if chunk.0 % PAGE != 0 => {
            Err(Failure::Other(format!("a chunk of {chunk} is not a multiple of 4 KiB")))
        }
        Job::Bulk if chunk.0 > LONGEST => Err(too_long("a chunk", chunk.0)),
        Job::WriteRead | Job::Imm if size > LONGEST => Err(too_long("a size", size)),
        _ => Ok(()),
    }
}

fn data(region: &MemoryRegion, offset: u64, length: u64) -> Data {
    // `check` has verified that it fits.
    Data::SgList(region.sge(offset, u32::try_from(length).unwrap_or(u32::MAX)).into())
}

fn register(end: &End, length: u64) -> Result<MemoryRegion, Failure> {
    let length = usize::try_from(length).map_err(|_| Failure::Other("too much memory".into()))?;
    Ok(end.parts.pd.allocate(length, LOCAL)?)
}

fn wrong(what: &str, right: u64, length: u64) -> Failure {
    Failure::DataMismatch(format!("{what}: byte {right} of {length} is wrong"))
}

/// Waits for the server's verification of its memory.
fn verdict(end: &End, length: u64) -> Result<(), Failure> {
    let timeout = COMPLETION_TIMEOUT + Duration::from_secs(length / SLOWEST);
    match end.answer(timeout)?.0 {
        SessionMessage::Verdict { right } if right == length => Ok(()),
        SessionMessage::Verdict { right } => Err(wrong("what the server found", right, length)),
        _ => Err(Failure::IncompatiblePeer),
    }
}

pub(super) fn write_read(
    connection: &Connection,
    count: u32,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (end, size) = (&connection.end, connection.wish.size);
    let (tx, rx) = (register(end, size)?, register(end, size)?);
    for _ in 0..count {
        write_and_read_back(connection, &tx, &rx, outcome)?;
    }
    Ok(())
}

/// Writes a fresh pattern, reads it back, and has the server verify it as well.
fn write_and_read_back(
    connection: &Connection,
    tx: &MemoryRegion,
    rx: &MemoryRegion,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (end, size) = (&connection.end, connection.wish.size);
    let seed = clock::now();
    Pattern::new(seed).write(tx, 0, 0, size as usize)?;
    let remote = connection.grant.remote;
    let since = clock::now();
    end.run(Operation::Write { remote, immediate: None }, data(tx, 0, size))?;
    outcome.timed("WRITE", size, since);
    let since = clock::now();
    end.run(Operation::Read { remote }, data(rx, 0, size))?;
    outcome.timed("READ", size, since);
    let right = Pattern::new(seed).check(rx, 0, size as usize)? as u64;
    if right != size {
        return Err(wrong("what was read back", right, size));
    }
    end.send(&SessionMessage::Check { seed, length: size })?;
    verdict(end, size)?;
    outcome.verified(size);
    Ok(())
}

pub(super) fn imm(
    connection: &Connection,
    count: u32,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (end, size) = (&connection.end, connection.wish.size);
    let tx = register(end, size)?;
    for batch in 0..count {
        Pattern::new(u64::from(batch)).write(&tx, 0, 0, size as usize)?;
        let (remote, immediate) = (connection.grant.remote, Some(Immediate(batch)));
        let since = clock::now();
        end.run(Operation::Write { remote, immediate }, data(&tx, 0, size))?;
        outcome.timed("WRITE_WITH_IMM", size, since);
        verdict(end, size)?;
        outcome.answered(since);
        outcome.verified(size);
    }
    Ok(())
}

/// Measures WRITEs as a benchmark does: they are timed from the first post to the last acknowledgement, while the pages of both
/// sides are faulted in, the buffer is filled and the result is verified outside the timed part.
pub(super) fn bulk(
    connection: &Connection,
    chunk: Size,
    quiet: bool,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (end, size) = (&connection.end, connection.wish.size);
    let chunk = chunk.0.min(size);
    // The connection drains at the end of a batch, so a batch is long.
    let batch = chunk * (BUFFER / chunk).max(1).min(size.div_ceil(chunk));
    let tx = register(end, batch)?;
    let pattern = Pattern::new(clock::now());
    pattern.write(&tx, 0, 0, batch as usize)?;
    wait_for_server(end, size)?;
    let mut progress = Progress::new("bulk", Some(size), Unit::Bytes, quiet);
    let mut duration = 0;
    for start in (0..size).step_by(batch as usize) {
        let length = batch.min(size - start);
        pattern.move_to(&tx, 0, start, length as usize)?;
        let since = clock::now();
        write_batch(connection, &tx, start..start + length, chunk, &mut progress)?;
        duration += clock::now().saturating_sub(since);
    }
    outcome.lasted("WRITE", size, duration);
    progress.erase();
    end.send(&SessionMessage::Check { seed: pattern.seed(), length: size })?;
    verdict(end, size)?;
    outcome.verified(size);
    Ok(())
}

/// Waits until the server has faulted in the pages of its memory, which it does before it answers messages.
fn wait_for_server(end: &End, size: u64) -> Result<(), Failure> {
    end.send(&SessionMessage::Text("bulk".into()))?;
    let timeout = COMPLETION_TIMEOUT + Duration::from_secs(size / SLOWEST);
    match end.answer(timeout)?.0 {
        SessionMessage::Text(_) => Ok(()),
        _ => Err(Failure::IncompatiblePeer),
    }
}

/// Writes the buffer to this range of the server's memory, and waits for all acknowledgements.
fn write_batch(
    connection: &Connection,
    tx: &MemoryRegion,
    range: Range<u64>,
    chunk: u64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let end = &connection.end;
    let mut in_flight = 0;
    for place in range.clone().step_by(chunk as usize) {
        if in_flight == u64::from(SENDS) {
            end.completed()?;
            in_flight -= 1;
            progress.show(place - in_flight * chunk);
        }
        let length = chunk.min(range.end - place);
        let write = Operation::Write { remote: connection.grant.at(place), immediate: None };
        end.queue_pair.post_send(end.request(write, data(tx, place - range.start, length)))?;
        in_flight += 1;
    }
    while in_flight > 0 {
        end.completed()?;
        in_flight -= 1;
        progress.show(range.end.saturating_sub(in_flight * chunk));
    }
    Ok(())
}

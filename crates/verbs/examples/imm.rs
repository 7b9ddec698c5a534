//! Inference batching: WRITE transfers the payload, and a WRITE_WITH_IMM carries the batch number. The receiver sees only
//! the completion with the immediate.

mod common;

use std::thread;

use common::Outcome;
use ferroce::cm::{EventChannel, PortSpace};
use ferroce::{CompletionKind, Immediate, Operation};

const BATCH: usize = 10_000;
const BATCHES: u32 = 5;

fn main() -> Outcome<()> {
    let channel = EventChannel::from_env()?;
    let (_listener, address) = common::listen(&channel, PortSpace::Tcp)?;
    let producer = thread::spawn(move || -> Outcome<()> {
        let (id, end, remote) = common::connect(address, BATCH)?;
        end.post_receive(9, 0, 0)?;
        for batch in 0..BATCHES {
            end.region.write(0, &[batch as u8 + 1; BATCH])?;
            end.post(1, Operation::Write { remote, immediate: None }, 0, BATCH as u32)?;
            // A queue pair delivers in order: the payload is in place when the immediate arrives.
            let immediate = Some(Immediate(batch));
            end.post(2, Operation::Write { remote, immediate }, 0, 0)?;
            // Both WRITEs complete, and the consumer's SEND tells that the buffer is free.
            for _ in 0..3 {
                end.done()?;
            }
            end.post_receive(9, 0, 0)?;
        }
        id.wait_disconnected(None)?;
        Ok(())
    });

    // An immediate consumes a receive request, although it needs no memory.
    let (id, end) = common::accept(&channel, BATCH, |end| end.post_receive(7, 0, 0))?;
    let (mut batch, mut replies) = (0, 0);
    while batch < BATCHES || replies < BATCHES {
        // Send and receive completions have no order: the next batch may be here before the reply to the last completes.
        let done = end.done()?;
        let Some(immediate) = done.immediate else {
            replies += 1;
            continue;
        };
        let bytes = end.bytes(0, BATCH)?;
        if done.kind != CompletionKind::ReceiveWriteImmediate
            || immediate != Immediate(batch)
            || bytes.iter().any(|byte| *byte != batch as u8 + 1)
        {
            return Err(format!("batch {batch} differs from what was sent").into());
        }
        println!("batch {} is here: {} bytes", immediate.0, bytes.len());
        batch += 1;
        end.post_receive(7, 0, 0)?;
        end.post(3, Operation::SEND, 0, 0)?;
    }
    id.disconnect()?;
    producer.join().map_err(|_| "the producer panicked")??;
    println!("{BATCHES} batches verified");
    Ok(())
}

//! Bulk transfer in chunks: several WRITEs are in flight at any time, and the receiver checks every byte.
//!
//!     bulk [MiB]

mod common;

use std::thread;
use std::time::Instant;

use common::Outcome;
use ferroce::cm::{EventChannel, PortSpace};
use ferroce::{Operation, RemoteAddress, VirtualAddress};

const CHUNK: usize = 1 << 20;

/// WRITEs in flight. Each has its own part of the buffer until it completes.
const DEPTH: usize = 8;

fn main() -> Outcome<()> {
    let chunks: usize = std::env::args().nth(1).as_deref().unwrap_or("64").parse()?;
    let channel = EventChannel::from_env()?;
    let (_listener, address) = common::listen(&channel, PortSpace::Tcp)?;
    let sender = thread::spawn(move || send(address, chunks));
    let (id, end) = common::accept(&channel, chunks * CHUNK, |_| Ok(()))?;
    id.wait_disconnected(None)?;
    sender.join().map_err(|_| "the sender panicked")??;
    for chunk in 0..chunks {
        if end.bytes(chunk * CHUNK, CHUNK)? != pattern(chunk) {
            return Err(format!("chunk {chunk} differs from what was sent").into());
        }
    }
    println!("{chunks} MiB verified");
    Ok(())
}

fn send(server: std::net::SocketAddr, chunks: usize) -> Outcome<()> {
    let (id, end, remote) = common::connect(server, DEPTH * CHUNK)?;
    let start = Instant::now();
    let mut in_flight = 0;
    for chunk in 0..chunks {
        if in_flight == DEPTH {
            end.done()?; // They complete in order: this is the oldest.
            in_flight -= 1;
        }
        let slot = chunk % DEPTH * CHUNK;
        end.region.write(slot, &pattern(chunk))?;
        let address = VirtualAddress(remote.address.0 + (chunk * CHUNK) as u64);
        let write =
            Operation::Write { remote: RemoteAddress { address, ..remote }, immediate: None };
        end.post(chunk as u64, write, slot as u64, CHUNK as u32)?;
        in_flight += 1;
    }
    for _ in 0..in_flight {
        end.done()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{chunks} MiB in {seconds:.3} s: {:.0} MiB/s", chunks as f64 / seconds);
    Ok(id.disconnect()?)
}

/// Bytes that differ from chunk to chunk and from offset to offset.
fn pattern(chunk: usize) -> Vec<u8> {
    (0..CHUNK / 8)
        .flat_map(|word| ((chunk << 32 | word) as u64).wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

//! `copy`: what a bulk transfer could reach at best, copying from one memory to another.

use std::time::Instant;

use clap::Args;

use crate::parse::sample;

/// What to copy.
#[derive(Args, Debug)]
pub(crate) struct Copy {
    /// Bytes to copy
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Bytes of each copy
    #[arg(long, default_value_t = 65536)]
    chunk: usize,
    /// Bytes of each of the two memories
    #[arg(long, default_value_t = 1 << 26)]
    footprint: usize,
}

/// Copies, and prints the rate.
pub(crate) fn run(copy: &Copy) -> Result<(), String> {
    let (from, mut to) = (vec![1_u8; copy.footprint], vec![2_u8; copy.footprint]);
    let parts = (copy.footprint / copy.chunk).max(1);
    let chunks = copy.bytes / copy.chunk as u64;
    let start = Instant::now();
    for chunk in 0..chunks {
        let at = (chunk % parts as u64) as usize * copy.chunk;
        to[at..at + copy.chunk].copy_from_slice(&from[at..at + copy.chunk]);
    }
    let seconds = start.elapsed().as_secs_f64();
    // The copies must have happened.
    if to[..parts * copy.chunk] != from[..parts * copy.chunk] {
        return Err("the copy differs".to_owned());
    }
    let bytes = (chunks * copy.chunk as u64) as f64;
    super::print(&sample([("rate", bytes / seconds / 1e9), ("seconds", seconds)]))
}

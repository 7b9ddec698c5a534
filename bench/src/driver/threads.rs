//! `threads`: threads of one process, each with a CQ and two QPs that WRITE to each other.

use std::time::Duration;

use clap::Args;

use super::end::{End, Setup, text};
use super::write_loop::{Amount, Moved, Writer};
use crate::parse::sample;

/// How long the threads run before and while they are measured.
const WARM_UP: Duration = Duration::from_millis(500);
const LENGTH: Duration = Duration::from_secs(2);

/// What to run.
#[derive(Args, Debug)]
pub(crate) struct Threads {
    /// Number of threads
    #[arg(long)]
    threads: usize,
    /// Number of shards of the device
    #[arg(long)]
    shards: u8,
    /// Bytes of each WRITE
    #[arg(long)]
    size: usize,
    /// WRITEs in flight of each QP
    #[arg(long)]
    depth: usize,
    /// Bytes of memory of all threads together
    #[arg(long)]
    footprint: usize,
}

/// Runs all threads at the same time, and prints the rate of all together.
pub(crate) fn run(threads: &Threads) -> Result<(), String> {
    let setup = Setup {
        port: 0,
        qps: 2,
        footprint: threads.footprint / threads.threads,
        receive_buffer: None,
        shards: Some(threads.shards),
    };
    let ends = (0..threads.threads).map(|_| {
        let end = End::new(&setup, threads.depth as u32)?;
        end.connect(&[end.qps[1].number().0, end.qps[0].number().0])?;
        Ok(end)
    });
    let ends = ends.collect::<Result<Vec<_>, String>>()?;
    let work = |end: &End| {
        let remote = end.region.remote(0);
        let mut writer = Writer::new(end, remote, threads.size, threads.depth, false);
        writer.run(Amount::Time(WARM_UP, LENGTH))
    };
    let moved: Vec<Moved> = std::thread::scope(|scope| {
        let running: Vec<_> = ends.iter().map(|end| scope.spawn(move || work(end))).collect();
        let joined = running.into_iter().map(|thread| thread.join().map_err(|_| text("panic"))?);
        joined.collect::<Result<_, String>>()
    })?;
    let rate: f64 =
        moved.iter().map(|one| one.bytes.iter().sum::<u64>() as f64 / one.seconds).sum();
    super::print(&sample([("rate", rate / 1e9), ("messages", rate / threads.size as f64 / 1e6)]))
}

//! `write-server` and `write-client`: RDMA WRITEs over any number of QPs, from one process to another.

use std::io::BufRead;
use std::time::Duration;

use clap::Args;
use ferroce::{RKey, RemoteAddress, VirtualAddress};

use super::control::Control;
use super::end::{End, Setup};
use super::usage::cpu_seconds;
use super::write_loop::{Amount, Writer};
use crate::parse::sample;
use crate::statistics::jain;

/// Before the measurement, WRITEs flow for this long.
const WARM_UP: Duration = Duration::from_millis(250);

/// Lines of a client that waits: before and after the measurement.
pub(super) const READY: &str = "ready";
pub(super) const DONE: &str = "done";

/// The options of the client.
#[derive(Args, Debug)]
pub(crate) struct Client {
    #[command(flatten)]
    setup: Setup,
    /// Bytes of a WRITE
    #[arg(long, default_value_t = 65536)]
    size: usize,
    /// WRITEs in flight of each QP
    #[arg(long, default_value_t = 4)]
    depth: u32,
    /// How long to measure; 0 for no WRITEs
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// How many bytes to transfer, instead of for how long
    #[arg(long)]
    bytes: Option<u64>,
    /// READ instead of WRITE
    #[arg(long)]
    read: bool,
    /// Wait for completions instead of polling
    #[arg(long)]
    events: bool,
    /// Print a line and wait for one on standard input before the measurement, and print one after it
    #[arg(long)]
    wait: bool,
}

/// Serves one client.
pub(crate) fn serve(setup: &Setup) -> Result<(), String> {
    let end = End::new(setup, 1)?;
    let listener = Control::listen(setup.port)?;
    let mut control = Control::accept(&listener)?;
    let remote = end.region.remote(0);
    control.send(&format!("{} {}", remote.address.0, remote.key.0))?;
    control.send(&end.numbers())?;
    let cost = end.connect(&control.numbers::<u32>()?)?;
    control.send(&format!("{} {}", cost.microseconds, cost.kib))?;
    control.expect("begin")?;
    let before = cpu_seconds();
    control.send("begun")?;
    control.expect("end")?;
    control.send(&(cpu_seconds() - before).to_string())?;
    control.expect("bye")
}

/// Runs the client, and prints the figures.
pub(crate) fn run(client: &Client) -> Result<(), String> {
    let end = End::new(&client.setup, client.depth)?;
    let mut control = Control::connect(client.setup.port)?;
    let remote = control.numbers::<u64>()?;
    let [address, key] = remote[..] else { return Err("no remote address".to_owned()) };
    let remote = RemoteAddress { address: VirtualAddress(address), key: RKey(key as u32) };
    let peers = control.numbers::<u32>()?;
    control.send(&end.numbers())?;
    let cost = end.connect(&peers)?;
    let theirs = control.numbers::<f64>()?;
    let mut figures = sample([
        ("qp_microseconds", cost.microseconds),
        ("qp_kib", cost.kib.max(theirs.get(1).copied().unwrap_or(0.0))),
    ]);
    if client.bytes.is_some() || client.seconds > 0.0 {
        let mut writer =
            Writer::new(&end, remote, client.size, client.depth as usize, client.events);
        writer.reads = client.read;
        let amount = match client.bytes {
            Some(bytes) => {
                // All memory once, so that no page and no window is new.
                writer.run(Amount::Bytes(client.setup.footprint as u64))?;
                Amount::Bytes(bytes)
            }
            None => Amount::Time(WARM_UP, Duration::from_secs_f64(client.seconds)),
        };
        control.send("begin")?;
        control.expect("begun")?;
        if client.wait {
            println!("{READY}");
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
        }
        let before = cpu_seconds();
        let moved = writer.run(amount)?;
        let ours = cpu_seconds() - before;
        if client.wait {
            println!("{DONE}");
        }
        control.send("end")?;
        let theirs = control.numbers::<f64>()?.first().copied().unwrap_or(0.0);
        let total: u64 = moved.bytes.iter().sum();
        let least = moved.bytes.iter().min().copied().unwrap_or(0);
        figures.extend(sample([
            ("rate", total as f64 / moved.seconds / 1e9),
            ("seconds", moved.seconds),
            ("jain", jain(&moved.bytes)),
            ("least", least as f64 * moved.bytes.len() as f64 / (total as f64).max(1.0)),
            ("cpu", (ours + theirs) / (moved.total as f64 / 1e9)),
        ]));
    } else {
        control.send("begin")?;
        control.expect("begun")?;
        control.send("end")?;
        control.receive()?;
    }
    control.send("bye")?;
    super::print(&figures)
}

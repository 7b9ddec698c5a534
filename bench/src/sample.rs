//! The subcommand `sample`: takes one sample in the namespaces that this process was started in.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::interrupt::kill_group;
use crate::row::{Sample, Side};
use crate::rows;
use crate::sandbox::{Network, Sandbox, dropped};

/// The longest time that a sample may take. [`crate::measure`] waits a little longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Samples in virtual machines, which boot.
pub(crate) const MACHINE_LIMIT: Duration = Duration::from_secs(420);

/// The name of the figure that every sample has.
pub(crate) const DROPS: &str = "drops";

/// Which sample.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// The name of the row.
    row: String,
    /// The name of the side.
    side: String,
    /// The process that started this one.
    #[arg(long)]
    parent: u32,
}

/// The time that a sample of a side may take.
pub(crate) fn limit(side: &Side) -> Duration {
    if side.network == Network::Machine { MACHINE_LIMIT } else { LIMIT }
}

/// Takes the sample, and prints it as JSON.
pub(crate) fn run(which: &Which) -> Result<(), String> {
    let all = rows::all();
    let row = all.iter().find(|row| row.name == which.row);
    let side = row.and_then(|row| row.sides.iter().find(|side| side.name == which.side));
    let side = side.ok_or_else(|| format!("no row {} with side {}", which.row, which.side))?;
    watch_parent(which.parent);
    let sample = take(side)?;
    println!("{}", serde_json::to_string(&sample).map_err(|error| error.to_string())?);
    Ok(())
}

fn take(side: &Side) -> Result<Sample, String> {
    let until = Instant::now() + limit(side);
    let sandbox = Sandbox::new(side.network, until)?;
    let before = dropped();
    let said = sandbox.run(side, until)?;
    let drops = dropped().saturating_sub(before);
    let mut sample = (side.parse)(&said)?;
    sample.insert(DROPS.to_owned(), drops as f64);
    Ok(sample)
}

/// Kills this process group, of which this process is the leader, when the parent has ended.
fn watch_parent(parent: u32) {
    thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            thread::sleep(Duration::from_millis(200));
        }
        kill_group(std::process::id());
    });
}

//! Programs that we measure with: `ferroce-bench driver NAME`.
//!
//! Server and client are processes of their own. They agree over a TCP connection, [`control`], and the client prints
//! the figures of both as JSON.

mod control;
mod copy;
mod end;
mod many;
mod small;
mod tcp;
mod threads;
mod usage;
mod write;
mod write_loop;

use clap::Subcommand;

use crate::row::Sample;

/// A driver.
#[derive(Subcommand, Debug)]
pub(crate) enum Driver {
    /// Memory for the WRITEs of `write-client`
    WriteServer(end::Setup),
    /// RDMA WRITEs over any number of QPs
    WriteClient(write::Client),
    /// Copies within one process
    Copy(copy::Copy),
    /// The peer of `small-client`
    SmallServer(small::Small),
    /// Messages of 64 bytes: latency and rate, with idle and with busy sibling hyperthreads
    SmallClient(small::Small),
    /// Many pairs of `write-server` and `write-client` at once
    Many(many::Many),
    /// Threads of one process that write to themselves
    Threads(threads::Threads),
    /// Memory for the bytes of `tcp-client`
    TcpServer(tcp::Transfer),
    /// Bytes over a TCP connection
    TcpClient(tcp::Transfer),
}

/// Runs a driver.
pub(crate) fn run(driver: &Driver) -> Result<(), String> {
    match driver {
        Driver::WriteServer(setup) => write::serve(setup),
        Driver::WriteClient(client) => write::run(client),
        Driver::Copy(copy) => copy::run(copy),
        Driver::SmallServer(small) => small::serve(small),
        Driver::SmallClient(small) => small::run(small),
        Driver::Many(many) => many::run(many),
        Driver::Threads(threads) => threads::run(threads),
        Driver::TcpServer(transfer) => tcp::serve(transfer),
        Driver::TcpClient(transfer) => tcp::run(transfer),
    }
}

/// Prints the figures.
fn print(figures: &Sample) -> Result<(), String> {
    println!("{}", serde_json::to_string(figures).map_err(|error| error.to_string())?);
    Ok(())
}

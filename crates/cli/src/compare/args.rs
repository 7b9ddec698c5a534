//! Arguments of `ferroce compare`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::plan::MAX_DEPTH;
use crate::session::address::Listen;
use crate::session::bytes::Size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce compare                              both ends on this host, with a server process of its own
  ferroce compare --size 256M --chunk 1M --verify
  ferroce compare --html compare.html --svg compare.svg
  ferroce compare --size 64M --capture run     also writes run-rdma.pcapng and run-tcp.pcapng
  ferroce compare --json | jq '.verdicts'
  ferroce compare --server                     on the other host; then, on this one:
  ferroce compare 192.0.2.1 --size 1G --chunk 4M";

/// Arguments of `ferroce compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// The host where `ferroce compare --server` runs, and its port if it is not 7471; without it, a server process is
    /// started on this host
    #[arg(value_name = "HOST[:PORT]", value_hint = ValueHint::Hostname, conflicts_with = "server")]
    pub(crate) host: Option<String>,

    /// Bytes to transfer, and the size of the buffer of each side
    #[arg(long, value_name = "BYTES", default_value = "1G", conflicts_with = "server")]
    pub(crate) size: Size,

    /// Bytes per WRITE, and per application-level acknowledgement of TCP: a multiple of 4K
    #[arg(long, value_name = "BYTES", default_value = "4M", conflicts_with = "server")]
    pub(crate) chunk: Size,

    /// Measured rounds; each transfers --size bytes by every method, in an order that rotates
    #[arg(long, value_name = "COUNT", default_value_t = 5, conflicts_with = "server")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    /// WRITEs in flight [default: as many as make 8 MiB, at least 2]
    #[arg(long, value_name = "COUNT", conflicts_with = "server")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
    pub(crate) depth: Option<u32>,

    /// The receiver checks every byte after each transfer, of RDMA and TCP alike; this is not timed
    #[arg(long, conflicts_with = "server")]
    pub(crate) verify: bool,

    /// On one host, measure RDMA through sockets only, without the row through shared memory
    #[arg(long, conflicts_with = "server")]
    pub(crate) wire: bool,

    /// The address of this host to use if no HOST is given
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    #[arg(conflicts_with_all = ["server", "host"])]
    pub(crate) address: IpAddr,

    /// After the rounds, transfer once more and write PREFIX-rdma.pcapng and PREFIX-tcp.pcapng
    ///
    /// The capture of RDMA needs no privilege. That of TCP is taken from the interface, which needs CAP_NET_RAW.
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub(crate) capture: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a chart of the throughput
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub(crate) svg: Option<PathBuf>,

    /// Write a page with the charts, the table and the method, without references to other files
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub(crate) html: Option<PathBuf>,

    /// Show no progress line
    #[arg(long, short, conflicts_with = "server")]
    pub(crate) quiet: bool,

    /// Serve clients, one after another, until terminated
    #[arg(long)]
    pub(crate) server: bool,

    /// Where the server listens: an address of this host and a port, of TCP and RDMA-CM; 0 chooses any port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:7471", requires = "server")]
    pub(crate) listen: Listen,

    /// The server's maximum memory for a client
    #[arg(long, value_name = "BYTES", default_value = "4G", requires = "server")]
    pub(crate) memory: Size,

    /// Exit at the end of standard input: the client that started this server is gone.
    #[arg(long, hide = true, requires = "server")]
    pub(crate) child: bool,
}

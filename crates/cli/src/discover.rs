//! `ferroce discover`: finds Ferroce hosts and their capabilities.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use ferroce::setup::{Presence, RemoteDevice, Responder, Search};
use ferroce::{Context, Device, Gid, OpenError, Options, devices};
use ferroce_wire::field::Meaning;
use serde::Serialize;

use crate::capture::{self, CaptureArgs};
use crate::devices::{guid, json};
use crate::duration::Interval;
use crate::exit::ExitStatus;
use crate::session::address;
use crate::session::failure::Failure;
use crate::style::{Role, Screen};

/// Arguments of `ferroce discover`.
#[derive(Args, Debug)]
pub(crate) struct DiscoverArgs {
    /// The hosts to query; by default all hosts on the networks of all devices, by multicast
    #[arg(value_name = "ADDRESS", value_parser = address::host)]
    pub(crate) addresses: Vec<SocketAddr>,

    /// How long to wait for answers, such as 500ms or 2s; default 1s
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Interval>,

    /// Answer queries instead of sending any, until interrupted or for --timeout
    #[arg(long, conflicts_with = "addresses")]
    pub(crate) answer: bool,

    /// The capture option.
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The UDP port, for isolated tests
    #[arg(long, hide = true, default_value_t = Options::default().port)]
    pub(crate) port: u16,
}

/// A host that answered, at one of its addresses.
#[derive(Debug, Serialize)]
struct Host {
    address: IpAddr,
    /// The local device that reaches it.
    device: String,
    round_trip_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(flatten)]
    what: Option<Capabilities>,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    id: u32,
    guid: String,
    path_mtu: Option<usize>,
    transports: Vec<&'static str>,
    capabilities: Vec<&'static str>,
    max_queue_pairs: u32,
    max_memory_regions: u32,
    max_message_size: u32,
}

#[derive(Debug, Serialize)]
struct Hosts {
    hosts: Vec<Host>,
}

const TRANSPORTS: [&str; 4] = ["RC", "UC", "UD", "XRC"];

/// In bit order (`docs/set-up-exchange.md`).
const CAPABILITIES: [&str; 9] = [
    "RDMA_WRITE",
    "RDMA_READ",
    "ATOMIC",
    "IMMEDIATE",
    "INVALIDATE",
    "SHARED_RECEIVE_QUEUE",
    "ATOMIC_WRITE",
    "FLUSH",
    "CONGESTION_CONTROL",
];

/// The names of the bits that are set.
fn names(bits: u32, names: &[&'static str]) -> Vec<&'static str> {
    names
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect()
}

impl Host {
    fn of(device: &str, responder: &Responder) -> Self {
        let round_trip = responder.round_trip.map(|time| time.as_nanos());
        Self {
            address: responder.peer.address.to_ip(),
            device: device.to_owned(),
            round_trip_ns: round_trip.and_then(|time| u64::try_from(time).ok()),
            refused: responder.answer.err().map(|status| Meaning(&status).to_string()),
            what: responder.answer.ok().map(|device| Capabilities::of(&device)),
        }
    }
}

impl Capabilities {
    fn of(device: &RemoteDevice) -> Self {
        Self {
            id: device.id.0,
            guid: guid(device.guid.0),
            path_mtu: device.path_mtu.bytes(),
            transports: names(device.transports.0.into(), &TRANSPORTS),
            capabilities: names(device.capabilities.0, &CAPABILITIES),
            max_queue_pairs: device.max_queue_pairs,
            max_memory_regions: device.max_memory_regions,
            max_message_size: device.max_message_size,
        }
    }
}

/// Sends queries, or answers them.
pub(crate) fn run(args: &DiscoverArgs, screen: &Screen) -> ExitStatus {
    let options = match args.capture.options() {
        Ok(options) => Options { port: args.port, ..options },
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    };
    let interrupted = *screen;
    capture::finish_on_signal(&options, move || capture::report_all(&interrupted));
    let done = if args.answer { answer(args, &options, screen) } else { ask(args, &options) };
    capture::report_all(screen);
    let found = match done {
        Ok(found) => found,
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    };
    if args.answer {
        return ExitStatus::Success;
    }
    let status = if found.is_empty() { ExitStatus::Failure } else { ExitStatus::Success };
    if args.json {
        return status.and(json(&Hosts { hosts: found }, screen));
    }
    if found.is_empty() {
        screen.complain(
            "nobody answered: a host answers while `ferroce server` or `ferroce discover --answer` runs \
             there, and UDP port 4791 is open",
        );
        return status;
    }
    let mut output = io::stdout().lock();
    ExitStatus::of_output(table(&found, screen, &mut output).map(|()| status), screen)
}

fn timeout(args: &DiscoverArgs) -> Duration {
    args.timeout.map_or(Duration::from_secs(1), |time| Duration::from_nanos(time.nanoseconds))
}

fn ask(args: &DiscoverArgs, options: &Options) -> Result<Vec<Host>, Failure> {
    let mut searches = Vec::new();
    if args.addresses.is_empty() {
        let mut failed = None;
        for device in devices()? {
            // A device that cannot be opened, for example because its MTU is too small, must not prevent the others
            // from querying.
            let context = match Context::open(&device, options) {
                Ok(context) => context,
                Err(error) => {
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            let search = Search::begin(&context, &[], timeout(args))?;
            searches.push((context, search));
        }
        if searches.is_empty() {
            let none = "no device to ask by: no network interface is up and has an address";
            return Err(failed.map_or_else(|| Failure::Other(none.into()), Failure::from));
        }
    }
    for (device, targets) in by_device(&args.addresses)? {
        let context = Context::open(&device, options)?;
        let search = Search::begin(&context, &targets, timeout(args))?;
        searches.push((context, search));
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (context, search) in &searches {
        while let Some(responder) = search.wait()? {
            if seen.insert(responder.peer.address) {
                found.push(Host::of(context.device().name(), &responder));
            }
        }
    }
    Ok(found)
}

/// The addresses to query, each with the source GID index.
type Targets = Vec<(u8, Gid)>;

/// The addresses by the device that reaches them.
fn by_device(addresses: &[SocketAddr]) -> Result<Vec<(Device, Targets)>, OpenError> {
    let mut found: Vec<(Device, Targets)> = Vec::new();
    for &address in addresses {
        let (device, index) = Device::toward(address)?;
        let target = (index, Gid::from_ip(address.ip()));
        match found.iter_mut().find(|(known, _)| *known == device) {
            Some((_, targets)) => targets.push(target),
            None => found.push((device, vec![target])),
        }
    }
    Ok(found)
}

fn answer(args: &DiscoverArgs, options: &Options, screen: &Screen) -> Result<Vec<Host>, Failure> {
    let mut present = Vec::new();
    for device in devices()? {
        let opened = Context::open(&device, options).map_err(Failure::from);
        match opened.and_then(|context| Ok(Presence::new(&context)?)) {
            Ok(presence) => present.push(presence),
            Err(error) => screen.complain(format_args!("{}: {error}", device.name())),
        }
    }
    let addresses: usize = present.iter().map(Presence::addresses).sum();
    if addresses == 0 {
        let taken = "no address is left to answer for: another process does";
        return Err(Failure::Other(taken.into()));
    }
    let mut output = io::stdout().lock();
    // Scripts wait for this line.
    let _ = writeln!(output, "answering on {addresses} addresses").and_then(|()| output.flush());
    drop(output);
    match args.timeout {
        Some(time) => std::thread::sleep(Duration::from_nanos(time.nanoseconds)),
        None => loop {
            std::thread::park();
        },
    }
    Ok(Vec::new())
}

fn table(hosts: &[Host], screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    let paint = screen.paint;
    let addresses: Vec<_> = hosts.iter().map(|host| host.address.to_string()).collect();
    let width = addresses.iter().map(String::len).max().unwrap_or(0).max(7);
    let via = hosts.iter().map(|host| host.device.len()).max().unwrap_or(0).max(3);
    let title = format!(
        "{:<width$}  {:<via$}  {:>10}  {:<19}  {:>8}  {}",
        "address", "via", "round trip", "GUID", "path MTU", "transports"
    );
    writeln!(output, "{}", paint.role(Role::Heading, title))?;
    for (host, address) in hosts.iter().zip(&addresses) {
        let time = host.round_trip_ns.map_or(String::new(), |time| format!("{} µs", time / 1000));
        write!(output, "{:<width$}  ", paint.role(Role::Title, address))?;
        write!(output, "{:<via$}  {time:>10}  ", host.device)?;
        match (&host.what, &host.refused) {
            (Some(what), _) => writeln!(
                output,
                "{:<19}  {:>8}  {}",
                what.guid,
                what.path_mtu.unwrap_or(0),
                what.transports.join(" "),
            )?,
            (None, refused) => {
                let reason = format!("refuses: {}", refused.as_deref().unwrap_or_default());
                writeln!(output, "{}", paint.role(Role::Warning, reason))?;
            }
        }
    }
    // A device has several addresses and reports the same for each.
    let mut told = BTreeSet::new();
    for what in hosts.iter().filter_map(|host| host.what.as_ref()) {
        if !told.insert(&what.guid) {
            continue;
        }
        writeln!(output, "\n{}", paint.role(Role::Heading, &what.guid))?;
        writeln!(output, "  can      {}", what.capabilities.join(" ").to_lowercase())?;
        writeln!(
            output,
            "  up to    {} queue pairs, {} memory regions, messages of {} bytes",
            what.max_queue_pairs, what.max_memory_regions, what.max_message_size
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ferroce_wire::setup::{Capabilities, Transports};

    use super::*;

    /// The lists here match those of the protocol.
    #[test]
    fn every_capability_bit_has_a_name() {
        assert_eq!(names(Transports::XRC.0.into(), &TRANSPORTS), ["XRC"]);
        assert_eq!(names(Capabilities::RDMA_WRITE.0, &CAPABILITIES), ["RDMA_WRITE"]);
        assert_eq!(
            names(Capabilities::CONGESTION_CONTROL.0, &CAPABILITIES),
            ["CONGESTION_CONTROL"]
        );
        assert_eq!(names(u32::MAX, &CAPABILITIES).len(), CAPABILITIES.len());
    }
}

//! `ferroce devices`: lists the devices.

use std::io::{self, Write};

use clap::Args;
use ferroce::{Device, devices};
use ferroce_trace::render::text::wrap;
use serde::Serialize;

use crate::exit::ExitStatus;
use crate::style::{Role, Screen};

/// Arguments of `ferroce devices`.
#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A device in the list.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    interface: String,
    state: &'static str,
    mtu: u32,
    path_mtu: Option<u16>,
    guid: String,
    gids: Vec<GidRow>,
}

/// An entry of the GID table.
#[derive(Debug, Serialize)]
pub(crate) struct GidRow {
    pub(crate) index: usize,
    pub(crate) gid: String,
    pub(crate) address: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
}

/// All devices.
#[derive(Debug, Serialize)]
pub(crate) struct Devices<T> {
    pub(crate) devices: Vec<T>,
}

impl Row {
    fn of(device: &Device) -> Self {
        Self {
            name: device.name().to_owned(),
            interface: device.interface().name.clone(),
            state: if is_active(device) { "active" } else { "down" },
            mtu: device.interface().mtu,
            path_mtu: path_mtu(device),
            guid: guid(device.guid()),
            gids: gids(device),
        }
    }
}

/// Lists the devices.
pub(crate) fn run(args: &DevicesArgs, screen: &Screen) -> ExitStatus {
    let found = match devices() {
        Ok(found) => found,
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    };
    let rows: Vec<_> = found.iter().map(Row::of).collect();
    let mut output = io::stdout().lock();
    if args.json {
        return json(&Devices { devices: rows }, screen);
    }
    if rows.is_empty() {
        screen.complain("no device: no network interface is up with an address; bring one up with `ip link set DEV up`");
        return ExitStatus::Failure;
    }
    let result =
        table(&rows, screen, &mut output).and_then(|()| explain(&rows, screen, &mut output));
    ExitStatus::of_output(result.map(|()| ExitStatus::Success), screen)
}

fn table(rows: &[Row], screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    let paint = screen.paint;
    let width = |text: fn(&Row) -> &str, title: &str| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0).max(title.len())
    };
    let (name, interface) =
        (width(|row| &row.name, "device"), width(|row| &row.interface, "interface"));
    // The columns before the addresses, with their separators.
    let before = name + interface + 6 + 5 + 8 + 19 + 6 * 2;
    let title = format!(
        "{:<name$}  {:<interface$}  {:<6}  {:>5}  {:>8}  {:<19}  {}",
        "device", "interface", "state", "MTU", "path MTU", "GUID", "addresses"
    );
    writeln!(output, "{}", paint.role(Role::Heading, title))?;
    for row in rows {
        let role = if row.state == "active" { Role::Good } else { Role::Warning };
        let path_mtu = row.path_mtu.map_or("none".to_owned(), |bytes| bytes.to_string());
        let addresses: Vec<_> = row.gids.iter().map(|gid| gid.address.as_str()).collect();
        let (indent, addresses) = below(before, &addresses.join(" "), screen.width);
        let beside =
            if indent == before { addresses.first().map_or("", String::as_str) } else { "" };
        let line = format!(
            "{:<name$}  {:<interface$}  {:<6}  {:>5}  {:>8}  {:<19}  {beside}",
            paint.role(Role::Title, &row.name),
            row.interface,
            paint.role(role, row.state),
            row.mtu,
            path_mtu,
            row.guid,
        );
        writeln!(output, "{}", line.trim_end())?;
        for line in addresses.iter().skip(usize::from(indent == before)) {
            writeln!(output, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

/// What the table does not say of peers on this host, which packets reach by the loopback interface.
fn explain(rows: &[Row], screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    let Some(first) = rows.first().filter(|first| first.interface != "lo") else { return Ok(()) };
    let mut text = format!("127.0.0.1 and ::1 belong to {}.", first.name);
    if rows.iter().any(|row| row.path_mtu.is_some_and(|bytes| bytes < 4096)) {
        text += " The path MTU is that to other hosts, and that of programs which use the port's active MTU. Between processes of \
                 this host, the connection manager uses 4096.";
    }
    writeln!(output)?;
    wrap(&text, screen.width.unwrap_or(100)).iter().try_for_each(|line| writeln!(output, "{line}"))
}

/// The column where addresses start, given `before` columns before them, and their lines: beside the other columns if
/// the terminal is wide enough, otherwise below.
fn below(before: usize, addresses: &str, width: Option<usize>) -> (usize, Vec<String>) {
    const MIN_WIDTH: usize = 20;
    let Some(width) = width else { return (before, vec![addresses.to_owned()]) };
    let indent = if before + MIN_WIDTH <= width { before } else { 4 };
    (indent, wrap(addresses, width.saturating_sub(indent).max(MIN_WIDTH)))
}

/// Prints JSON to standard output.
pub(crate) fn json(value: &impl Serialize, screen: &Screen) -> ExitStatus {
    let mut output = io::stdout().lock();
    let result = serde_json::to_writer_pretty(&mut output, value)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(output))
        .map(|()| ExitStatus::Success);
    ExitStatus::of_output(result, screen)
}

/// Whether the port can send and receive.
pub(crate) fn is_active(device: &Device) -> bool {
    device.interface().up && device.interface().running
}

/// The largest path MTU in bytes; `None` if the interface's MTU is too small for RoCE.
pub(crate) fn path_mtu(device: &Device) -> Option<u16> {
    device.mtu().ok().and_then(|mtu| mtu.bytes()).and_then(|bytes| u16::try_from(bytes).ok())
}

/// Formats a GUID as `ibv_devinfo` does.
pub(crate) fn guid(guid: u64) -> String {
    let [a, b, c, d] = [guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff, guid & 0xffff];
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

/// The GID table.
pub(crate) fn gids(device: &Device) -> Vec<GidRow> {
    let entries = device.gids().into_iter().enumerate();
    entries
        .map(|(index, entry)| GidRow {
            index,
            gid: entry.gid.to_string(),
            address: entry.address.ip().to_string(),
            kind: "RoCE v2",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_wrap_on_a_narrow_terminal() {
        let addresses = "192.0.2.2 fd00::2 fe80::fc:ff:fe00:1";
        assert_eq!(below(80, addresses, None), (80, vec![addresses.to_owned()]));
        let lines = ["192.0.2.2 fd00::2", "fe80::fc:ff:fe00:1"].map(str::to_owned);
        assert_eq!(below(80, addresses, Some(100)), (80, lines.to_vec()));
        assert_eq!(below(80, addresses, Some(80)), (4, vec![addresses.to_owned()]));
    }

    #[test]
    fn guids_are_printed_in_four_groups() {
        assert_eq!(guid(0x0200_00ff_fe00_0001), "0200:00ff:fe00:0001");
    }
}

//! `ferroce devinfo`: shows a device as `ibv_devinfo` does.

use std::fmt::Display;
use std::io::{self, Write};

use clap::Args;
use ferroce::{Device, Limits, Local, OpenError, Options, devices, identity};
use serde::Serialize;

use crate::devices::{Devices, GidRow, gids, guid, is_active, json, path_mtu};
use crate::exit::ExitStatus;
use crate::style::{Paint, Role, Screen};

/// The largest path MTU of RoCE.
const MAX_MTU: u16 = 4096;

/// Arguments of `ferroce devinfo`.
#[derive(Args, Debug)]
pub(crate) struct DevinfoArgs {
    /// The device or its interface; by default all devices
    #[arg(value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Show all limits and the GID table
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Print JSON, with all details
    #[arg(long)]
    pub(crate) json: bool,
}

/// A device, with the field names of `ibv_devinfo`.
#[derive(Debug, Serialize)]
struct Info {
    hca_id: String,
    interface: String,
    /// How packets reach processes of the same user on this host.
    local_link: &'static str,
    transport: &'static str,
    fw_ver: &'static str,
    node_guid: String,
    sys_image_guid: String,
    vendor_id: String,
    vendor_part_id: u32,
    hw_ver: String,
    phys_port_cnt: u8,
    #[serde(skip)]
    limits: Vec<(&'static str, u64)>,
    ports: [Port; 1],
}

#[derive(Debug, Serialize)]
struct Port {
    port: u8,
    state: &'static str,
    max_mtu: u16,
    active_mtu: Option<u16>,
    sm_lid: u16,
    port_lid: u16,
    port_lmc: u8,
    link_layer: &'static str,
    gids: Vec<GidRow>,
}

impl Info {
    fn of(device: &Device) -> Self {
        let port = Port {
            port: 1,
            state: if is_active(device) { "PORT_ACTIVE" } else { "PORT_DOWN" },
            max_mtu: MAX_MTU,
            active_mtu: path_mtu(device),
            sm_lid: 0,
            port_lid: device.lid(),
            port_lmc: 0,
            link_layer: "Ethernet",
            gids: gids(device),
        };
        Self {
            hca_id: device.name().to_owned(),
            interface: device.interface().name.clone(),
            local_link: local_link(),
            transport: "InfiniBand",
            fw_ver: identity::FIRMWARE_VERSION,
            node_guid: guid(device.guid()),
            sys_image_guid: guid(device.guid()),
            vendor_id: format!("{:#06x}", identity::VENDOR_ID),
            vendor_part_id: identity::VENDOR_PART_ID,
            hw_ver: format!("{:#x}", identity::HARDWARE_VERSION),
            phys_port_cnt: 1,
            limits: limits(&device.limits()),
            ports: [port],
        }
    }
}

/// What a program that is started now would use.
fn local_link() -> &'static str {
    match Options::from_env().unwrap_or_default().local {
        Local::Memory => "memory",
        _ => "sockets",
    }
}

/// The limits, with the field names of `ibv_device_attr`.
fn limits(limits: &Limits) -> Vec<(&'static str, u64)> {
    let Limits {
        max_qp,
        max_qp_wr,
        max_sge,
        max_inline_data,
        max_cq,
        max_cqe,
        max_mr,
        max_mr_size,
        max_pd,
        max_rd_atomic,
        max_srq,
        max_mcast_grp,
        gid_tbl_len,
        ..
    } = *limits;
    vec![
        ("max_mr_size", max_mr_size),
        ("max_qp", max_qp.into()),
        ("max_qp_wr", max_qp_wr.into()),
        ("max_sge", max_sge.into()),
        ("max_sge_rd", max_sge.into()),
        ("max_inline_data", max_inline_data.into()),
        ("max_cq", max_cq.into()),
        ("max_cqe", max_cqe.into()),
        ("max_mr", max_mr.into()),
        ("max_mw", max_mr.into()),
        ("max_pd", max_pd.into()),
        ("max_qp_rd_atom", max_rd_atomic.into()),
        ("max_qp_init_rd_atom", max_rd_atomic.into()),
        ("max_srq", max_srq.into()),
        ("max_srq_wr", max_qp_wr.into()),
        ("max_srq_sge", max_sge.into()),
        ("max_mcast_grp", max_mcast_grp.into()),
        ("max_pkeys", 1),
        ("gid_tbl_len", gid_tbl_len.into()),
    ]
}

/// Shows one device, or all.
pub(crate) fn run(args: &DevinfoArgs, screen: &Screen) -> ExitStatus {
    let found = match find(args.device.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            screen.complain(error);
            return ExitStatus::Failure;
        }
    };
    if found.is_empty() {
        screen.complain("no device: no network interface is up with an address; bring one up with `ip link set DEV up`");
        return ExitStatus::Failure;
    }
    let found: Vec<_> = found.iter().map(Info::of).collect();
    if args.json {
        return json(&Devices { devices: found.iter().map(Record::of).collect() }, screen);
    }
    let mut output = io::stdout().lock();
    let shown = found.iter().try_for_each(|info| show(info, args.verbose, screen, &mut output));
    ExitStatus::of_output(shown.map(|()| ExitStatus::Success), screen)
}

fn find(name: Option<&str>) -> Result<Vec<Device>, OpenError> {
    name.map_or_else(devices, |name| Ok(vec![Device::named(name)?]))
}

/// The JSON form, in which the limits are an object.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(flatten)]
    info: &'a Info,
    limits: serde_json::Map<String, serde_json::Value>,
}

impl<'a> Record<'a> {
    fn of(info: &'a Info) -> Self {
        let limits = info.limits.iter().map(|&(name, value)| (name.to_owned(), value.into()));
        Self { info, limits: limits.collect() }
    }
}

fn line(
    output: &mut impl Write,
    paint: Paint,
    depth: usize,
    name: &str,
    value: impl Display,
) -> io::Result<()> {
    let indent = 4 * depth;
    let name = format!("{name}:");
    writeln!(output, "{:indent$}{name:<28}{}", "", paint.role(Role::Value, value))
}

fn show(info: &Info, verbose: bool, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
    let paint = screen.paint;
    writeln!(output, "{:<32}{}", "hca_id:", paint.role(Role::Title, &info.hca_id))?;
    line(output, paint, 1, "transport", format_args!("{} (0)", info.transport))?;
    line(output, paint, 1, "fw_ver", info.fw_ver)?;
    line(output, paint, 1, "node_guid", &info.node_guid)?;
    line(output, paint, 1, "sys_image_guid", &info.sys_image_guid)?;
    line(output, paint, 1, "vendor_id", &info.vendor_id)?;
    line(output, paint, 1, "vendor_part_id", info.vendor_part_id)?;
    line(output, paint, 1, "hw_ver", &info.hw_ver)?;
    line(output, paint, 1, "phys_port_cnt", info.phys_port_cnt)?;
    if verbose {
        line(output, paint, 1, "interface", &info.interface)?;
        line(output, paint, 1, "local_link", info.local_link)?;
        for (name, value) in &info.limits {
            match *name {
                // The format of ibv_devinfo.
                "max_mr_size" => line(output, paint, 1, name, format_args!("{value:#x}"))?,
                _ => line(output, paint, 1, name, value)?,
            }
        }
    }
    for port in &info.ports {
        line(output, paint, 2, "port", port.port)?;
        let state = if port.state == "PORT_ACTIVE" { "PORT_ACTIVE (4)" } else { "PORT_DOWN (1)" };
        line(output, paint, 3, "state", state)?;
        line(output, paint, 3, "max_mtu", mtu(Some(port.max_mtu)))?;
        line(output, paint, 3, "active_mtu", mtu(port.active_mtu))?;
        line(output, paint, 3, "sm_lid", port.sm_lid)?;
        line(output, paint, 3, "port_lid", port.port_lid)?;
        line(output, paint, 3, "port_lmc", format_args!("0x{:02x}", port.port_lmc))?;
        line(output, paint, 3, "link_layer", port.link_layer)?;
        if verbose {
            for entry in &port.gids {
                let name = format!("GID[{:3}]", entry.index);
                line(output, paint, 3, &name, format_args!("{}, {}", entry.gid, entry.kind))?;
            }
        }
    }
    writeln!(output)
}

/// An MTU with its code (IBA 8.2.1).
fn mtu(bytes: Option<u16>) -> String {
    match bytes {
        Some(bytes) => format!("{bytes} ({})", bytes.trailing_zeros() - 7),
        None => "none: the interface's is too small".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::mtu;

    #[test]
    fn mtus_map_to_their_codes() {
        assert_eq!(mtu(Some(256)), "256 (1)");
        assert_eq!(mtu(Some(4096)), "4096 (5)");
    }
}

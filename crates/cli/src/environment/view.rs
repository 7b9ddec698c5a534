//! The files in which programs look for devices, as the kernel provides them in `/sys` and `/dev`.
//!
//! `hw_counters` contains the sums over all processes that use the view; the processes add to the files themselves.
//! `counters` is empty: counters that never move would be misleading.

use std::fs::{DirBuilder, OpenOptions, read_to_string};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use ferroce::{Device, Statistics, identity};

use crate::devices::{guid, is_active};

/// The target of device files in the view: a character device that anybody may read and write. Programs only check that
/// the file exists; creating a device needs privilege, a link to this one does not.
const DEVICE: &str = "/dev/null";

/// The ABI versions of the kernel drivers; see `rdma/ib_user_verbs.h` and `ib_user_mad.h`.
const VERBS_ABI: u32 = 6;
const DRIVER_ABI: u32 = 1;
const MAD_ABI: u32 = 5;

/// The major and minor number of the kernel's first verbs device.
const FIRST_DEVICE: (u32, u32) = (231, 192);

/// `IB_PORT_CM_SUP`: connection management, as rdma_rxe sets it.
const CAPABILITIES: u32 = 1 << 16;

/// Creates all files in an empty folder.
pub(super) fn build(root: &Path, devices: &[Device]) -> io::Result<()> {
    let class = root.join("sys/class");
    let dev = Folder::new(root.join("dev/infiniband"))?;
    let adapters = Folder::new(class.join("infiniband"))?;
    let verbs = Folder::new(class.join("infiniband_verbs"))?;
    let mads = Folder::new(class.join("infiniband_mad"))?;
    // For paths that leave the view through `..`.
    symlink("/sys/class/net", class.join("net"))?;
    verbs.file("abi_version", VERBS_ABI)?;
    mads.file("abi_version", MAD_ABI)?;
    dev.link("rdma_cm", DEVICE)?;
    for (number, device) in (0..).zip(devices) {
        let name = format!("uverbs{number}");
        dev.link(&name, DEVICE)?;
        let entry = verbs.folder(&name)?;
        entry.file("ibdev", device.name())?;
        entry.file("abi_version", DRIVER_ABI)?;
        entry.file("dev", format_args!("{}:{}", FIRST_DEVICE.0, FIRST_DEVICE.1 + number))?;
        entry.link("device", &format!("../../infiniband/{}/device", device.name()))?;
        let folder = adapters.folder(device.name())?;
        let bus_address = bus_address(number);
        folder.link("device", &bus_address)?;
        pci_function(&folder.folder(&bus_address)?, device, &name)?;
        adapter(&folder, device)?;
    }
    Ok(())
}

/// The PCI address of a device, in a domain that no hardware has: libfabric warns of a device whose directory is not called
/// like one.
fn bus_address(number: u32) -> String {
    format!("{:04x}:{:02x}:{:02x}.0", identity::VENDOR_ID & 0xffff, number / 32, number % 32)
}

/// The directory that programs reach through the link `device`.
fn pci_function(folder: &Folder, device: &Device, verbs: &str) -> io::Result<()> {
    /// An Ethernet controller.
    const CLASS: u32 = 0x02_0000;
    let interface = device.interface().name.as_str();
    let near = read_to_string(format!("/sys/class/net/{interface}/device/numa_node"));
    folder.file("vendor", format_args!("{:#06x}", identity::VENDOR_ID & 0xffff))?;
    folder.file("device", format_args!("{:#06x}", identity::VENDOR_PART_ID))?;
    folder.file("class", format_args!("{CLASS:#08x}"))?;
    folder.file("numa_node", near.as_deref().map_or("-1", str::trim))?;
    folder.folder("net")?.link(interface, &format!("/sys/class/net/{interface}"))?;
    folder
        .folder("infiniband_verbs")?
        .link(verbs, &format!("../../../../infiniband_verbs/{verbs}"))?;
    folder.folder("infiniband")?.link(device.name(), &format!("../../../{}", device.name()))
}

fn adapter(folder: &Folder, device: &Device) -> io::Result<()> {
    folder.file("node_type", "1: CA")?;
    folder.file("node_guid", guid(device.guid()))?;
    folder.file("sys_image_guid", guid(device.guid()))?;
    folder.file("node_desc", device.name())?;
    folder.file("fw_ver", identity::FIRMWARE_VERSION)?;
    folder.file("hca_type", "Ferroce")?;
    folder.file("board_id", "Ferroce")?;
    folder.file("hw_rev", format_args!("{:#x}", identity::HARDWARE_VERSION))?;
    port(&folder.folder("ports")?.folder("1")?, device)
}

fn port(folder: &Folder, device: &Device) -> io::Result<()> {
    let (state, physical) =
        if is_active(device) { ("4: ACTIVE", "5: LinkUp") } else { ("1: DOWN", "3: Disabled") };
    let interface = device.interface().name.as_str();
    let speed = read_to_string(format!("/sys/class/net/{interface}/speed"));
    let speed = speed.ok().and_then(|text| text.trim().parse().ok());
    folder.file("state", state)?;
    folder.file("phys_state", physical)?;
    folder.file("link_layer", "Ethernet")?;
    folder.file("rate", rate(speed.unwrap_or(0)))?;
    folder.file("lid", format_args!("{:#x}", device.lid()))?;
    folder.file("sm_lid", "0x0")?;
    folder.file("lid_mask_count", 0)?;
    folder.file("sm_sl", 0)?;
    folder.file("cap_mask", format_args!("0x{CAPABILITIES:08x}"))?;
    folder.folder("pkeys")?.file("0", "0xffff")?;
    folder.folder("counters")?;
    let counters = folder.folder("hw_counters")?;
    for (name, count) in Statistics::default().hw_counters() {
        counters.counter(name, count)?;
    }
    let gids = folder.folder("gids")?;
    let attributes = folder.folder("gid_attrs")?;
    let (types, interfaces) = (attributes.folder("types")?, attributes.folder("ndevs")?);
    for (index, entry) in device.gids().into_iter().enumerate() {
        let index = index.to_string();
        gids.file(&index, gid(entry.gid.0))?;
        types.file(&index, "RoCE v2")?;
        interfaces.file(&index, interface)?;
    }
    Ok(())
}

/// Formats a GID in full, as the kernel does.
fn gid(octets: [u8; 16]) -> String {
    let groups: Vec<_> =
        octets.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
    groups.join(":")
}

/// The InfiniBand rate that the kernel chooses for an Ethernet interface of this speed in Mb/s. An interface without a
/// speed, such as the loopback, gets the lowest.
fn rate(megabits: i64) -> &'static str {
    const RATES: [(i64, &str); 8] = [
        (1_000, "2.5 Gb/sec (1X SDR)"),
        (10_000, "10 Gb/sec (1X QDR)"),
        (20_000, "20 Gb/sec (4X DDR)"),
        (25_000, "25 Gb/sec (1X EDR)"),
        (40_000, "40 Gb/sec (4X QDR)"),
        (50_000, "50 Gb/sec (2X EDR)"),
        (100_000, "100 Gb/sec (4X EDR)"),
        (200_000, "200 Gb/sec (4X HDR)"),
    ];
    let fits = RATES.iter().find(|(most, _)| megabits <= *most);
    fits.map_or("400 Gb/sec (4X NDR)", |(_, name)| name)
}

/// A folder to fill.
struct Folder(PathBuf);

impl Folder {
    fn new(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
        Ok(Self(path))
    }

    fn folder(&self, name: &str) -> io::Result<Self> {
        Self::new(self.0.join(name))
    }

    fn file(&self, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o444).open(self.0.join(name))?;
        file.write_all(format!("{value}\n").as_bytes())
    }

    /// A file that processes of this user update.
    fn counter(&self, name: &str, count: u64) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o644).open(self.0.join(name))?;
        file.write_all(format!("{count}\n").as_bytes())
    }

    fn link(&self, name: &str, target: &str) -> io::Result<()> {
        symlink(target, self.0.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_written_in_full() {
        let octets = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        assert_eq!(gid(octets), "0000:0000:0000:0000:0000:ffff:7f00:0001");
    }

    #[test]
    fn speeds_round_to_an_infiniband_rate() {
        assert_eq!(rate(-1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(rate(25_000), "25 Gb/sec (1X EDR)");
        assert_eq!(rate(25_001), "40 Gb/sec (4X QDR)");
        assert_eq!(rate(800_000), "400 Gb/sec (4X NDR)");
    }
}

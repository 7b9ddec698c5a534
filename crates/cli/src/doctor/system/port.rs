//! Who uses UDP port 4791, and what filters packets.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use super::Kernel;
use super::kernel::NET_ADMIN;

/// A socket bound to the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Holder {
    pub(in crate::doctor) address: IpAddr,
    /// The user that opened it.
    pub(in crate::doctor) user: u32,
    /// Its process and program, where /proc shows them: only to the same user or to root.
    pub(in crate::doctor) process: Option<(u32, String)>,
    /// Whether this process is a Ferroce process: it also has a socket by which they find each other.
    pub(in crate::doctor) is_ferroce: bool,
}

/// The packet filter of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) enum Firewall {
    /// The rules are not readable without privilege.
    #[default]
    Unknown,
    /// Root may read them, but neither nft nor iptables-save is installed to list them.
    NoTool,
    /// As [`Firewall::Unknown`], and these managers of packet filters are active.
    Managed(Vec<&'static str>),
    /// The rules are readable and drop no incoming UDP packet by default.
    Open,
    /// The rules drop incoming packets by default and do not mention the port.
    Closed,
    /// They drop by default, and mention the port.
    Mentioned,
}

/// UDP port 4791.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) struct PortFacts {
    pub(in crate::doctor) holders: Vec<Holder>,
    /// The devices of the kernel's rdma_rxe.
    pub(in crate::doctor) rxe: Vec<String>,
    /// Whether its module is loaded: it holds the port of all addresses as long as it has a device.
    pub(in crate::doctor) rxe_loaded: bool,
    pub(in crate::doctor) firewall: Firewall,
}

pub(super) fn read(kernel: &Kernel) -> PortFacts {
    let table =
        |name: &str| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let mut sockets = parse(&table("udp"));
    sockets.extend(parse(&table("udp6")));
    let ours = ferroce_inodes(&table("unix"));
    let inodes: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let owners = if inodes.is_empty() { HashMap::new() } else { owners(&inodes, &ours) };
    let own = std::process::id();
    let holders = sockets.into_iter().map(|socket| {
        let owner = owners.get(&socket.inode);
        Holder {
            address: socket.address,
            user: socket.user,
            process: owner.map(|owner| (owner.process, owner.program.clone())),
            is_ferroce: owner.is_some_and(|owner| owner.is_ferroce),
        }
    });
    PortFacts {
        holders: holders
            .filter(|holder| holder.process.as_ref().is_none_or(|(process, _)| *process != own))
            .collect(),
        rxe: rxe_devices(Path::new("/sys/class/infiniband")),
        rxe_loaded: Path::new("/sys/module/rdma_rxe").exists(),
        firewall: firewall(kernel),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    address: IpAddr,
    user: u32,
    inode: u64,
}

/// The sockets of the port in /proc/net/udp or udp6 (proc_pid_net(5)).
fn parse(table: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        if u16::from_str_radix(port, 16).ok()? != ferroce_sys::ROCE_PORT {
            return None;
        }
        let user = fields.get(7)?.parse().ok()?;
        Some(Entry { address: ip(address)?, user, inode: fields.get(9)?.parse().ok()? })
    };
    table.lines().skip(1).filter_map(entry).collect()
}

/// An address: 32-bit words in the byte order of the host.
fn ip(text: &str) -> Option<IpAddr> {
    let word =
        |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(8)?, word(16)?, word(24)?];
    let octets: [u8; 16] = words.concat().try_into().ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// The sockets in /proc/net/unix by which Ferroce processes find each other.
fn ferroce_inodes(table: &str) -> HashSet<u64> {
    let ours = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(7)?.starts_with("@ferroce/").then(|| fields.get(6)?.parse().ok())?
    };
    table.lines().filter_map(ours).collect()
}

struct Owner {
    process: u32,
    program: String,
    is_ferroce: bool,
}

/// The processes that have these sockets open, as far as we may see it.
fn owners(inodes: &HashSet<u64>, ours: &HashSet<u64>) -> HashMap<u64, Owner> {
    let mut owners = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else { continue };
        let sockets: HashSet<u64> = files
            .flatten()
            .filter_map(|file| {
                let target = fs::read_link(file.path()).ok()?;
                target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            })
            .collect();
        for inode in sockets.intersection(inodes) {
            let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            let owner = Owner {
                process,
                program: program.trim().to_owned(),
                is_ferroce: !sockets.is_disjoint(ours),
            };
            owners.insert(*inode, owner);
        }
    }
    owners
}

/// The devices of rdma_rxe: it has no parent device, and its node description says what it is.
fn rxe_devices(class: &Path) -> Vec<String> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if read("hca_type").trim() == "Ferroce" {
            // The view of an outer `ferroce run`.
            return None;
        }
        let description = read("node_desc");
        let is_soft = entry.path().join("parent").exists() && !entry.path().join("device").exists();
        (is_soft || description.starts_with("rxe") || name.starts_with("rxe")).then_some(name)
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn firewall(kernel: &Kernel) -> Firewall {
    if kernel.has(NET_ADMIN) {
        let rules = rules("nft", &["list", "ruleset"]).or_else(|| rules("iptables-save", &[]));
        if let Some(rules) = rules {
            return judge(&rules);
        }
    }
    let ufw = fs::read_to_string("/etc/ufw/ufw.conf").unwrap_or_default();
    let ufw = ufw.lines().any(|line| line.trim().eq_ignore_ascii_case("ENABLED=yes"));
    let firewalld =
        Path::new("/run/firewalld").exists() || Path::new("/run/firewalld.pid").exists();
    let active = [("ufw", ufw), ("firewalld", firewalld)];
    let active: Vec<_> = active.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    match active.is_empty() {
        false => Firewall::Managed(active),
        true if kernel.has(NET_ADMIN) => Firewall::NoTool,
        true => Firewall::Unknown,
    }
}

/// The output of a command that lists rules; `None` if there is no such command, or it fails.
fn rules(program: &str, arguments: &[&str]) -> Option<String> {
    // Where administrators' programs are, even if PATH is that of an ordinary user.
    let folders = ["/usr/sbin", "/sbin", "/usr/bin"];
    let path =
        folders.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())?;
    let output = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a rule set of nft or iptables-save does with incoming packets, as far as its words tell.
fn judge(rules: &str) -> Firewall {
    let mut in_input = false;
    let mut drops = false;
    for line in rules.lines().map(str::trim) {
        if line.starts_with("chain ") {
            in_input = false;
        }
        in_input |= line.contains("hook input");
        // "policy drop", or a last rule without a condition.
        drops |= in_input && (line.contains("policy drop") || matches!(line, "drop" | "reject"));
        drops |= line.starts_with(":INPUT DROP");
        drops |= matches!(line, "-A INPUT -j DROP" | "-A INPUT -j REJECT")
            || line.starts_with("-A INPUT -j REJECT --reject-with");
    }
    match (drops, rules.contains("4791")) {
        (false, false) => Firewall::Open,
        (true, false) => Firewall::Closed,
        (_, true) => Firewall::Mentioned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
        123: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 0\n\
        124: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 0\n\
        125: broken\n";

    #[test]
    fn sockets_of_the_port_are_found_in_the_table() {
        if cfg!(target_endian = "little") {
            let found = parse(UDP);
            assert_eq!(
                found,
                [Entry { address: Ipv4Addr::LOCALHOST.into(), user: 1000, inode: 4711 }]
            );
            assert_eq!(ip("00000000000000000000000001000000"), Some(Ipv6Addr::LOCALHOST.into()));
        }
        assert_eq!(ip("0100"), None);
    }

    #[test]
    fn ferroce_processes_are_recognized_by_their_unix_sockets() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00000000 0002 01 19 @ferroce/127.0.0.1/0-0/1\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20 /run/x\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 21\n";
        assert_eq!(ferroce_inodes(table), HashSet::from([19]));
    }

    #[test]
    fn rule_sets_are_judged_by_their_input_chain() {
        let nft = |policy: &str, rule: &str| {
            format!(
                "table inet filter {{\n\tchain forward {{\n\t\ttype filter hook forward priority filter; policy drop;\n\t}}\n\
                 \tchain input {{\n\t\ttype filter hook input priority filter; policy {policy};\n\t\t{rule}\n\t}}\n}}\n"
            )
        };
        assert_eq!(judge(""), Firewall::Open);
        assert_eq!(judge(&nft("accept", "")), Firewall::Open);
        assert_eq!(judge(&nft("drop", "tcp dport 22 accept")), Firewall::Closed);
        assert_eq!(judge(&nft("accept", "reject")), Firewall::Closed);
        assert_eq!(judge(&nft("drop", "udp dport 4791 accept")), Firewall::Mentioned);
        assert_eq!(
            judge(":INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT"),
            Firewall::Closed
        );
        assert_eq!(judge(":INPUT ACCEPT [0:0]"), Firewall::Open);
    }
}

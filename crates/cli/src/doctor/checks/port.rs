//! UDP port 4791: who holds it, and whether packets to it are let through.

use std::net::IpAddr;

use crate::doctor::finding::Finding;
use crate::doctor::system::{Firewall, Holder, System};

pub(super) fn check(system: &System) -> Vec<Finding> {
    let mut findings = vec![holders(system)];
    findings.extend(rxe(system));
    findings.push(firewall(system));
    findings
}

/// Whether a socket conflicts with those of our devices: it has one of their addresses, or all.
fn conflicts(system: &System, holder: &Holder) -> bool {
    let any = match holder.address {
        IpAddr::V4(ip) => ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    any || holder.address.is_loopback()
        || system.interfaces.iter().any(|interface| interface.addresses.contains(&holder.address))
}

fn name(holder: &Holder) -> String {
    match &holder.process {
        Some((process, program)) => {
            format!("process {process} ({program}) of user {} at {}", holder.user, holder.address)
        }
        None => format!("a process of user {} at {}", holder.user, holder.address),
    }
}

fn holders(system: &System) -> Finding {
    const ID: &str = "port.holders";
    let port = &system.port;
    let own = system.kernel.user;
    let others: Vec<_> = port.holders.iter().filter(|holder| conflicts(system, holder)).collect();
    if others.is_empty() {
        return Finding::ok(ID, "UDP port 4791 is free");
    }
    // Sockets without a process belong to the kernel: rdma_rxe opens one for each address family, for all addresses.
    let is_kernel = |holder: &&Holder| {
        let any = holder.address.is_ipv4() && holder.address == IpAddr::from([0; 4])
            || holder.address == IpAddr::from([0_u16; 8]);
        holder.process.is_none() && any && port.rxe_loaded
    };
    if others.iter().any(is_kernel) {
        let devices =
            if port.rxe.is_empty() { String::new() } else { format!(" ({})", port.rxe.join(", ")) };
        let remove = match port.rxe.first() {
            Some(device) => format!("`rdma link delete {device}`"),
            None => "`rmmod rdma_rxe`".to_owned(),
        };
        return Finding::problem(
            ID,
            format!("UDP port 4791 is in use by the kernel's rdma_rxe{devices}"),
        )
        .fix(format!(
            "{remove} as root, or run Ferroce in another network namespace: `unshare -rn`"
        ));
    }
    let foreign: Vec<_> = others.iter().filter(|holder| holder.user != own).collect();
    if let Some(holder) = foreign.first() {
        let more = match foreign.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        return Finding::problem(
            ID,
            format!("UDP port 4791 is in use by another user: {}{more}; Linux shares a port only among processes of one user", name(holder)),
        )
        .fix("run as that user, use an address it does not use (`ferroce run --device`), or a network namespace of your own");
    }
    let strangers: Vec<_> =
        others.iter().filter(|holder| !holder.is_ferroce && holder.process.is_some()).collect();
    if let Some(holder) = strangers.first() {
        return Finding::problem(
            ID,
            format!("UDP port 4791 is in use by a program that is not Ferroce: {}", name(holder)),
        )
        .fix("end that program, or use a device whose address it does not use");
    }
    let mut processes: Vec<_> = others
        .iter()
        .filter_map(|holder| holder.process.as_ref())
        .map(|(process, program)| format!("{process} ({program})"))
        .collect();
    processes.sort();
    processes.dedup();
    Finding::ok(
        ID,
        format!("UDP port 4791 is shared with your Ferroce processes: {}", processes.join(", ")),
    )
}

fn rxe(system: &System) -> Option<Finding> {
    let port = &system.port;
    if !port.rxe_loaded && port.rxe.is_empty() {
        return None;
    }
    let devices = match port.rxe.is_empty() {
        true => "without a device".to_owned(),
        false => format!("with {}", port.rxe.join(", ")),
    };
    Some(
        Finding::note("port.rxe", format!("the kernel's rdma_rxe is loaded, {devices}; while it has a device, it holds UDP port 4791 of all addresses of its network namespace"))
            .fix("Ferroce and rdma_rxe work on one host in different network namespaces, and with each other between hosts"),
    )
}

fn firewall(system: &System) -> Finding {
    const ID: &str = "port.firewall";
    const OPEN: &str =
        "allow UDP port 4791: `nft add rule inet filter input udp dport 4791 accept`, as root";
    match &system.port.firewall {
        Firewall::Open => Finding::ok(ID, "no rule of this host's packet filter drops incoming packets by default; those of other hosts and of the network were not checked"),
        Firewall::Closed => Finding::warning(ID, "this host's packet filter drops incoming packets and has no rule for UDP port 4791: other hosts cannot connect").fix(OPEN),
        Firewall::Mentioned => Finding::ok(ID, "this host's packet filter has a rule for port 4791; `nft list ruleset` shows it"),
        Firewall::Managed(managers) => {
            let commands = managers.iter().map(|manager| match *manager {
                "ufw" => "`ufw allow 4791/udp`",
                _ => "`firewall-cmd --permanent --add-port=4791/udp && firewall-cmd --reload`",
            });
            let names = managers.join(" and ");
            Finding::warning(ID, format!("{names} is active, and its rules are readable only by root: it may drop packets from other hosts"))
                .fix(format!("{}, as root", commands.collect::<Vec<_>>().join(" and ")))
        }
        Firewall::NoTool => Finding::note(
            ID,
            "the packet filter was not checked: neither nft nor iptables-save is installed; the self-test uses \
             addresses of this host, which filters usually let through",
        )
        .fix("if another host gets no response: install nftables, run `nft list ruleset`, and allow UDP port 4791"),
        Firewall::Unknown => Finding::note(ID, "the packet filter was not checked: its rules are readable only by root; the self-test uses addresses of this host, which filters usually let through")
            .fix("if another host gets no response: `sudo nft list ruleset`, and allow UDP port 4791"),
    }
}

//! Socket buffers and offloads, namespaces, shared memory, capture rights, and resource limits.

use ferroce_trace::render::units;

use crate::doctor::finding::Finding;
use crate::doctor::system::{Limit, NET_RAW, System};

/// Open files below which larger programs run out: a device uses about 10, a connection 1 or 2 descriptors.
const FEW_FILES: u64 = 1024;

pub(super) fn check(system: &System) -> Vec<Finding> {
    let mut findings = sockets(system);
    findings.extend(namespaces(system));
    findings.push(sharing(system));
    findings.push(capture(system));
    findings.extend(files(system));
    findings.extend(locked(system));
    findings
}

fn sockets(system: &System) -> Vec<Finding> {
    let facts = match &system.sockets {
        None => return Vec::new(),
        Some(Err(error)) => {
            return vec![
                Finding::problem("sockets.open", format!("cannot open a UDP socket: {error}"))
                    .fix("check seccomp rules and the network settings of the container"),
            ];
        }
        Some(Ok(facts)) => facts,
    };
    let kernel = &system.kernel;
    let mut findings = vec![
        buffer(
            "buffers.receive",
            "receive",
            "rmem_max",
            facts.receive_buffer,
            facts.receive_wanted,
            kernel.rmem_max,
        ),
        buffer(
            "buffers.send",
            "send",
            "wmem_max",
            facts.send_buffer,
            facts.send_wanted,
            kernel.wmem_max,
        ),
    ];
    let features = [
        (
            "offload.gso",
            facts.gso,
            "UDP segmentation offload (GSO)",
            "4.18",
            "one system call sends one packet instead of up to 64: bulk transfers are several times slower",
        ),
        (
            "offload.gro",
            facts.gro,
            "UDP receive offload (GRO)",
            "5.0",
            "each packet is received by itself: bulk transfers are slower",
        ),
        (
            "offload.steering",
            facts.steering,
            "steering of packets to the process that owns them",
            "4.5",
            "packets for other processes of this user are forwarded by the one that receives them: slower with several processes",
        ),
        (
            "offload.ecn",
            facts.marks,
            "reading the ECN marks of packets",
            "2.6",
            "congestion is not reported to senders",
        ),
    ];
    for (id, has, what, since, effect) in features {
        findings.push(match has {
            true => Finding::ok(id, format!("{what} works")),
            false => Finding::warning(id, format!("the kernel ({}) does not allow {what}: {effect}", kernel.release))
                .fix(format!("use Linux {since} or newer, and let seccomp and the container runtime allow the socket option")),
        });
    }
    findings
}

fn buffer(
    id: &'static str,
    which: &str,
    sysctl: &str,
    actual: usize,
    wanted: usize,
    limit: Option<u64>,
) -> Finding {
    // The kernel doubles the requested size for its own overhead (socket(7)).
    let (usable, wished) = (actual as u64 / 2, wanted as u64 / 2);
    let [usable_text, wished_text] = [usable, wished].map(binary);
    if actual >= wanted {
        return Finding::ok(
            id,
            format!("{which} buffers have {usable_text}, as much as Ferroce asks for"),
        );
    }
    let limit = limit.map_or(String::new(), |limit| format!(" (net.core.{sysctl}={limit})"));
    let effect = match which {
        "receive" => "so less data is in flight to this host, and bursts of UC and UD may be lost",
        _ => "so a sender waits for the interface more often",
    };
    Finding::warning(id, format!("{which} buffers have {usable_text} of {wished_text}{limit}, {effect}"))
        .fix(format!("`sysctl -w net.core.{sysctl}={wished}`, as root; to keep it, write it to /etc/sysctl.d/ferroce.conf"))
}

/// Bytes in binary units, as sysctl values and options are usually given.
fn binary(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ if bytes % 1_048_576 == 0 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn namespaces(system: &System) -> Vec<Finding> {
    let network = match system.kernel.first_network {
        Some(true) => Finding::ok("namespaces.network", "in the network namespace of the host"),
        Some(false) => Finding::note("namespaces.network", "in a network namespace of its own: only its interfaces and addresses are devices, and processes outside of it are other hosts")
            .fix("to use the host's interfaces in a container, start it with host networking (`docker run --network host`)"),
        None => Finding::note("namespaces.network", "whether this is the host's network namespace was not checkable: /proc/1/ns is not readable for this process"),
    };
    let user = system.kernel.first_user.map(|first| match first {
        true => Finding::ok("namespaces.user", "in the user namespace of the host"),
        false => Finding::note(
            "namespaces.user",
            "in a user namespace: root here has no rights over the host's interfaces and limits",
        ),
    });
    [Some(network), user].into_iter().flatten().collect()
}

fn sharing(system: &System) -> Finding {
    const ID: &str = "sharing.memory";
    if system.variable("FERROCE_LOCAL") == Some("sockets") {
        return Finding::note(ID, "FERROCE_LOCAL=sockets: packets between processes of this host go through sockets, which is slower")
            .fix("unset FERROCE_LOCAL unless a packet sniffer has to see them");
    }
    match &system.sharing_error {
        None => Finding::ok(ID, "Unix sockets and shared memory (memfd) work: packets between processes of this user on this host go through memory"),
        Some(error) => Finding::warning(ID, format!("memory cannot be shared between processes: {error}; packets between them go through sockets, which is slower"))
            .fix("allow memfd_create, abstract Unix sockets and epoll in the seccomp rules of the container"),
    }
}

fn capture(system: &System) -> Finding {
    const ID: &str = "capture.rights";
    match system.kernel.has(NET_RAW) {
        true => Finding::ok(ID, "CAP_NET_RAW: packets of other programs and hosts can be captured from an interface as well"),
        false => Finding::note(ID, "no CAP_NET_RAW: --capture records all packets of Ferroce processes, but tcpdump and capturing from an interface need it")
            .fix("`sudo tcpdump -i eth0 -w roce.pcap udp port 4791`, then `ferroce analyze roce.pcap`"),
    }
}

fn files(system: &System) -> Option<Finding> {
    const ID: &str = "limits.files";
    let Limit { soft, hard } = system.kernel.files?;
    Some(match soft {
        Some(soft) if soft < FEW_FILES => {
            let hard = hard.map_or_else(|| "unlimited".to_owned(), |hard| hard.to_string());
            Finding::warning(ID, format!("only {soft} open files per process (hard limit {hard}): a device uses about 10, and each completion or event channel one more"))
                .fix("`ulimit -n 4096` in the shell that starts the program; the hard limit is in /etc/security/limits.conf")
        }
        Some(soft) => Finding::ok(ID, format!("{} open files per process", units::count(soft))),
        None => Finding::ok(ID, "any number of open files per process"),
    })
}

/// Ferroce registers memory without locking it. Some programs check the limit themselves.
fn locked(system: &System) -> Option<Finding> {
    const ID: &str = "limits.memlock";
    let Limit { soft, .. } = system.kernel.locked?;
    Some(match soft {
        Some(soft) if soft < 1 << 20 => Finding::note(ID, format!("locked memory is limited to {}: enough for Ferroce, which locks none, but some RDMA programs check the limit and warn", binary(soft)))
            .fix("if a program complains: `ulimit -l unlimited`, or `docker run --ulimit memlock=-1`"),
        Some(soft) => Finding::ok(ID, format!("locked memory is limited to {}: Ferroce locks none", binary(soft))),
        None => Finding::ok(ID, "locked memory is not limited, and Ferroce locks none"),
    })
}

#[cfg(test)]
mod tests {
    use super::binary;

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!([binary(500), binary(212_992), binary(8 << 20)], ["500 B", "208 KiB", "8 MiB"]);
        assert_eq!(binary(3 << 19), "1.5 MiB");
    }
}

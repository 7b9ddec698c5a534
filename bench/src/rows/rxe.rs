//! The kernel's rdma_rxe, in a virtual machine.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::parse;
use crate::program::{Program, is_installed, package};
use crate::row::{Bar, Line, Row, Side};
use crate::sandbox::Network;

pub(super) const NAME: &str = "rxe";

/// Starts the machine, and runs a command beside it.
const PEER: &str = "tests/peer/peer";

/// Downloads and builds what the machine boots, once.
const IMAGE: &str = "tests/peer/image";

pub(super) fn rows() -> Vec<Row> {
    let folder = std::env::current_exe().ok();
    let folder = folder.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let client =
        format!("{PEER} with --memory 768 --processors 2 bench/rxe {}", folder.to_string_lossy());
    let side = Side::alone("machine", Program::plain(client), parse::rxe::figures);
    let line = |name, figure, unit, other| {
        Line::new(name, figure, unit, "machine").against_figure("rdma_rxe", other)
    };
    vec![Row {
        name: NAME,
        title: "perftest on Ferroce against perftest on the kernel's rdma_rxe, in one virtual machine",
        sides: vec![side.on(Network::Machine)],
        lines: vec![
            line("64 KiB WRITEs", "ferroce bandwidth", "GB/s", "rxe bandwidth")
                .bar(Bar::RatioAtLeast(1.0)),
            line("64 B WRITEs", "ferroce rate", "M/s", "rxe rate").bar(Bar::RatioAtLeast(1.0)),
            line("64 B SEND latency, median", "ferroce latency", "µs", "rxe latency")
                .bar(Bar::RatioAtMost(1.0)),
            line("64 KiB WRITEs, shared memory", "memory bandwidth", "GB/s", "rxe bandwidth"),
            line("64 B WRITEs, shared memory", "memory rate", "M/s", "rxe rate"),
            line("64 B SEND latency, median, shared memory", "memory latency", "µs", "rxe latency"),
        ],
        note: "The machine has two processors and Debian's kernel. Where there is no KVM it is emulated, and slow: only the \
               ratios mean something. Both ends are in it: rdma_rxe turns \
               their packets around inside the kernel, Ferroce sends them through sockets (`--wire`) and, as users get it, through \
               shared memory. bench/rxe has the programs' command lines.",
    }]
}

/// Why the machine cannot be started.
pub(super) fn unavailable() -> Option<String> {
    if !Path::new(PEER).is_file() {
        return Some("run it in the root of the repository".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("virtual machines on a network of their own need root".to_owned());
    }
    let mut tools = ["qemu-system-x86_64", "ethtool", "dumpcap"].into_iter();
    if let Some(tool) = tools.find(|tool| !is_installed(tool)) {
        return Some(format!("{tool} is not installed: apt-get install {}", package(tool)));
    }
    let image = Command::new(IMAGE).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match image {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let reason = said.lines().next_back().unwrap_or("no reason given").to_owned();
            Some(format!("the machine's image cannot be built: {reason}"))
        }
        Err(error) => Some(format!("{IMAGE}: {error}")),
    }
}

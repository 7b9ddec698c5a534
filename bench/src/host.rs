//! What the figures depend on: kernel, processors, versions, date.

use std::fs;
use std::process::Command;

/// Debian packages of the peers.
const PACKAGES: [&str; 8] = [
    "perftest",
    "sockperf",
    "iperf3",
    "ucx-utils",
    "libfabric-bin",
    "qperf",
    "librdmacm1",
    "qemu-system-x86",
];

/// Processes that ran or waited for a processor in the last minute, on average.
pub(crate) fn load() -> f64 {
    let text = read("/proc/loadavg");
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

/// Name and value of each property.
pub(crate) fn properties() -> Vec<(String, String)> {
    let mut all = vec![
        ("date".to_owned(), run("date", &["-u", "+%Y-%m-%d"])),
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease")),
        ("processors".to_owned(), processors()),
        ("rustc".to_owned(), run("rustc", &["--version"])),
        ("net.core.rmem_max".to_owned(), read("/proc/sys/net/core/rmem_max")),
        ("TCP congestion control".to_owned(), read("/proc/sys/net/ipv4/tcp_congestion_control")),
    ];
    let version = |name: &str| run("dpkg-query", &["-W", "-f", "${Version}", name]);
    all.extend(PACKAGES.iter().map(|name| ((*name).to_owned(), version(name))));
    all
}

fn processors() -> String {
    std::thread::available_parallelism()
        .map_or_else(|_| "unknown".into(), |count| count.to_string())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let output = output.filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "not installed".to_owned())
}

//! The host of the client: what the figures depend on besides the network.

use std::fs;
use std::thread;

use serde::Serialize;

/// The host of the client.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Host {
    pub(super) processor: Option<String>,
    /// Logical processors that this process may use.
    pub(super) processors: usize,
    pub(super) kernel: Option<String>,
}

impl Host {
    pub(super) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Self {
            processor: model.map(|text| text.trim_start_matches([' ', '\t', ':']).to_owned()),
            processors: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.map(|text| text.trim().to_owned()),
        }
    }

    /// One line.
    pub(super) fn line(&self) -> String {
        let processor = self.processor.as_deref().unwrap_or("unknown processor");
        let kernel = self.kernel.as_deref().unwrap_or("unknown");
        let plural = if self.processors == 1 { "" } else { "s" };
        format!("{processor}, {} core{plural}, Linux {kernel}", self.processors)
    }
}

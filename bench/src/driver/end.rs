//! One end of the connections: a device, memory, and any number of QPs.

use std::fs;
use std::time::Instant;

use clap::Args;
use ferroce::{
    AccessFlags, Capabilities, CompletionChannel, CompletionQueue, Context, Device, MemoryRegion,
    Options, ProtectionDomain, Qpn, QueuePair, QueuePairOptions, ServiceType,
};

use super::usage::resident_kib;
use crate::sysctl::RMEM_MAX;

/// What both ends have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct Setup {
    /// TCP port of the control connection
    #[arg(long, default_value_t = 7000)]
    pub(super) port: u16,
    /// Number of QPs
    #[arg(long, default_value_t = 1)]
    pub(super) qps: usize,
    /// Bytes of memory that all QPs share
    #[arg(long, default_value_t = 1 << 26)]
    pub(super) footprint: usize,
    /// Size of the sockets' receive buffers where net.core.rmem_max is another
    #[arg(long)]
    pub(super) receive_buffer: Option<usize>,
    /// Number of shards of the device
    #[arg(long)]
    pub(super) shards: Option<u8>,
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) context: Context,
    pub(super) cq: CompletionQueue,
    pub(super) region: MemoryRegion,
    pub(super) qps: Vec<QueuePair>,
    _pd: ProtectionDomain,
    /// Resident memory before the first QP.
    resident: f64,
    /// Seconds to create all QPs.
    created: f64,
}

/// What a QP costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Creating and connecting one, in µs.
    pub(super) microseconds: f64,
    /// Resident memory of one, in KiB.
    pub(super) kib: f64,
}

impl End {
    /// Creates device, memory and QPs with room for `depth` sends each. All pages of the memory are touched.
    pub(super) fn new(setup: &Setup, depth: u32) -> Result<Self, String> {
        Self::with_receives(setup, depth, 1)
    }

    /// As [`End::new`], with room for receives.
    pub(super) fn with_receives(setup: &Setup, depth: u32, receives: u32) -> Result<Self, String> {
        let mut options = Options { shards: setup.shards, ..Options::from_env().map_err(text)? };
        if let Some(bytes) = setup.receive_buffer.filter(|bytes| !is_limit(*bytes)) {
            options.sockets.receive_buffer = bytes;
            options.sockets.force_buffers = false;
        }
        let device = Device::named("lo").map_err(text)?;
        let context = Context::open(&device, &options).map_err(text)?;
        let pd = context.protection_domain();
        let remote = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let access = AccessFlags::LOCAL_WRITE | remote;
        let region = pd.allocate(setup.footprint, access).map_err(text)?;
        let page = vec![1; 4096];
        for offset in (0..setup.footprint).step_by(page.len()) {
            let length = page.len().min(setup.footprint - offset);
            region.write(offset, &page[..length]).map_err(text)?;
        }
        let channel = CompletionChannel::new().map_err(text)?;
        let entries = setup.qps * (depth + receives) as usize;
        let cq = context.completion_queue(entries, Some(&channel)).map_err(text)?;
        let capabilities = Capabilities {
            max_send_wr: depth,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
        let options = QueuePairOptions { capabilities, ..options };
        let (resident, start) = (resident_kib(), Instant::now());
        let qps: Result<Vec<_>, _> = (0..setup.qps).map(|_| pd.queue_pair(&options)).collect();
        let qps = qps.map_err(text)?;
        let created = start.elapsed().as_secs_f64();
        Ok(Self { context, cq, region, qps, _pd: pd, resident, created })
    }

    /// The QPNs, as a line.
    pub(super) fn numbers(&self) -> String {
        let numbers: Vec<_> = self.qps.iter().map(|qp| qp.number().0.to_string()).collect();
        numbers.join(" ")
    }

    /// Connects each QP to the peer's with the same index, and returns what a QP cost.
    pub(super) fn connect(&self, peers: &[u32]) -> Result<Cost, String> {
        let gid = self.context.device().gids().first().ok_or("the device has no GID")?.gid;
        let start = Instant::now();
        for (qp, number) in self.qps.iter().zip(peers) {
            qp.connect_to(0, gid, Qpn(*number)).map_err(text)?;
        }
        let count = self.qps.len() as f64;
        let microseconds = (self.created + start.elapsed().as_secs_f64()) * 1e6 / count;
        Ok(Cost { microseconds, kib: (resident_kib() - self.resident) / count })
    }
}

/// Whether this is the limit of a receive buffer. A namespace may not show it.
fn is_limit(bytes: usize) -> bool {
    let limit = fs::read_to_string(RMEM_MAX).unwrap_or_default();
    limit.trim() == bytes.to_string()
}

/// The text of an error.
pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

//! The self-test: a real RC connection over each device, with verified WRITE and READ.
//!
//! Both ends are in this process, but have the device open separately, as two processes do: with sockets, slots and
//! memory of their own. Each test ends within a few seconds, whatever happens.

use std::time::{Duration, Instant};

use ferroce::{
    AccessFlags, AckTimeout, AddressVector, CompletionChannel, CompletionQueue, Context, Data,
    Device, Local, MemoryRegion, Operation, Options, Psn, Qpn, QueuePair, QueuePairAttributes,
    QueuePairOptions, RnrRetry, RnrTimer, SendRequest, ServiceType, SocketOptions, Status, WorkId,
};
use ferroce_trace::render::units;

use super::finding::Finding;

/// Bytes of the WRITE and the READ: several packets at every path MTU.
const BYTES: usize = 64 << 10;

/// Time for one operation.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Tests each address of a device over sockets, and the first one through shared memory.
pub(super) fn run(device: &Device) -> Vec<Finding> {
    let mut findings = Vec::new();
    for index in 0..device.gids().len().min(8) {
        findings.push(test(device, index as u8, Local::Sockets));
    }
    if !device.gids().is_empty() {
        findings.push(test(device, 0, Local::Memory));
    }
    findings
}

fn test(device: &Device, index: u8, local: Local) -> Finding {
    let (id, way) = match local {
        Local::Memory => ("selftest.memory", "shared memory"),
        _ => ("selftest.sockets", "sockets"),
    };
    let address = device.gids().get(usize::from(index)).map(|entry| entry.address.ip());
    let address = address.map_or_else(String::new, |ip| ip.to_string());
    let finding = match exchange(device, index, local) {
        Ok(Outcome { took, shares }) if shares == (local == Local::Memory) => Finding::ok(
            id,
            format!(
                "RC at {address} over {way}: WRITE and READ of {} KiB verified in {}",
                BYTES >> 10,
                units::duration(took.as_nanos() as u64)
            ),
        ),
        Ok(_) => Finding::warning(
            id,
            format!("RC at {address} works, but packets did not go through {way}: slower between processes of this host"),
        )
        .fix("see the finding sharing.memory; FERROCE_LOG=debug shows why"),
        Err(failure) => Finding::problem(id, format!("RC at {address} over {way} does not work: {}", failure.what))
            .fix(failure.fix),
    };
    finding.about(device.name())
}

/// What a test showed.
struct Outcome {
    took: Duration,
    /// Whether the packets went through shared memory.
    shares: bool,
}

struct Failure {
    what: String,
    fix: String,
}

impl Failure {
    fn new(what: impl Into<String>, fix: &str) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }
}

/// A library call failed. Its message usually names the remedy after a semicolon.
impl<E: Into<ferroce::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let text = error.into().to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, "see the findings above"));
        Self::new(what, fix)
    }
}

struct End {
    region: MemoryRegion,
    completions: CompletionQueue,
    queue_pair: QueuePair,
}

impl End {
    fn open(device: &Device, options: &Options) -> Result<Self, Failure> {
        let context = Context::open(device, options)?;
        let pd = context.protection_domain();
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let region = pd.allocate(2 * BYTES, access)?;
        let channel = CompletionChannel::new()?;
        let completions = context.completion_queue(16, Some(&channel))?;
        let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
        let queue_pair = pd.queue_pair(&options)?;
        Ok(Self { region, completions, queue_pair })
    }

    /// Brings the QP to RTS.
    fn connect(&self, index: u8, peer: Qpn) -> Result<(), Failure> {
        let context = self.completions.context();
        let gid = context.device().gids().get(usize::from(index)).map(|entry| entry.gid);
        let destination = gid.ok_or_else(|| {
            Failure::new(
                "the address has been removed",
                "repeat the check when the network is configured",
            )
        })?;
        let path =
            AddressVector { port: 1, source_index: index, destination, ..AddressVector::default() };
        let all = QueuePairAttributes {
            access: Some(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ),
            partition: Some(0),
            port: Some(1),
            path: Some(path),
            path_mtu: Some(context.mtu()),
            destination: Some(peer),
            receive_psn: Some(Psn(0)),
            send_psn: Some(Psn(0)),
            max_rd_atomic: Some(4),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: RnrTimer::from_code(12),
            // 67 ms, up to 8 times.
            timeout: Some(AckTimeout(14)),
            retry_count: Some(7),
            rnr_retry: Some(RnrRetry(7)),
            ..QueuePairAttributes::default()
        };
        Ok(self.queue_pair.bring_up(&all)?)
    }

    fn complete(&self, name: &str, operation: Operation, offset: usize) -> Result<(), Failure> {
        let data = Data::SgList(self.region.sge(offset as u64, BYTES as u32).into());
        self.queue_pair.post_send(SendRequest::new(WorkId(1), operation, data))?;
        match self.completions.wait_until(Instant::now() + TIMEOUT)? {
            Some(done) if done.status == Status::Success => Ok(()),
            Some(done) => Err(Failure::new(
                format!("{name} failed: {:?}", done.status),
                "check the packet filter of this host for UDP port 4791, and repeat with FERROCE_LOG=debug",
            )),
            None => Err(Failure::new(
                format!("{name} did not complete within {} s", TIMEOUT.as_secs()),
                "check the packet filter of this host for UDP port 4791, and repeat with FERROCE_LOG=debug",
            )),
        }
    }
}

fn exchange(device: &Device, index: u8, local: Local) -> Result<Outcome, Failure> {
    let options = Options { local, ..Options::default() };
    // Different options give the second end a device of its own.
    let sockets =
        SocketOptions { send_buffer: options.sockets.send_buffer - 4096, ..options.sockets };
    let one = End::open(device, &options)?;
    let other = End::open(device, &Options { sockets, ..options })?;
    one.connect(index, other.queue_pair.number())?;
    other.connect(index, one.queue_pair.number())?;
    let start = Instant::now();
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 31 + (at >> 8)) as u8).collect();
    let bounds =
        |error: ferroce::CopyError| Failure::new(error.to_string(), "report this as a bug");
    one.region.write(0, &bytes).map_err(bounds)?;
    let remote = other.region.remote(0);
    one.complete("WRITE", Operation::Write { remote, immediate: None }, 0)?;
    one.complete("READ", Operation::Read { remote }, BYTES)?;
    let took = start.elapsed();
    for (region, offset, name) in [(&other.region, 0, "WRITE"), (&one.region, BYTES, "READ")] {
        let mut found = vec![0; BYTES];
        region.read(offset, &mut found).map_err(bounds)?;
        if found != bytes {
            return Err(Failure::new(
                format!("the bytes of the {name} differ"),
                "report this as a bug, with the output of `ferroce doctor --json`",
            ));
        }
    }
    let shares = one.queue_pair.shares_memory() && other.queue_pair.shares_memory();
    Ok(Outcome { took, shares })
}

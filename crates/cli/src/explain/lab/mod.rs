//! The examples: two QPs on the loopback, connected by real packets that a capture records.
//!
//! A is the requester, B the responder. Both use one device, so that the capture has the packets in the order in which they
//! were sent, and every packet goes through sockets. Timeouts are short; a run takes some milliseconds.

mod connection;
mod failures;
mod forge;
mod scenario;
mod setup;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ferroce::{
    AccessFlags, CompletionChannel, CompletionKind, CompletionQueue, Context, Data, Device, Error,
    Local, MemoryRegion, Operation, Options, ProtectionDomain, QueuePair, QueuePairOptions,
    ReceiveRequest, SendRequest, ServiceType, Statistics, Status, WorkCompletion, WorkId,
};
use ferroce_trace::analysis::{self, FileReport};

#[cfg(test)]
pub(super) use scenario::SCENARIOS;
pub(super) use scenario::Scenario;
use setup::Setup;

use super::status;

/// Bytes of each end's memory.
const MEMORY: usize = 16 << 10;

/// How long to wait for something that must come.
const PATIENCE: Duration = Duration::from_secs(5);

const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::MW_BIND)
    .union(AccessFlags::FLUSH_GLOBAL);

/// Why an example could not be produced.
pub(super) type Outcome<T> = Result<T, String>;

/// What a run showed.
#[derive(Debug)]
pub(super) struct Record {
    /// What the two programs did, in words.
    pub(super) steps: Vec<String>,
    /// The completions, as `(end, status)`.
    pub(super) completions: Vec<(char, Status)>,
    pub(super) report: FileReport,
    /// The capture file.
    pub(super) capture: Vec<u8>,
    /// The QPs of the example: packets of other programs do not count.
    pub(super) queue_pairs: Vec<u32>,
    /// The counters of the device before and after.
    pub(super) counters: (Statistics, Statistics),
}

/// A file that is removed when it is no longer needed.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One end of the connection.
struct End {
    name: char,
    context: Context,
    pd: ProtectionDomain,
    region: MemoryRegion,
    completions: CompletionQueue,
    queue_pair: QueuePair,
    before: Statistics,
}

/// A running example.
struct Lab {
    ends: [End; 2],
    steps: Vec<String>,
    seen: Vec<(char, Status)>,
    capture: Scratch,
    /// Further QPs whose packets belong to the example.
    others: Vec<u32>,
}

fn text(error: impl Into<Error>) -> String {
    error.into().to_string()
}

/// The options of the device.
fn options(capture: &Scratch) -> Options {
    Options { local: Local::Sockets, capture: Some(capture.0.clone()), ..Options::default() }
}

fn device() -> Outcome<(Device, u8)> {
    Device::with_address(([127, 0, 0, 1], 0).into()).map_err(text)
}

fn scratch() -> Outcome<Scratch> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ferroce-explain-{}-{number}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    crate::capture::create_new_private(&path)
        .map_err(|error| format!("cannot write the capture {}: {error}", path.display()))?;
    Ok(Scratch(path))
}

impl End {
    fn open(name: char, device: &Device, options: &Options, service: ServiceType) -> Outcome<Self> {
        let context = Context::open(device, options).map_err(text)?;
        let pd = context.protection_domain();
        let region = pd.allocate(MEMORY, ACCESS).map_err(text)?;
        let channel = CompletionChannel::new().map_err(text)?;
        let completions = context.completion_queue(64, Some(&channel)).map_err(text)?;
        let queue_pair =
            pd.queue_pair(&QueuePairOptions::new(service, &completions)).map_err(text)?;
        let before = context.statistics();
        Ok(Self { name, context, pd, region, completions, queue_pair, before })
    }
}

impl Lab {
    /// Opens both ends and connects them.
    fn start(setup: &Setup) -> Outcome<Self> {
        let lab = Self::unconnected(setup)?;
        setup.connect(&lab)?;
        Ok(lab)
    }

    fn unconnected(setup: &Setup) -> Outcome<Self> {
        let capture = scratch()?;
        let (device, _) = device()?;
        let options = Options { faults: setup.faults, ..options(&capture) };
        let ends = [
            End::open('A', &device, &options, setup.service)?,
            End::open('B', &device, &options, setup.service)?,
        ];
        Ok(Self { ends, steps: Vec::new(), seen: Vec::new(), capture, others: Vec::new() })
    }

    fn say(&mut self, step: impl Into<String>) {
        self.steps.push(step.into());
    }

    /// Posts a request of A with `length` bytes from `offset` of its memory.
    fn post(&mut self, operation: Operation, offset: u64, length: u32) -> Outcome<()> {
        let data = Data::SgList(self.ends[0].region.sge(offset, length).into());
        self.post_data(0, operation, data)
    }

    fn post_data(&mut self, end: usize, operation: Operation, data: Data) -> Outcome<()> {
        let name = describe(&operation);
        let bytes = match data.len() {
            0 => String::new(),
            bytes => format!(", {bytes} bytes"),
        };
        let request = SendRequest::new(WorkId(1), operation, data);
        self.ends[end].queue_pair.post_send(request).map_err(text)?;
        let end = self.ends[end].name;
        self.say(format!("{end} posts {name}{bytes}"));
        Ok(())
    }

    /// Posts a receive buffer at B.
    fn receive(&mut self, length: u32) -> Outcome<()> {
        let sg_list = self.ends[1].region.sge(8 << 10, length).into();
        let request = ReceiveRequest { id: WorkId(2), sg_list };
        self.ends[1].queue_pair.post_receive(request).map_err(text)?;
        self.say(format!("B posts a receive buffer of {length} bytes"));
        Ok(())
    }

    /// Waits for a completion.
    fn complete(&mut self, end: usize) -> Outcome<WorkCompletion> {
        let deadline = Instant::now() + PATIENCE;
        let found = self.ends[end].completions.wait_until(deadline).map_err(text)?;
        let name = self.ends[end].name;
        let done = found.ok_or_else(|| format!("{name} got no completion within {PATIENCE:?}"))?;
        let mut line =
            format!("{name} completes {}: {}", kind(done.kind), status::words(done.status));
        if done.status == Status::Success && done.length > 0 {
            line += &format!(", {} bytes", done.length);
        }
        if let Some(immediate) = done.immediate {
            line += &format!(", immediate {:#x}", immediate.0);
        }
        if let Some(key) = done.invalidated {
            line += &format!(", invalidated rkey {:#010x}", key.0);
        }
        self.say(line);
        self.seen.push((name, done.status));
        Ok(done)
    }

    /// Waits until a counter has grown.
    fn counted(&self, counter: &str) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        let end = &self.ends[0];
        let value = |statistics: Statistics| {
            statistics.iter().find(|(name, _)| *name == counter).map_or(0, |(_, count)| count)
        };
        while value(end.context.statistics()) <= value(end.before) {
            if Instant::now() > deadline {
                return Err(format!("{counter} did not grow within {PATIENCE:?}"));
            }
            // Drives the device, and returns when there is nothing to do.
            let moment = Instant::now() + Duration::from_millis(1);
            end.completions.wait_until(moment).map_err(text)?;
        }
        Ok(())
    }

    /// Ends the run: reads the capture and the counters.
    fn finish(self) -> Outcome<Record> {
        let mut queue_pairs: Vec<_> =
            self.ends.iter().map(|end| end.queue_pair.number().0).collect();
        queue_pairs.extend(&self.others);
        let counters = (self.ends[0].before, self.ends[0].context.statistics());
        self.ends[0].context.flush_capture();
        record(&self.capture, self.steps, self.seen, queue_pairs, counters)
    }
}

fn record(
    capture: &Scratch,
    steps: Vec<String>,
    completions: Vec<(char, Status)>,
    queue_pairs: Vec<u32>,
    counters: (Statistics, Statistics),
) -> Outcome<Record> {
    let failure = |error: std::io::Error| format!("cannot read the capture: {error}");
    let options =
        analysis::Options { packet_list: true, max_packet_rows: 1000, ..Default::default() };
    let file = File::open(&capture.0).map_err(failure)?;
    let report = analysis::analyze("example", file, &options, &mut |_| {});
    let bytes = std::fs::read(&capture.0).map_err(failure)?;
    Ok(Record { steps, completions, report, capture: bytes, queue_pairs, counters })
}

/// The operation with the names of libibverbs.
fn describe(operation: &Operation) -> String {
    match operation {
        Operation::Send { immediate: Some(immediate), .. } => {
            format!("SEND_WITH_IMM (immediate {:#x})", immediate.0)
        }
        Operation::Send { invalidate: Some(key), .. } => {
            format!("SEND_WITH_INV (rkey {:#010x})", key.0)
        }
        Operation::Write { remote, immediate: Some(immediate) } => {
            format!(
                "RDMA_WRITE_WITH_IMM (rkey {:#010x}, immediate {:#x})",
                remote.key.0, immediate.0
            )
        }
        Operation::Write { remote, .. } => format!("RDMA_WRITE (rkey {:#010x})", remote.key.0),
        Operation::Read { remote } => format!("RDMA_READ (rkey {:#010x})", remote.key.0),
        Operation::CompareSwap { compare, swap, .. } => {
            format!("ATOMIC_CMP_AND_SWP (compare {compare}, swap {swap})")
        }
        Operation::FetchAdd { add, .. } => format!("ATOMIC_FETCH_AND_ADD (add {add})"),
        Operation::LocalInvalidate { key } => format!("LOCAL_INV (rkey {:#010x})", key.0),
        Operation::Bind(bind) => format!("BIND_MW (new rkey {:#010x})", bind.key.0),
        other => kind(CompletionKind::from(other)).to_owned(),
    }
}

/// The opcode of a completion with the names of libibverbs.
fn kind(kind: CompletionKind) -> &'static str {
    match kind {
        CompletionKind::Send => "SEND",
        CompletionKind::Write => "RDMA_WRITE",
        CompletionKind::Read => "RDMA_READ",
        CompletionKind::CompareSwap => "ATOMIC_CMP_AND_SWP",
        CompletionKind::FetchAdd => "ATOMIC_FETCH_AND_ADD",
        CompletionKind::Flush => "FLUSH",
        CompletionKind::AtomicWrite => "ATOMIC_WRITE",
        CompletionKind::LocalInvalidate => "LOCAL_INV",
        CompletionKind::Bind => "BIND_MW",
        CompletionKind::Receive => "RECV",
        CompletionKind::ReceiveWriteImmediate => "RECV_RDMA_WITH_IMM",
    }
}

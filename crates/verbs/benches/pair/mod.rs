//! Two connected processes on the loopback, for the benchmarks.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ferroce::*;

/// This program as the server, with its input and output.
pub(crate) fn server() -> (Child, ChildStdin, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env("FERROCE_BENCH_ROLE", "server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, input, lines)
}

/// An end of the connection.
pub(crate) struct End {
    pub(crate) completions: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) region: MemoryRegion,
    pub(crate) context: Context,
}

/// Creates an end with memory of this size.
pub(crate) fn end(bytes: usize) -> End {
    let context = Context::open(&Device::named("lo").unwrap(), &Options::default()).unwrap();
    let pd = context.protection_domain();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let region = pd.allocate(bytes, access).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(1024, Some(&channel)).unwrap();
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
    let queue_pair = pd.queue_pair(&options).unwrap();
    End { completions, queue_pair, region, context }
}

/// Returns the QPN, address and key for the peer, as a line of text.
pub(crate) fn introduce(end: &End) -> String {
    let remote = end.region.remote(0);
    format!("{} {} {}", end.queue_pair.number().0, remote.address.0, remote.key.0)
}

/// Connects, and returns the address of the peer's memory.
pub(crate) fn connect(end: &End, line: &str) -> RemoteAddress {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    let mut next = || numbers.next().unwrap();
    let (number, address, key) = (next() as u32, next(), next() as u32);
    let gid = end.context.device().gids()[0].gid;
    let all = QueuePairAttributes {
        access: Some(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ),
        partition: Some(0),
        port: Some(1),
        path: Some(AddressVector { port: 1, destination: gid, ..AddressVector::default() }),
        path_mtu: PathMtu::from_bytes(4096),
        destination: Some(Qpn(number)),
        receive_psn: Some(Psn(0)),
        send_psn: Some(Psn(0)),
        max_rd_atomic: Some(16),
        max_dest_rd_atomic: Some(16),
        min_rnr_timer: RnrTimer::from_code(12),
        timeout: Some(AckTimeout(14)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry(7)),
        ..QueuePairAttributes::default()
    };
    for (from, to) in [
        (State::Reset, State::Init),
        (State::Init, State::ReadyToReceive),
        (State::ReadyToReceive, State::ReadyToSend),
    ] {
        let mut change = QueuePairAttributes { state: Some(to), ..all };
        let rule = rule(ServiceType::ReliableConnection, from, to).unwrap();
        change.clear(change.attributes() - rule.required - AttributeMask::STATE);
        end.queue_pair.modify(&change).unwrap();
    }
    RemoteAddress { address: VirtualAddress(address), key: RKey(key) }
}

/// WRITEs from an offset to the same offset of the peer.
pub(crate) fn write(end: &End, remote: RemoteAddress, offset: u64, length: usize, signaled: bool) {
    let remote = RemoteAddress { address: VirtualAddress(remote.address.0 + offset), ..remote };
    let operation = Operation::Write { remote, immediate: None };
    let data = Data::SgList(end.region.sge(offset, length as u32).into());
    let request = SendRequest { signaled, ..SendRequest::new(WorkId(0), operation, data) };
    end.queue_pair.post_send(request).unwrap();
}

//! What processes have published, as read: for output, so that all types serialize to JSON.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Serialize, Serializer};

use crate::histogram;

/// All processes that publish, at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When it was read: nanoseconds of `CLOCK_MONOTONIC`, for rates between two snapshots.
    pub time_ns: u64,
    /// The processes, by their IDs.
    pub processes: Vec<Process>,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Its ID.
    pub pid: u32,
    /// The name of its executable, as in `ps -o comm`.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Its user.
    pub uid: u32,
    /// The inode of its network namespace.
    pub network_namespace: u64,
    /// Its state: the letter that ps(1) shows, `T` for a stopped process.
    pub state: char,
    /// How long ago it started, in seconds.
    pub age_seconds: f64,
    /// The version of the library.
    pub library: String,
    /// The format that it publishes is not known: it uses another version of the library, and there are no devices here.
    pub unknown_format: bool,
    /// Objects that it could not publish, for want of memory.
    pub unpublished: u64,
    /// Objects that were being written each time they were read. The process was stopped or killed in the middle.
    pub inconsistent: u64,
    /// Packets that the kernel dropped because a receive buffer of the process was full.
    pub socket_drops: u64,
    /// Why a call of the process was refused last.
    pub last_reason: Option<Reason>,
    /// Its open devices.
    pub devices: Vec<Device>,
}

/// An open device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    /// The name.
    pub name: String,
    /// The first address.
    pub address: Option<IpAddr>,
    /// Whether the port is active.
    pub active: bool,
    /// The largest path MTU in bytes.
    pub mtu: u64,
    /// The number of protection domains.
    pub pds: u64,
    /// The number of memory windows.
    pub memory_windows: u64,
    /// The bytes of all memory regions.
    pub memory_bytes: u64,
    /// What it refused or dropped last that belongs to no queue pair.
    pub last_reason: Option<Reason>,
    /// The counters, by name.
    pub counters: Counters,
    /// The queue pairs.
    pub queue_pairs: Vec<QueuePair>,
    /// The completion queues.
    pub completion_queues: Vec<CompletionQueue>,
    /// The memory regions.
    pub memory_regions: Vec<MemoryRegion>,
    /// The shared receive queues.
    pub shared_receive_queues: Vec<SharedReceiveQueue>,
}

/// Counters with their names, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    names: &'static [&'static str],
    values: Vec<u64>,
}

impl Counters {
    /// Counters with these names.
    pub fn new(names: &'static [&'static str], values: Vec<u64>) -> Self {
        Self { names, values }
    }

    /// The counter of this name; 0 if there is none.
    pub fn get(&self, name: &str) -> u64 {
        self.iter().find(|(own, _)| *own == name).map_or(0, |(_, value)| value)
    }

    /// All counters.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.names.iter().copied().zip(self.values.iter().copied())
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.values.iter().fold(0, |sum, value| sum.saturating_add(*value))
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A queue pair.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QueuePair {
    /// The QPN.
    pub number: u32,
    /// The service: RC, UC, UD, XRC_INI or XRC_TGT.
    pub service: &'static str,
    /// The state: RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub state: &'static str,
    /// The remote QPN; `None` if it is not connected.
    pub remote_number: Option<u32>,
    /// The address of the peer.
    pub remote_address: Option<IpAddr>,
    /// How packets reach the peer: `sockets`, `shared memory` or `none`.
    pub link: &'static str,
    /// The path MTU in bytes.
    pub path_mtu: u64,
    /// The capacity of the SQ.
    pub max_send_wr: u64,
    /// The capacity of the RQ.
    pub max_recv_wr: u64,
    /// The number of its SRQ.
    pub shared_receive_queue: Option<u32>,
    /// The ID of the CQ of the SQ.
    pub send_cq: u64,
    /// The ID of the CQ of the RQ.
    pub recv_cq: u64,
    /// The shard of the device that it belongs to.
    pub shard: u64,
    /// How long ago it was created, in seconds.
    pub age_seconds: f64,
    /// How long ago it sent or received a packet, in seconds; `None` if it never did.
    pub idle_seconds: Option<f64>,
    /// The PSN of the next request.
    pub sq_psn: u32,
    /// The PSN expected next.
    pub rq_psn: u32,
    /// Send requests that have not completed.
    pub send_outstanding: u64,
    /// Receive requests in its own RQ.
    pub recv_outstanding: u64,
    /// Request packets sent and not acknowledged.
    pub in_flight_packets: u64,
    /// Their bytes with overhead, and those of READ responses that were requested.
    pub in_flight_bytes: u64,
    /// Send requests posted.
    pub send_posted: u64,
    /// Completions of its SQ. Requests that are not signaled have none.
    pub send_completions: u64,
    /// Completions of its RQ.
    pub recv_completions: u64,
    /// Completions with an error, of both queues.
    pub completion_errors: u64,
    /// The status of the last of them, as in `enum ibv_wc_status`.
    pub last_error: Option<&'static str>,
    /// What it refused or dropped last, or why it is in error.
    pub last_reason: Option<Reason>,
    /// The packets sent, retransmitted ones included.
    pub tx: Direction,
    /// The packets received, duplicates included.
    pub rx: Direction,
    /// The transport counters, by name.
    pub counters: Counters,
    /// NAKs received, by reason.
    pub naks_received: Counters,
    /// NAKs sent, by reason.
    pub naks_sent: Counters,
    /// The latency of send requests, of RC and XRC.
    pub latency: Latency,
}

/// Why something was refused, dropped or ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reason {
    /// Its number, as in `vendor_err`.
    pub number: u16,
    /// The sentence.
    pub text: String,
    /// How long ago it was, in seconds.
    pub age_seconds: f64,
    /// How often there was one.
    pub count: u64,
}

/// The packets of a queue pair in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// All packets.
    pub packets: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// The same by operation.
    pub operations: Operations,
}

/// The packets of one direction by operation. READ responses and atomic ACKs count as `read` and `atomic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// SEND.
    pub send: Traffic,
    /// RDMA WRITE.
    pub write: Traffic,
    /// RDMA READ.
    pub read: Traffic,
    /// Atomics.
    pub atomic: Traffic,
    /// ACKs and NAKs.
    pub ack: Traffic,
    /// Everything else, such as CNPs.
    pub other: Traffic,
}

/// A number of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Packets that end a message.
    pub messages: u64,
}

impl Operations {
    /// All operations with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Traffic)> {
        let Self { send, write, read, atomic, ack, other } = *self;
        crate::layout::CLASSES.into_iter().zip([send, write, read, atomic, ack, other])
    }

    /// Messages that carry data or ask for it.
    pub fn messages(&self) -> u64 {
        let all = [self.send, self.write, self.read, self.atomic];
        all.iter().fold(0, |sum, one| sum.saturating_add(one.messages))
    }
}

/// A latency histogram, from the post of a request to its completion. One outstanding request of each queue pair at a time is
/// measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The sum of all latencies, in nanoseconds.
    pub sum_ns: u64,
    /// The number of requests in each bucket: see [`histogram`].
    pub buckets: Vec<u64>,
}

impl Latency {
    /// The number of requests measured.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The latency that a share of the requests, from 0.0 to 1.0, does not exceed.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        histogram::quantile(&self.buckets, share)
    }

    /// The average.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The requests since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before);
        Self {
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect(),
        }
    }

    /// Adds the requests of another.
    pub fn add(&mut self, other: &Self) {
        let length = self.buckets.len().max(other.buckets.len());
        self.buckets.resize(length, 0);
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// The buckets with requests: their bounds in nanoseconds and the number of requests.
    pub fn nonempty(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let all = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(bucket, &count)| {
            (histogram::lower_bound(bucket), histogram::upper_bound(bucket), count)
        })
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Bucket {
            from_ns: u64,
            to_ns: u64,
            count: u64,
        }
        #[derive(Serialize)]
        struct Shown {
            samples: u64,
            mean_ns: Option<u64>,
            p50_ns: Option<u64>,
            p90_ns: Option<u64>,
            p99_ns: Option<u64>,
            p999_ns: Option<u64>,
            buckets: Vec<Bucket>,
        }
        let bucket = |(from_ns, to_ns, count)| Bucket { from_ns, to_ns, count };
        let shown = Shown {
            samples: self.count(),
            mean_ns: self.mean_ns(),
            p50_ns: self.quantile_ns(0.5),
            p90_ns: self.quantile_ns(0.9),
            p99_ns: self.quantile_ns(0.99),
            p999_ns: self.quantile_ns(0.999),
            buckets: self.nonempty().map(bucket).collect(),
        };
        shown.serialize(serializer)
    }
}

/// A completion queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CompletionQueue {
    /// Its ID in the process.
    pub id: u64,
    /// The maximum number of entries.
    pub capacity: u64,
    /// Entries that the program has not polled.
    pub pending: u64,
    /// Entries ever added.
    pub completions: u64,
    /// Entries lost because it was full.
    pub overruns: u64,
}

/// A memory region. Its keys and address are not published.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryRegion {
    /// The number of its PD.
    pub pd: u64,
    /// The length in bytes.
    pub length: u64,
    /// The access flags.
    pub access: Vec<&'static str>,
}

/// A shared receive queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SharedReceiveQueue {
    /// Its number.
    pub number: u32,
    /// The maximum number of requests.
    pub capacity: u64,
    /// Requests that no message has consumed.
    pub outstanding: u64,
    /// Requests posted.
    pub posted: u64,
}

/// The IP address of a GID; `None` for zero.
pub(crate) fn address(gid: [u8; 16]) -> Option<IpAddr> {
    let address = Ipv6Addr::from(gid);
    if address.is_unspecified() {
        return None;
    }
    Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

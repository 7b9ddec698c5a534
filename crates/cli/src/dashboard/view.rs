//! What the page shows, as it is sent to it. Rates are per second.

use serde::Serialize;

/// The rows of each table that are sent; the busiest come first.
pub(super) const MAX_ROWS: usize = 1000;

/// The whole page at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct View {
    /// Increases by one with each sample.
    pub(super) sequence: u64,
    pub(super) host: String,
    pub(super) version: &'static str,
    /// The seconds between two samples.
    pub(super) interval: f64,
    pub(super) totals: Point,
    pub(super) counts: Counts,
    pub(super) processes: Vec<ProcessRow>,
    pub(super) devices: Vec<DeviceRow>,
    pub(super) qps: Vec<QpRow>,
    pub(super) cqs: Vec<CqRow>,
    pub(super) mrs: Vec<MrRow>,
    /// The newest first.
    pub(super) anomalies: Vec<super::anomalies::Anomaly>,
}

/// The number of objects, including those that are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) processes: usize,
    pub(super) devices: usize,
    pub(super) qps: usize,
    pub(super) cqs: usize,
    pub(super) mrs: usize,
    /// Bytes of registered memory.
    pub(super) memory: u64,
}

/// A point of the charts: all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970.
    pub(super) time: u64,
    /// Bits per second, from the BTH to the ICRC.
    pub(super) tx: f64,
    pub(super) rx: f64,
    pub(super) tx_packets: f64,
    pub(super) rx_packets: f64,
    /// Messages sent per second: SEND, WRITE, READ and atomic requests, and responses to them.
    pub(super) messages: f64,
    /// Latencies of the requests completed in this interval, in nanoseconds.
    pub(super) p50: Option<u64>,
    pub(super) p90: Option<u64>,
    pub(super) p99: Option<u64>,
    #[serde(flatten)]
    pub(super) faults: Faults,
}

/// What the transports recovered from, and what was lost, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Faults {
    pub(super) retransmits: f64,
    pub(super) timeouts: f64,
    pub(super) rnr: f64,
    /// NAKs for a PSN sequence error, and gaps in responses.
    pub(super) sequence_errors: f64,
    /// See [`drops::corrupt`](crate::stat::drops::corrupt).
    pub(super) corrupt: f64,
    /// See [`drops::drops`](crate::stat::drops::drops), and those of the kernel.
    pub(super) drops: f64,
    /// Packets with a congestion mark, and CNPs.
    pub(super) congestion: f64,
}

impl Faults {
    /// Adds other faults.
    pub(super) fn add(&mut self, more: &Self) {
        self.retransmits += more.retransmits;
        self.timeouts += more.timeouts;
        self.rnr += more.rnr;
        self.sequence_errors += more.sequence_errors;
        self.corrupt += more.corrupt;
        self.drops += more.drops;
        self.congestion += more.congestion;
    }

    /// All of them.
    pub(super) fn sum(&self) -> f64 {
        let Self { retransmits, timeouts, rnr, sequence_errors, corrupt, drops, congestion } = self;
        retransmits + timeouts + rnr + sequence_errors + corrupt + drops + congestion
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessRow {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) command: String,
    pub(super) state: char,
    pub(super) age: f64,
    pub(super) devices: usize,
    pub(super) qps: usize,
    pub(super) cqs: usize,
    pub(super) mrs: usize,
    pub(super) memory: u64,
    pub(super) tx: f64,
    pub(super) rx: f64,
    pub(super) tx_packets: f64,
    pub(super) rx_packets: f64,
    /// Faults per second.
    pub(super) faults: f64,
    /// It uses another version of the library, so nothing else is known.
    pub(super) unknown_format: bool,
    pub(super) library: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceRow {
    pub(super) key: String,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) active: bool,
    pub(super) mtu: u64,
    pub(super) qps: usize,
    pub(super) tx: f64,
    pub(super) rx: f64,
    pub(super) tx_packets: f64,
    pub(super) rx_packets: f64,
    /// The share of packets that went through shared memory, from 0 to 1.
    pub(super) local: f64,
    pub(super) faults: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct QpRow {
    /// Names it in requests for details.
    pub(super) key: String,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) device: String,
    pub(super) qpn: u32,
    pub(super) service: &'static str,
    pub(super) state: &'static str,
    pub(super) remote_qpn: Option<u32>,
    pub(super) remote: Option<String>,
    pub(super) link: &'static str,
    pub(super) age: f64,
    /// Bits of payload per second.
    pub(super) tx: f64,
    pub(super) rx: f64,
    pub(super) messages: f64,
    pub(super) outstanding: u64,
    pub(super) in_flight: u64,
    pub(super) p50: Option<u64>,
    pub(super) p99: Option<u64>,
    /// Since the QP was created.
    pub(super) retransmits: u64,
    pub(super) naks: u64,
    pub(super) errors: u64,
    pub(super) last_error: Option<&'static str>,
    /// Faults per second.
    pub(super) faults: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CqRow {
    pub(super) key: String,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) device: String,
    pub(super) id: u64,
    pub(super) capacity: u64,
    pub(super) pending: u64,
    pub(super) rate: f64,
    pub(super) completions: u64,
    pub(super) overruns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct MrRow {
    pub(super) key: String,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) device: String,
    pub(super) pd: u64,
    pub(super) length: u64,
    pub(super) access: Vec<&'static str>,
}

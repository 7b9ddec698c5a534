//! Data for drawings: which packets to show, traffic per conversation over time, bytes in flight, PSN progress, latency
//! distributions and TCP connections. The text report does not need it; [`super::Options::detail`] requests it.
//!
//! Memory is bounded for captures of any length, like that of the other trackers.

mod curve;
mod keep;
mod marks;
mod series;
mod tcp;

use std::collections::BTreeMap;

use ferroce_wire::frame::{Frame, Network};

use super::anomaly::AnomalyKind;
use super::flow::Flows;
use super::requester::Progress;
use super::stamp::{Side, Stamp};
pub use curve::{Curve, CurvePoint};
pub use keep::{Kept, KeptPacket};
pub use marks::Mark;
pub(super) use marks::Marks;
pub use series::{Series, SeriesBin, Traced};
pub use tcp::{TcpConnection, TcpDirection};

/// Limits of the detail data.
#[derive(Clone, Copy, Debug)]
pub struct DetailOptions {
    /// Packets to keep: all of a small capture; otherwise those around anomalies, and the first and last ones of every
    /// conversation.
    pub packets: usize,
}

impl Default for DetailOptions {
    fn default() -> Self {
        Self { packets: 2_000 }
    }
}

/// The detail data of a file.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// The packets to show.
    pub kept: Kept,
    /// Traffic over time by conversation and by TCP connection.
    pub series: Series,
    /// Bytes in flight and PSN progress of each requester of a reliable connection.
    pub curves: Vec<Curve>,
    /// Anomalies for charts, evenly over time if there are too many.
    pub marks: Vec<Mark>,
    /// Latency distribution by operation, over all conversations.
    pub latency: BTreeMap<&'static str, Vec<LatencyBin>>,
    /// TCP connections, the largest first.
    pub tcp: Vec<TcpConnection>,
    /// TCP packets of connections beyond the limit.
    pub tcp_untracked: u64,
}

/// One bin of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyBin {
    /// The largest latency in it.
    pub up_to_ns: u64,
    /// Messages.
    pub count: u64,
}

/// Collects the detail data during the pass over a file.
#[derive(Debug)]
pub(super) struct Collector {
    keeper: keep::Keeper,
    series: series::Collector,
    curves: curve::Curves,
    tcp: tcp::Tracker,
}

impl Collector {
    pub(super) fn new(options: DetailOptions) -> Self {
        Self {
            keeper: keep::Keeper::new(options.packets),
            series: series::Collector::default(),
            curves: curve::Curves::default(),
            tcp: tcp::Tracker::default(),
        }
    }

    /// A packet that is not RoCE. `start` is the offset of the frame in the record.
    pub(super) fn other(&mut self, frame: &Frame<'_>, bytes: u64, stamp: Stamp, flows: &Flows) {
        self.keeper.packet(stamp, None, &[], flows);
        let Some(segment) = tcp::Segment::of(frame) else { return };
        if let Some((connection, forward)) = self.tcp.segment(&segment, bytes, stamp.time) {
            self.series.add(series::Source::Tcp(connection), forward, stamp.time, bytes);
        }
    }

    /// A RoCE packet with the anomalies it showed.
    pub(super) fn roce(
        &mut self,
        side: Option<Side>,
        bytes: u64,
        stamp: Stamp,
        anomalies: &[AnomalyKind],
        flows: &Flows,
    ) {
        self.keeper.packet(stamp, side, anomalies, flows);
        if let Some(side) = side {
            let source = series::Source::Flow(side.conversation);
            self.series.add(source, side.from_a, stamp.time, bytes);
        }
    }

    /// State of a requester after a packet that concerns it.
    pub(super) fn progress(&mut self, side: Side, time: i64, progress: Progress) {
        self.curves.sample(side, time, progress);
    }

    /// The data of the whole file. `id` maps the index of a flow to the number of its conversation.
    pub(super) fn finish(self, flows: &Flows, id: &dyn Fn(usize) -> u32) -> Detail {
        let (tcp, order, tcp_untracked) = self.tcp.finish();
        Detail {
            kept: self.keeper.finish(flows, id),
            series: self.series.finish(flows, id, &order),
            curves: self.curves.finish(flows, id),
            marks: Vec::new(),
            latency: BTreeMap::new(),
            tcp,
            tcp_untracked,
        }
    }
}

/// The network layer's payload length as the header states it, and where its header ends.
fn network_payload(frame: &Frame<'_>) -> Option<(usize, usize, u8)> {
    match frame.network? {
        Network::Ipv4(ip, options) => {
            let header = 20 + options.len();
            let len = usize::from(ip.total_length).checked_sub(header)?;
            (ip.fragment_offset == 0).then_some((frame.at.network + header, len, ip.protocol.0))
        }
        Network::Ipv6(ip) => {
            Some((frame.at.network + 40, usize::from(ip.payload_length), ip.next_header.0))
        }
        _ => None,
    }
}

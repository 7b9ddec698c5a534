//! Traffic over time, and TCP connections.

use std::collections::BTreeMap;

use ferroce_trace::analysis::detail::{Series, TcpConnection, TcpDirection, Traced};
use ferroce_trace::analysis::report::Traffic;

use crate::model::{LineKind, SeriesLine, SeriesPage, TcpPage};

/// Conversations, and TCP connections, with a line of their own.
const MAX_LINES: usize = 12;

/// Packets and bytes by interval.
type Bins = BTreeMap<u64, (u64, u64)>;

pub(crate) fn series(series: &Series) -> SeriesPage {
    let mut lines = Vec::new();
    let mut others = bins([&series.others]);
    let rdma: Vec<_> = series.conversations.iter().map(|(id, bins)| (*id, bins)).collect();
    let tcp: Vec<_> = series.tcp.iter().map(|(at, bins)| (*at as u32 + 1, bins)).collect();
    for (all, one, mut sources) in
        [(LineKind::AllRdma, LineKind::Rdma, rdma), (LineKind::AllTcp, LineKind::Tcp, tcp)]
    {
        if sources.is_empty() {
            continue;
        }
        lines.push(line(all, 0, bins(sources.iter().map(|(_, bins)| *bins))));
        sources.sort_by_key(|(_, bins)| std::cmp::Reverse(size(bins)));
        for (at, (id, source)) in sources.into_iter().enumerate() {
            if at < MAX_LINES {
                lines.push(line(one, id, bins([source])));
            } else {
                add(&mut others, source);
            }
        }
    }
    if !others.is_empty() {
        lines.push(line(LineKind::Others, 0, others));
    }
    SeriesPage { interval_ns: series.interval_ns, bins: series.bins, lines }
}

fn size(bins: &Traced) -> u64 {
    bins.values().map(|bin| bin.bytes[0] + bin.bytes[1]).sum()
}

fn bins<'a>(sources: impl IntoIterator<Item = &'a Traced>) -> Bins {
    let mut bins = Bins::new();
    sources.into_iter().for_each(|source| add(&mut bins, source));
    bins
}

fn add(bins: &mut Bins, source: &Traced) {
    for (at, bin) in source {
        let sum = bins.entry(*at).or_default();
        sum.0 += bin.packets[0] + bin.packets[1];
        sum.1 += bin.bytes[0] + bin.bytes[1];
    }
}

fn line(kind: LineKind, id: u32, bins: Bins) -> SeriesLine {
    let points = bins.into_iter().map(|(at, (packets, bytes))| (at, packets, bytes)).collect();
    SeriesLine { kind, id, points }
}

pub(crate) fn tcp(connection: &TcpConnection) -> TcpPage {
    let end = |(address, port): (std::net::IpAddr, u16)| match address {
        std::net::IpAddr::V4(address) => format!("{address}:{port}"),
        std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
    };
    let traffic =
        |it: &TcpDirection| Traffic { packets: it.packets, bytes: it.bytes, payload: it.payload };
    let (there, back) = (&connection.a_to_b, &connection.b_to_a);
    TcpPage {
        a: end(connection.a),
        b: end(connection.b),
        a_to_b: traffic(there),
        b_to_a: traffic(back),
        retransmitted: there.retransmitted + back.retransmitted,
        late: there.late + back.late,
        time_ns: connection.time_ns,
        duration_ns: connection.duration_ns,
    }
}

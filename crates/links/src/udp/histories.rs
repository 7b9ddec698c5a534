//! Whether an IPv4 identification fits to those that a host used before: a corrupt packet where the ICRC alone cannot show it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use ferroce_device::tuning::rx::MAX_HISTORIES;
use ferroce_proto::time::Instant;
use ferroce_sys::RxInfo;
use ferroce_wire::icrc::hidden::{
    Identification, IdentificationHistory, Plausibility, observe_flow,
};

/// The IPv4 identifications that remote hosts have used. They increase steadily, so one far from the last indicates a
/// corrupt packet where the ICRC alone cannot (`docs/icrc.md`). Some hosts count per flow, others per destination
/// address.
#[derive(Debug, Default)]
pub(super) struct Histories {
    pairs: HashMap<(IpAddr, IpAddr), usize>,
    flows: HashMap<(SocketAddr, IpAddr), usize>,
    /// The histories of pairs and of flows, at these positions.
    of_pairs: Vec<IdentificationHistory>,
    of_flows: Vec<IdentificationHistory>,
    /// The flow of the last datagram, with the positions of its histories: the next is often of the same flow.
    last: Option<(SocketAddr, IpAddr, [usize; 2])>,
}

/// The two histories that apply to a flow: of its address pair, and of the flow itself.
pub(super) struct History<'a> {
    pair: &'a mut IdentificationHistory,
    flow: &'a mut IdentificationHistory,
}

impl Histories {
    /// The histories of a packet's flow; `None` for IPv6, which has no identification.
    pub(super) fn of(&mut self, info: &RxInfo) -> Option<History<'_>> {
        if info.source.is_ipv6() {
            return None;
        }
        let (source, destination) = (info.source, info.destination);
        let last = self.last.filter(|last| (last.0, last.1) == (source, destination));
        let found = last.map_or_else(|| self.find(source, destination), |(.., found)| found);
        self.last = Some((source, destination, found));
        let (pair, flow) = (self.of_pairs.get_mut(found[0]), self.of_flows.get_mut(found[1]));
        Some(History { pair: pair?, flow: flow? })
    }

    /// The positions of the histories of a flow's address pair, and of the flow.
    fn find(&mut self, source: SocketAddr, destination: IpAddr) -> [usize; 2] {
        if self.flows.len() > MAX_HISTORIES {
            *self = Self::default();
        }
        let new = [self.pairs.len(), self.flows.len()];
        let pair = *self.pairs.entry((source.ip(), destination)).or_insert(new[0]);
        let flow = *self.flows.entry((source, destination)).or_insert(new[1]);
        self.of_pairs.resize(self.pairs.len(), IdentificationHistory::default());
        self.of_flows.resize(self.flows.len(), IdentificationHistory::default());
        [pair, flow]
    }
}

impl History<'_> {
    /// Whether an identification fits to those before.
    pub(super) fn accepts(&mut self, identification: Identification, now: Instant) -> bool {
        let now = std::time::Duration::from_nanos(now.as_nanos());
        observe_flow(self.pair, self.flow, identification, now) != Plausibility::Implausible
    }
}

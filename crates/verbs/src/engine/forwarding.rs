//! Counts what is forwarded to other processes: see [`ferroce_links::udp::Forwarding`].

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ferroce_links::udp::{Forwarded, Retried};
use ferroce_sys::{Recipient, RxInfo};

use super::counters::count;
use super::data_path::DataPath;

impl DataPath {
    /// Forwards packets to their owner, now or later. Returns whether an owner exists.
    pub(crate) fn forward(
        &self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> bool {
        let forwarded = self.forwarding.forward(&self.port.links, local, to, info, data);
        match forwarded {
            Forwarded::Sent => count(self.counters.forwarded_out()),
            Forwarded::Queued => {}
            Forwarded::Failed | Forwarded::NoOwner => count(self.counters.forward_failed()),
        }
        forwarded != Forwarded::NoOwner
    }

    /// Retries the queued packets.
    pub(crate) fn retry_forwarding(&self) {
        let Retried { sent, failed } = self.forwarding.retry(&self.port.links);
        if sent + failed > 0 {
            self.counters.forwarded_out().fetch_add(sent, Ordering::Relaxed);
            self.counters.forward_failed().fetch_add(failed, Ordering::Relaxed);
        }
    }
}

//! Counts what is forwarded to other processes: see [`ferroce_links::udp::Forwarding`].

use std::net::SocketAddr;

use ferroce_device::forwarding::Forwarded;
use ferroce_sys::{Error, Recipient, RxInfo};

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
            Forwarded::Sent(Ok(())) => count(self.counters.forwarded_out()),
            Forwarded::Queued => {}
            Forwarded::Sent(Err(_)) | Forwarded::Dropped => count(self.counters.forward_failed()),
        }
        !matches!(forwarded, Forwarded::Sent(Err(Error::NoOwner)))
    }

    /// Retries the queued packets.
    pub(crate) fn retry_forwarding(&self) {
        self.forwarding.retry(&self.port.links, |answer| match answer {
            Ok(()) => count(self.counters.forwarded_out()),
            Err(_) => count(self.counters.forward_failed()),
        });
    }
}

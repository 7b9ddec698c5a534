//! Requests that are held back leave without another call of the program.

use ferroce_proto::time::Instant;

use crate::rdma::host::RdmaHost;
use crate::rdma::plan::Connection;
use crate::rdma::summary::counted;

/// Requests that are held back although nothing will send them.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Stranded {
    /// The number of the connection.
    pub(in crate::rdma) connection: usize,
    host: usize,
    requests: usize,
}

impl Stranded {
    /// Finds the first such requests, with the state of the hosts after an event.
    pub(in crate::rdma) fn find<'a>(
        connections: &[Connection],
        host: impl Fn(usize) -> Option<&'a RdmaHost>,
    ) -> Option<Self> {
        connections.iter().enumerate().find_map(|(connection, one)| {
            one.endpoints.iter().find_map(|id| {
                let requests = host(id.host)?.stranded(id.index)?;
                Some(Self { connection, host: id.host, requests })
            })
        })
    }

    /// Describes the violation.
    pub(in crate::rdma) fn describe(&self, now: Instant) -> String {
        let Self { connection, host, requests } = self;
        let held = counted(*requests as u64, "request");
        format!(
            "connection {connection}: at {now}, host {host} holds {held} back, but no ACK is due and no timer is \
             armed"
        )
    }
}

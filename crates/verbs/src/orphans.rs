//! Disconnecting the connections of a process that was killed.

use std::path::Path;

use ferroce_wire::address::Gid;

use crate::context::Context;
use crate::device::Device;
use crate::engine::{LEDGER_RECORD_LEN, parse_ledger_record};
use crate::options::Options;

/// Sends a DREQ for each connection that a process recorded in its ledger (`FERROCE_LEDGER`) before it was killed, and
/// returns how many were sent.
pub fn disconnect_orphans(ledger: &Path, options: &Options) -> usize {
    let Ok(bytes) = std::fs::read(ledger) else { return 0 };
    let records = bytes.chunks_exact(LEDGER_RECORD_LEN).filter_map(parse_ledger_record);
    let mut sent = 0;
    let mut open: Vec<(Gid, Context, u8)> = Vec::new();
    for (local, notice) in records {
        if !open.iter().any(|(gid, ..)| *gid == local) {
            let address = std::net::SocketAddr::new(local.to_ip(), 0);
            let Ok((device, _)) = Device::with_address(address) else { continue };
            let Ok(context) = Context::open(&device, options) else { continue };
            let Some(link) = context.adapter().port.link_of(address.ip()) else { continue };
            open.push((local, context, link));
        }
        let Some((_, context, link)) = open.iter().find(|(gid, ..)| *gid == local) else {
            continue;
        };
        let dreq = context.adapter().cm_link(*link).send(&notice.dreq());
        sent += usize::from(dreq.is_ok());
    }
    open.iter().for_each(|(_, context, _)| context.adapter().flush());
    sent
}

//! Tests of two managers, or of one manager and forged messages, over a seeded link that loses, duplicates and
//! reorders.

mod captured;
mod edge_cases;
mod flood;
mod forged;
mod handshake;
mod keepalive;
mod limits;
mod link;
mod lossy;
mod messages;
mod overtaken;
mod rejection;
mod resolution;
mod retries;
mod shared_address;
mod states;
mod unreachable;

use std::vec::Vec;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CmMessage, ServiceId};
use ferroce_wire::number::{Guid, Psn, Qpn};

use super::{Config, ConnectParameters, ConnectionManager, Event, Transmit, roce_path};
use crate::time::Instant;

pub(super) const SERVICE: ServiceId = ServiceId(0x0106_1c06);

/// The address of a host.
pub(super) fn gid(host: u8) -> Gid {
    Gid::from_ip(std::net::IpAddr::from([10, 77, 0, host]))
}

pub(super) fn manager(host: u8) -> ConnectionManager {
    ConnectionManager::new(config(host))
}

pub(super) fn config(host: u8) -> Config {
    Config::new(
        Guid(0x5054_00ff_fe77_0000 + u64::from(host)),
        0x1234_5678_9abc_def0 + u64::from(host),
    )
}

/// Parameters of a connection from host 12 to host 11.
pub(super) fn connect_parameters() -> ConnectParameters {
    ConnectParameters::new(
        SERVICE,
        Qpn(0x1a),
        Psn(0xbb_5a9b),
        roce_path(gid(12), gid(11), 0x2_7a37),
    )
}

pub(super) fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// All messages waiting to be sent.
pub(super) fn transmits(manager: &mut ConnectionManager) -> Vec<Transmit> {
    core::iter::from_fn(|| manager.poll_transmit()).collect()
}

/// All waiting events.
pub(super) fn events(manager: &mut ConnectionManager) -> Vec<Event> {
    core::iter::from_fn(|| manager.poll_event()).collect()
}

/// The only message waiting to be sent.
pub(super) fn only(manager: &mut ConnectionManager) -> Transmit {
    let transmits = transmits(manager);
    assert_eq!(transmits.len(), 1, "{transmits:?}");
    transmits[0]
}

/// Delivers all waiting messages of one manager to the other, and returns them.
pub(super) fn carry(
    now: Instant,
    from: (u8, &mut ConnectionManager),
    to: &mut ConnectionManager,
) -> Vec<CmMessage> {
    let transmits = transmits(from.1);
    for transmit in &transmits {
        let _ = to.handle_mad(now, gid(from.0), &transmit.to_mad());
    }
    transmits.iter().map(|transmit| transmit.message).collect()
}

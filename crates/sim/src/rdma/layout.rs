//! Addresses, QP numbers, SRQ numbers, regions and SRQs that every simulated host has.

use std::net::Ipv4Addr;

use ferroce_proto::receive::XrcDomain;
use ferroce_wire::number::Qpn;

/// The first QPN of an endpoint: 0 and 1 are the management QPs, 2 is the set-up exchange's.
pub(super) const FIRST_QPN: u32 = 16;

/// The first SRQ number. SRQ numbers and QPNs are separate number spaces.
pub(super) const FIRST_SRQN: u32 = 0x100;

/// The region of every host that allows no remote access.
pub(super) const NO_REMOTE_REGION: usize = 0;

/// The region of every host that belongs to another PD.
pub(super) const OTHER_PD_REGION: usize = 1;

/// The contents of these two regions, which no request may change.
pub(super) const GUARD_BYTES: [u8; 4096] = [0x5a; 4096];

/// The SRQ of every host that RC endpoints share.
pub(super) const RC_SRQ: usize = 0;

/// The SRQs of every host that XRC requests name.
pub(super) const XRC_SRQS: [usize; 2] = [1, 2];

/// The SRQ of every host that belongs to another XRC domain.
pub(super) const FOREIGN_XRC_SRQ: usize = 3;

/// The XRC domain of all targets.
pub(super) const XRC_DOMAIN: XrcDomain = XrcDomain(1);

/// Returns the IPv4 address of a host.
pub(super) const fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0001 + host as u32)
}

/// Returns the QPN of an endpoint.
pub(super) const fn qpn(endpoint: usize) -> Qpn {
    Qpn(FIRST_QPN + endpoint as u32)
}

/// Returns the number of an SRQ.
pub(super) const fn srq_number(srq: usize) -> Qpn {
    Qpn(FIRST_SRQN + srq as u32)
}

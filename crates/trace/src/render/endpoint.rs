//! Formatting of endpoints.

use crate::analysis::report::Endpoint;

/// An endpoint: `10.0.0.1 QP 0x000011`.
pub(super) fn endpoint(endpoint: &Endpoint) -> String {
    match endpoint.qpn {
        Some(qpn) => format!("{} QP 0x{qpn:06x}", endpoint.address),
        None => format!("{} QP unseen", endpoint.address),
    }
}

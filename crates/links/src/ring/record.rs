//! The size of a record and of its parts.

use ferroce_device::tuning::shared_memory::{MAX_PAYLOAD, SHORT};
use ferroce_sys::record_header;

use crate::packet::MAX_PACKET;

/// Bytes of metadata before the packet in a record.
pub const INFO: usize = record_header::LENGTH;

/// The maximum length of a record.
pub const MAX_RECORD: usize = INFO + MAX_PACKET + MAX_PAYLOAD;

/// The maximum length of a record with a payload of [`SHORT`] bytes: the rest is the longest headers, padding and ICRC.
pub const SHORT_RECORD: usize = INFO + MAX_PACKET - 4096 + SHORT;

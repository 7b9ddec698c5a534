//! Strings for codes.

use std::ffi::{CStr, c_char, c_int};

/// Defines functions that return the string for a code, or a default.
macro_rules! texts {
    ($( $(#[$meta:meta])+ $name:ident: $first:literal.. [ $($text:literal),+ $(,)? ] else $other:literal; )+) => {$(
        $(#[$meta])+
        pub(crate) unsafe extern "C" fn $name(code: c_int) -> *const c_char {
            const TEXTS: &[&CStr] = &[$($text),+];
            let text = usize::try_from(code - $first).ok().and_then(|index| TEXTS.get(index).copied());
            text.unwrap_or($other).as_ptr()
        }
    )+};
}

texts! {
    /// `ibv_node_type`, from 1.
    node_type: 1.. [
        c"InfiniBand channel adapter", c"InfiniBand switch", c"InfiniBand router", c"iWARP NIC", c"usNIC",
        c"usNIC UDP", c"unspecified",
    ] else c"unknown";
    /// `ibv_port_state`.
    port_state: 0.. [
        c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer",
    ] else c"invalid state";
    /// `ibv_event_type`.
    event_type: 0.. [
        c"CQ error", c"local work queue catastrophic error", c"invalid request local work queue error",
        c"local access violation work queue error", c"communication established", c"send queue drained",
        c"path migrated", c"path migration request error", c"local catastrophic error", c"port active",
        c"port error", c"LID change", c"P_Key change", c"SM change", c"SRQ catastrophic error",
        c"SRQ limit reached", c"last WQE reached", c"client reregistration", c"GID table change",
        c"WQ fatal", c"device link speed change",
    ] else c"unknown";
    /// `ibv_wr_opcode`.
    wr_opcode: 0.. [
        c"rdma-write", c"rdma-write-with-imm", c"send", c"send-with-imm", c"rdma-read", c"atomic-cmp-and-swp",
        c"atomic-fetch-and-add", c"local-inv", c"bind-mw", c"send-with-inv", c"tso", c"driver1", c"unknown",
        c"unknown", c"flush", c"atomic-write",
    ] else c"unknown";
    /// `ibv_wc_status`.
    wc_status: 0.. [
        c"success", c"local length error", c"local QP operation error", c"local EE context operation error",
        c"local protection error", c"Work Request Flushed Error", c"memory management operation error",
        c"bad response error", c"local access error", c"remote invalid request error", c"remote access error",
        c"remote operation error", c"transport retry counter exceeded", c"RNR retry counter exceeded",
        c"local RDD violation error", c"remote invalid RD request", c"aborted error", c"invalid EE context number",
        c"invalid EE context state", c"fatal error", c"response timeout error", c"general error",
        c"TM error", c"TM software rendezvous",
    ] else c"unknown";
}

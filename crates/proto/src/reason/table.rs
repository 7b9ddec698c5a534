//! The numbers of reasons, as programs find them in `vendor_err`.

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number in `vendor_err`.
    pub number: u16,
    /// A name for programs and for `ferroce explain`.
    pub name: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// The topic of `ferroce explain` that says more.
    pub topic: &'static str,
}

macro_rules! table {
    ($( $number:literal $name:literal $topic:literal $meaning:literal; )+) => {
        /// All numbers, in order. 0 means that no reason is known.
        pub const TABLE: &[Entry] = &[$(
            Entry { number: $number, name: $name, meaning: $meaning, topic: $topic },
        )+];
    };
}

table! {
    0 "none" "cqe" "no reason is known; the status says everything";
    1 "key_unknown" "rkey" "no memory region or window has the key";
    2 "key_deregistered" "rkey" "the memory region of the key was deregistered";
    3 "key_other_pd" "pd" "the key belongs to another protection domain";
    4 "key_outside" "rkey" "the access begins before or ends behind the memory region or window";
    5 "key_access" "rkey" "the memory region or window lacks an access flag";
    6 "key_unmapped" "mr" "the program has unmapped registered memory";
    7 "key_misaligned" "rkey" "the address of an atomic operation is no multiple of 8";
    8 "window_unbound" "mw" "the memory window is not bound";
    9 "window_other_qp" "mw" "the memory window is bound for another queue pair";
    10 "window_lkey" "mw" "a memory window has no lkey";
    11 "copy_failed" "mr" "the key allows the access, but the copy to or from the memory failed";
    20 "window_bind" "mw" "the memory window cannot be bound";
    21 "invalidate" "mw" "the key cannot be invalidated";
    30 "opcode_sequence" "opcode" "a packet does not continue the message in progress";
    31 "qp_access" "rkey" "the access flags of the queue pair do not allow the operation";
    32 "too_many_reads" "read" "more READs and atomics outstanding than max_dest_rd_atomic";
    33 "payload_over_mtu" "mtu" "a payload longer than the path MTU";
    34 "payload_under_mtu" "mtu" "a payload shorter than the path MTU in the middle of a message";
    35 "message_too_long" "rem_inv_req_err" "the message is longer than the receive request";
    36 "length_mismatch" "rem_inv_req_err" "the payload is not as long as announced";
    37 "over_max_message" "rem_inv_req_err" "the message is longer than 2^31 bytes";
    38 "misaligned_atomic" "fetch_add" "the address of an atomic operation is no multiple of 8";
    39 "undefined_flush" "flush" "a FLUSH with an undefined placement or selectivity";
    40 "no_xrc_queue" "xrc" "the SRQ that an XRC message names does not exist in the XRC domain";
    41 "psn_out_of_window" "psn" "the PSN cannot be from the peer: rq_psn and its sq_psn differ";
    42 "no_receive" "rnr" "no receive request is posted";
    43 "wrong_qkey" "qkey" "the Q_Key of a datagram differs from that of the queue pair";
    44 "not_attached" "ud" "a multicast datagram of a group that the queue pair is not attached to";
    45 "wrong_service" "opcode" "a packet of another service";
    46 "wrong_pkey" "bth" "the P_Key is not that of the default partition";
    47 "unknown_qp" "qp" "a packet for a queue pair that does not exist";
    48 "not_peer" "qp" "a packet from an address that is not the peer's";
    49 "not_receiving" "rtr" "a packet for a queue pair that is not in RTR or RTS";
    50 "datagram_too_long" "ud" "the receive request is shorter than the datagram and the 40 bytes of the GRH";
    60 "peer_refused" "nak" "the peer refused the request with a NAK; its own reason says why";
    61 "rnr_exhausted" "rnr_retry_exc_err" "the peer had no receive request in all attempts";
    62 "no_response" "retry_exc_err" "no response in all attempts";
    63 "peer_expects" "psn" "the peer expects another PSN: sq_psn and its rq_psn differ";
    64 "port_unreachable" "retry_exc_err" "no process has an RDMA device open at the address of the peer";
    65 "peer_ended" "retry_exc_err" "the process of the peer has ended";
    66 "peer_silent" "retry_exc_err" "the peer has not answered keepalives";
    67 "bad_response" "bad_resp_err" "the response does not match the request";
    68 "peer_counts_more" "mtu" "the peer acknowledged a packet that was never sent: the two path MTUs differ";
    69 "peer_disconnected" "wr_flush_err" "the peer disconnected through the connection manager";
    80 "cq_overrun" "cq" "a completion queue was full";
    81 "port_down" "qp" "the port is down";
    82 "device_failed" "qp" "the device failed and has stopped";
}

/// The entry of a number.
pub fn entry(number: u16) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.number == number)
}

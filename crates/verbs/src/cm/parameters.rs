//! Parameters of connections.

use ferroce_proto::cm::Enhancements;
use ferroce_proto::qp::{AckTimeout, PathMtu, RnrRetry, RnrTimer, ServiceType};
use ferroce_wire::cm::ResponseTimeout;
use ferroce_wire::number::{QKey, Qpn};

/// A route to the peer that the program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path MTU.
    pub mtu: PathMtu,
    /// The type of service, or traffic class.
    pub traffic_class: u8,
    /// The flow label, 20 bits, which switches use for ECMP.
    pub flow_label: u32,
    /// The hop limit; 0 selects the kernel's default.
    pub hop_limit: u8,
}

/// Parameters that a side requests when it connects, or agrees to when it accepts. The defaults are those of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnectParameters {
    /// Private data for the peer: up to 56 bytes to connect and 196 to accept, 180 and 136 for UD.
    pub private_data: Vec<u8>,
    /// Outstanding READs and atomics of the peer. The accepting side is limited to what was requested.
    pub responder_resources: u8,
    /// Outstanding READs and atomics of this side. The accepting side is limited to what was offered.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retransmissions without an ACK, 0 to 7. The connecting side sets it for both.
    pub retry_count: u8,
    /// The peer's retransmissions after RNR NAKs; 7 is without limit.
    pub rnr_retry: RnrRetry,
    /// The time the peer waits before each of them.
    pub min_rnr_timer: RnrTimer,
    /// The maximum round-trip time, twice the packet lifetime. Set by the connecting side.
    pub ack_timeout: AckTimeout,
    /// The time in which either side responds to a CM message. Set by the connecting side.
    pub response_timeout: ResponseTimeout,
    /// Retransmissions of a CM message, 0 to 15. Set by the connecting side.
    pub max_retries: u8,
    /// The service of a QP that the cm_id did not create.
    pub service: ServiceType,
    /// A QP that the cm_id did not create: the program modifies it.
    pub queue_pair: Option<Qpn>,
    /// Whether that QP has an SRQ.
    pub shared_receives: bool,
    /// The queue key of that QP, for UD.
    pub queue_key: QKey,
    /// ECE options, offered or accepted.
    #[doc(alias = "ibv_ece")]
    pub enhancements: Enhancements,
}

impl Default for ConnectParameters {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry: RnrRetry::FOR_EVER,
            // 655 ms, as in Linux's connection manager.
            min_rnr_timer: RnrTimer::from_code(0).unwrap_or_default(),
            ack_timeout: AckTimeout(19),
            response_timeout: ResponseTimeout(20),
            max_retries: 15,
            service: ServiceType::ReliableConnection,
            queue_pair: None,
            shared_receives: false,
            queue_key: super::DATAGRAM_QUEUE_KEY,
            enhancements: Enhancements::default(),
        }
    }
}

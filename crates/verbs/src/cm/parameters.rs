//! What the two sides of a connection ask for and agree to.

use ferroce_proto::cm::Enhancements;
use ferroce_proto::qp::{AckTimeout, PathMtu, RnrRetry, RnrTimer, ServiceType};
use ferroce_wire::cm::ResponseTimeout;
use ferroce_wire::number::{QKey, Qpn};

/// A way to the peer that a program knows better than the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The largest payload of a packet.
    pub mtu: PathMtu,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// From which switches choose among equal paths: 20 bits.
    pub flow_label: u32,
    /// How many routers on the way, at most; 0 leaves that to the system.
    pub hop_limit: u8,
}

/// What a side asks for when it connects, or agrees to when it accepts. The default is what Linux chooses where a
/// program says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnectParameters {
    /// Bytes for the peer's program: up to 56 to connect and 196 to accept, 180 and 136 for datagrams.
    pub private_data: Vec<u8>,
    /// How many READs and atomics of the peer's may be under way. Who accepts is held to what was asked for.
    pub responder_resources: u8,
    /// How many of ours. Who accepts is held to what was offered.
    pub initiator_depth: u8,
    /// The receive queue hands out credits.
    pub flow_control: bool,
    /// How often to send a packet again that is not acknowledged, 0 to 7: both sides do as the connecting one says.
    pub retry_count: u8,
    /// How often the peer shall send again while we have no receive posted; 7 for ever.
    pub rnr_retry: RnrRetry,
    /// How long the peer shall wait before it does.
    pub min_rnr_timer: RnrTimer,
    /// How long the way there and back takes at most: half of it is the packet lifetime. Only who connects says.
    pub ack_timeout: AckTimeout,
    /// How long either side may take to answer a message of the connection manager. Only who connects says.
    pub response_timeout: ResponseTimeout,
    /// How often such a message is sent again, 0 to 15. Only who connects says.
    pub max_retries: u8,
    /// The service of a queue pair that the id has not made.
    pub service: ServiceType,
    /// A queue pair that the id has not made: the program changes its state itself.
    pub queue_pair: Option<Qpn>,
    /// That queue pair receives from a shared queue.
    pub shared_receives: bool,
    /// The key of that queue pair, for datagrams.
    pub queue_key: QKey,
    /// What a vendor's devices can do beyond the specification, offered or accepted.
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
            // What Linux's connection manager sets: 655 ms.
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

//! What the two sides tell each other, apart from the messages that carry it.

use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
use ferroce_wire::number::{Guid, LKey, Psn, QKey, Qpn, RKey, SrqNumber, VirtualAddress};
use ferroce_wire::setup::{
    AccessFlags, Capabilities, ConnectionAccept, ConnectionReq, DEFAULT_MAX_MESSAGE_SIZE,
    DEFAULT_RETRY_COUNT, DEFAULT_RNR_RETRY, DEFAULT_TIMEOUT, DeviceDiscoveryResp, DomainId,
    ExchangeId, MrRegisterReq, MrRegisterResp, PeerId, QpCreateReq, QpCreateResp, QpType, RegionId,
    TransactionId, Transports,
};

/// The longest message there is, 2 GiB.
pub(super) const MAX_MESSAGE_SIZE: u32 = 1 << 31;

/// A device as it presents itself in the discovery phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The server's name for itself.
    pub id: PeerId,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The device.
    pub guid: Guid,
    /// How many queue pairs it can have.
    pub max_queue_pairs: u32,
    /// How many memory regions it can have.
    pub max_memory_regions: u32,
    /// The longest message, bytes.
    pub max_message_size: u32,
    /// The transports it offers.
    pub transports: Transports,
    /// The largest packet payload of its port.
    pub path_mtu: PathMtu,
}

impl Device {
    pub(super) fn read(response: &DeviceDiscoveryResp) -> Self {
        Self {
            id: response.server_id,
            capabilities: response.capabilities,
            guid: response.device_guid,
            max_queue_pairs: response.max_queue_pairs,
            max_memory_regions: response.max_memory_regions,
            max_message_size: response.max_message_size,
            transports: response.supported_transports,
            path_mtu: response.path_mtu,
        }
    }

    pub(super) fn response(
        &self,
        exchange: ExchangeId,
        transaction: TransactionId,
    ) -> DeviceDiscoveryResp {
        DeviceDiscoveryResp {
            server_id: self.id,
            capabilities: self.capabilities,
            device_guid: self.guid,
            max_queue_pairs: self.max_queue_pairs,
            max_memory_regions: self.max_memory_regions,
            max_message_size: self.max_message_size,
            supported_transports: self.transports,
            path_mtu: self.path_mtu,
            ..DeviceDiscoveryResp::new(exchange, transaction)
        }
    }
}

/// The parameters of a queue pair, and the two messages that have fields of the same names.
macro_rules! queue_pair_parameters {
    ($( $(#[doc = $doc:literal])+ $field:ident: $type:ty, )+) => {
        /// A queue pair: the client's in QP_CREATE_REQ, the server's in QP_CREATE_RESP.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QpParameters {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl QpParameters {
            pub(super) fn read_request(request: &QpCreateReq) -> Self {
                Self { $( $field: request.$field, )+ }
            }

            pub(super) fn read_response(response: &QpCreateResp) -> Self {
                Self { $( $field: response.$field, )+ }
            }

            pub(super) fn request(
                &self,
                exchange: ExchangeId,
                transaction: TransactionId,
            ) -> QpCreateReq {
                QpCreateReq { $( $field: self.$field, )+ ..QpCreateReq::new(exchange, transaction) }
            }

            pub(super) fn response(
                &self,
                exchange: ExchangeId,
                transaction: TransactionId,
            ) -> QpCreateResp {
                QpCreateResp { $( $field: self.$field, )+ ..QpCreateResp::new(exchange, transaction) }
            }
        }
    };
}

queue_pair_parameters! {
    /// Its number.
    qp_number: Qpn,
    /// Its transport.
    qp_type: QpType,
    /// The largest packet payload it can use.
    path_mtu: PathMtu,
    /// How many RDMA reads and atomics it can have under way as responder.
    responder_resources: u8,
    /// How many RDMA reads and atomics it will have under way as requester.
    initiator_depth: u8,
    /// How many send requests it holds.
    max_send_wqe: u32,
    /// How many receive requests it holds.
    max_recv_wqe: u32,
    /// How many pieces of memory a send request can gather.
    max_send_sge: u16,
    /// How many pieces of memory a receive request can scatter to.
    max_recv_sge: u16,
    /// Bytes of its send queue.
    send_queue_size: u32,
    /// Bytes of its receive queue.
    recv_queue_size: u32,
    /// The first packet it sends has this sequence number.
    starting_psn: Psn,
    /// Queue key that it expects; UD only.
    queue_key: QKey,
    /// The shared receive queue that messages to it are for; XRC only.
    shared_receive_queue: SrqNumber,
}

/// A memory region as its owner describes it. The client's has no key here: that travels in CONNECTION_REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionParameters {
    /// The owner's number for the region.
    pub id: RegionId,
    /// What it may be used for.
    pub access: AccessFlags,
    /// Where it begins in the owner's memory.
    pub address: VirtualAddress,
    /// Its bytes.
    pub length: u64,
    /// The protection domain it belongs to.
    pub domain: DomainId,
}

impl RegionParameters {
    pub(super) fn read(request: &MrRegisterReq) -> Self {
        Self {
            id: request.region_id,
            access: request.access_flags,
            address: request.virtual_address,
            length: request.length,
            domain: request.protection_domain,
        }
    }

    pub(super) fn request(
        &self,
        exchange: ExchangeId,
        transaction: TransactionId,
    ) -> MrRegisterReq {
        MrRegisterReq {
            region_id: self.id,
            access_flags: self.access,
            virtual_address: self.address,
            length: self.length,
            protection_domain: self.domain,
            ..MrRegisterReq::new(exchange, transaction)
        }
    }
}

/// The server's memory region with its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredRegion {
    /// The region.
    pub region: RegionParameters,
    /// The key by which the client may reach it.
    pub remote_key: RKey,
    /// The key by which the server itself uses it; may be 0.
    pub local_key: LKey,
}

impl RegisteredRegion {
    pub(super) fn read(response: &MrRegisterResp) -> Self {
        Self {
            region: RegionParameters {
                id: response.region_id,
                access: response.access_flags,
                address: response.virtual_address,
                length: response.length,
                domain: response.protection_domain,
            },
            remote_key: response.remote_key,
            local_key: response.local_key,
        }
    }

    pub(super) fn response(
        &self,
        exchange: ExchangeId,
        transaction: TransactionId,
    ) -> MrRegisterResp {
        MrRegisterResp {
            region_id: self.region.id,
            access_flags: self.region.access,
            virtual_address: self.region.address,
            length: self.region.length,
            protection_domain: self.region.domain,
            remote_key: self.remote_key,
            local_key: self.local_key,
            ..MrRegisterResp::new(exchange, transaction)
        }
    }
}

/// What the client asks for in CONNECTION_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// The client's device.
    pub client_guid: Guid,
    /// The key to the client's memory region; 0 when it offers none.
    pub client_key: RKey,
    /// The key to the server's memory region, one of those that were registered; 0 when none was.
    pub server_key: RKey,
    /// The longest message the client will send, bytes.
    pub max_message_size: u32,
    /// How long a requester waits for an acknowledge. Sent as zero for UC, as are the two counts.
    pub timeout: AckTimeout,
    /// How often a request is repeated that is not acknowledged.
    pub retry_count: u8,
    /// How often a request is repeated after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
}

impl Default for ConnectionParameters {
    fn default() -> Self {
        Self {
            client_guid: Guid(0),
            client_key: RKey(0),
            server_key: RKey(0),
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            timeout: DEFAULT_TIMEOUT,
            retry_count: DEFAULT_RETRY_COUNT,
            rnr_retry_count: DEFAULT_RNR_RETRY,
        }
    }
}

/// The parameters of a connection: those asked for in CONNECTION_REQ, or those that hold after CONNECTION_ACCEPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The client's queue pair.
    pub client_qp: Qpn,
    /// The server's queue pair.
    pub server_qp: Qpn,
    /// The key to the client's memory region.
    pub client_key: RKey,
    /// The key to the server's memory region.
    pub server_key: RKey,
    /// The longest message either side will send, bytes.
    pub max_message_size: u32,
    /// How long a requester waits for an acknowledge.
    pub timeout: AckTimeout,
    /// How often a request is repeated that is not acknowledged.
    pub retry_count: u8,
    /// How often a request is repeated after "receiver not ready".
    pub rnr_retry_count: RnrRetry,
}

impl Agreement {
    pub(super) fn read_request(request: &ConnectionReq) -> Self {
        Self {
            client_qp: request.client_qp,
            server_qp: request.server_qp,
            client_key: request.client_key,
            server_key: request.server_key,
            max_message_size: request.max_message_size,
            timeout: request.timeout,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
        }
    }

    pub(super) fn read_accept(accept: &ConnectionAccept) -> Self {
        Self {
            client_qp: accept.client_qp,
            server_qp: accept.server_qp,
            client_key: accept.client_key,
            server_key: accept.server_key,
            max_message_size: accept.max_message_size,
            timeout: accept.timeout,
            retry_count: accept.retry_count,
            rnr_retry_count: accept.rnr_retry_count,
        }
    }

    pub(super) fn accept(
        &self,
        exchange: ExchangeId,
        transaction: TransactionId,
    ) -> ConnectionAccept {
        ConnectionAccept {
            client_qp: self.client_qp,
            server_qp: self.server_qp,
            server_key: self.server_key,
            client_key: self.client_key,
            max_message_size: self.max_message_size,
            timeout: self.timeout,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ..ConnectionAccept::new(exchange, transaction)
        }
    }
}

//! The exchanged parameters, independent of their messages.

use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
use ferroce_wire::number::{Guid, LKey, Psn, QKey, Qpn, RKey, SrqNumber, VirtualAddress};
use ferroce_wire::setup::{
    AccessFlags, Capabilities, ConnectionAccept, ConnectionReq, DEFAULT_MAX_MESSAGE_SIZE,
    DEFAULT_RETRY_COUNT, DEFAULT_RNR_RETRY, DEFAULT_TIMEOUT, DeviceDiscoveryResp, DomainId,
    ExchangeId, MrRegisterReq, MrRegisterResp, PeerId, QpCreateReq, QpCreateResp, QpType, RegionId,
    TransactionId, Transports,
};

/// The longest message, 2 GiB.
pub(super) const MAX_MESSAGE_SIZE: u32 = 1 << 31;

/// A device, as described in the discovery phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The server's ID.
    pub id: PeerId,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The device GUID.
    pub guid: Guid,
    /// Maximum number of QPs.
    pub max_queue_pairs: u32,
    /// Maximum number of MRs.
    pub max_memory_regions: u32,
    /// Maximum message size in bytes.
    pub max_message_size: u32,
    /// Supported transports.
    pub transports: Transports,
    /// Path MTU of its port.
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

/// The parameters of a QP, and the two messages with fields of the same names.
macro_rules! queue_pair_parameters {
    ($( $(#[doc = $doc:literal])+ $field:ident: $type:ty, )+) => {
        /// A QP: the client's in QP_CREATE_REQ, the server's in QP_CREATE_RESP.
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
    /// The QPN.
    qp_number: Qpn,
    /// The transport.
    qp_type: QpType,
    /// The largest path MTU it supports.
    path_mtu: PathMtu,
    /// Maximum outstanding RDMA READs and atomics as responder.
    responder_resources: u8,
    /// Maximum outstanding RDMA READs and atomics as requester.
    initiator_depth: u8,
    /// Maximum number of send WQEs.
    max_send_wqe: u32,
    /// Maximum number of receive WQEs.
    max_recv_wqe: u32,
    /// Maximum number of SGEs of a send.
    max_send_sge: u16,
    /// Maximum number of SGEs of a receive.
    max_recv_sge: u16,
    /// Size of the send queue in bytes.
    send_queue_size: u32,
    /// Size of the receive queue in bytes.
    recv_queue_size: u32,
    /// The first PSN it sends.
    starting_psn: Psn,
    /// The Q_Key it expects; UD only.
    queue_key: QKey,
    /// The SRQ that messages to it name; XRC only.
    shared_receive_queue: SrqNumber,
}

/// An MR, as its owner describes it. The client's rkey is sent later, in CONNECTION_REQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionParameters {
    /// The owner's ID of the MR.
    pub id: RegionId,
    /// The access flags.
    pub access: AccessFlags,
    /// Its start address.
    pub address: VirtualAddress,
    /// Its length in bytes.
    pub length: u64,
    /// Its PD.
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

/// The server's MR with its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredRegion {
    /// The MR.
    pub region: RegionParameters,
    /// The rkey for the client.
    pub remote_key: RKey,
    /// The lkey for the server itself; may be 0.
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

/// Parameters of CONNECTION_REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// The client's device GUID.
    pub client_guid: Guid,
    /// The rkey of the client's MR; 0 when it offers none.
    pub client_key: RKey,
    /// The rkey of one of the server's registered MRs; 0 when there is none.
    pub server_key: RKey,
    /// The longest message that the client will send, in bytes.
    pub max_message_size: u32,
    /// Local ACK timeout. Sent as zero for UC, as are the two retry counts.
    pub timeout: AckTimeout,
    /// Retry count.
    pub retry_count: u8,
    /// RNR retry count.
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

/// The parameters of a connection: requested in CONNECTION_REQ, or agreed in CONNECTION_ACCEPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The client's QPN.
    pub client_qp: Qpn,
    /// The server's QPN.
    pub server_qp: Qpn,
    /// The rkey of the client's MR.
    pub client_key: RKey,
    /// The rkey of the server's MR.
    pub server_key: RKey,
    /// The longest message that either side will send, in bytes.
    pub max_message_size: u32,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Retry count.
    pub retry_count: u8,
    /// RNR retry count.
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

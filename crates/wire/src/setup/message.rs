//! The nine messages, field by field. A test compares the tables with those in `docs/set-up-exchange.md`.

use crate::cm::{AckTimeout, PathMtu, RnrRetry};
use crate::field::{Octets, header};
use crate::number::{Guid, LKey, Psn, QKey, Qpn, RKey, SrqNumber, VirtualAddress};
use crate::setup::{
    AccessFlags, Capabilities, DomainId, ExchangeId, Magic, MessageType, PeerId, QpType, RegionId,
    Status, TransactionId, Transports, VERSION,
};

/// Defines headers that start with the prefix.
macro_rules! prefixed {
    ($(
        $(#[doc = $about:literal])+
        pub struct $name:ident($label:literal, $len:literal) { $($fields:tt)* }
    )+) => {
        header! {$(
            $(#[doc = $about])+
            pub struct $name($label, $len) {
                /// Message type.
                message_type: MessageType = 8,
                /// Version of this protocol, 1.
                version: u8 = 8,
                /// Outcome of the request in a response, of the exchange in CONNECTION_CONFIRM; zero in requests.
                status: Status = 8,
                /// Number of earlier transmissions of this request; echoed in the response for round-trip timing.
                attempt: u8 = 8,
                /// Distinguishes the message from other datagrams: "FeSU".
                magic: Magic = 32,
                /// Exchange ID chosen by the client, the same in all messages.
                exchange: ExchangeId = 32,
                /// Request ID, the same in retransmissions and in the response.
                transaction: TransactionId = 32,
                $($fields)*
            }
        )+}
    };
}

prefixed! {
    /// Common prefix of all messages.
    pub struct Prefix("Set-up", 16) {}
}

/// Defines messages: headers that start with the prefix, each with its type.
macro_rules! messages {
    ($(
        $(#[doc = $about:literal])+
        pub struct $name:ident($label:literal, $len:literal) = $type:ident { $($fields:tt)+ }
    )+) => {
        prefixed! {$(
            $(#[doc = $about])+
            pub struct $name($label, $len) { $($fields)+ }
        )+}

        $(impl $name {
            /// Its message type.
            pub const TYPE: MessageType = MessageType::$type;

            /// Creates the message with its prefix set and everything else zero: a first attempt, or a success.
            pub fn new(exchange: ExchangeId, transaction: TransactionId) -> Self {
                Self {
                    message_type: Self::TYPE,
                    version: VERSION,
                    magic: Magic::SETUP,
                    exchange,
                    transaction,
                    ..Self::default()
                }
            }
        })+
    };
}

messages! {
    /// Phase 1: requests the server's identity and capabilities.
    pub struct DeviceDiscoveryReq("DEVICE_DISCOVERY_REQ", 32) = DEVICE_DISCOVERY_REQ {
        /// ID of the client, chosen by itself.
        client_id: PeerId = 32,
        /// Capabilities of the client.
        capabilities: Capabilities = 32,
        /// Reserved.
        reserved: Octets<8> = 64,
    }

    /// Phase 1: the server's device.
    pub struct DeviceDiscoveryResp("DEVICE_DISCOVERY_RESP", 64) = DEVICE_DISCOVERY_RESP {
        /// ID of the server, chosen by itself.
        server_id: PeerId = 32,
        /// Capabilities of the server.
        capabilities: Capabilities = 32,
        /// GUID of the server's device.
        device_guid: Guid = 64,
        /// Maximum number of queue pairs of the device.
        max_queue_pairs: u32 = 32,
        /// Maximum number of memory regions of the device.
        max_memory_regions: u32 = 32,
        /// Maximum message length in bytes.
        max_message_size: u32 = 32,
        /// Transports supported by the device.
        supported_transports: Transports = 8,
        /// MTU of the device's port.
        path_mtu: PathMtu = 8,
        /// Reserved.
        reserved: Octets<18> = 144,
    }

    /// Phase 2: describes the client's queue pair and requests a matching one.
    pub struct QpCreateReq("QP_CREATE_REQ", 64) = QP_CREATE_REQ {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        qp_number: Qpn = 24,
        /// Its transport.
        qp_type: QpType = 8,
        /// Maximum path MTU it supports.
        path_mtu: PathMtu = 8,
        /// Maximum RDMA READs and atomics in flight as responder.
        responder_resources: u8 = 8,
        /// Maximum RDMA READs and atomics in flight as requester.
        initiator_depth: u8 = 8,
        /// Maximum outstanding send work requests.
        max_send_wqe: u32 = 32,
        /// Maximum outstanding receive work requests.
        max_recv_wqe: u32 = 32,
        /// Maximum SGEs of a send work request.
        max_send_sge: u16 = 16,
        /// Maximum SGEs of a receive work request.
        max_recv_sge: u16 = 16,
        /// Size of its send queue in bytes.
        send_queue_size: u32 = 32,
        /// Size of its receive queue in bytes.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// PSN of its first packet.
        starting_psn: Psn = 24,
        /// Q_Key it requires; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// Destination SRQ of messages to it; XRC only.
        shared_receive_queue: SrqNumber = 24,
        /// Reserved.
        reserved4: Octets<8> = 64,
    }

    /// Phase 2: the server's queue pair.
    pub struct QpCreateResp("QP_CREATE_RESP", 64) = QP_CREATE_RESP {
        /// Reserved.
        reserved1: u8 = 8,
        /// The server's queue pair.
        qp_number: Qpn = 24,
        /// Its transport.
        qp_type: QpType = 8,
        /// Path MTU supported by both sides, at most that of the request.
        path_mtu: PathMtu = 8,
        /// Maximum RDMA READs and atomics in flight as responder.
        responder_resources: u8 = 8,
        /// Maximum RDMA READs and atomics in flight as requester.
        initiator_depth: u8 = 8,
        /// Maximum outstanding send work requests.
        max_send_wqe: u32 = 32,
        /// Maximum outstanding receive work requests.
        max_recv_wqe: u32 = 32,
        /// Maximum SGEs of a send work request.
        max_send_sge: u16 = 16,
        /// Maximum SGEs of a receive work request.
        max_recv_sge: u16 = 16,
        /// Size of its send queue in bytes.
        send_queue_size: u32 = 32,
        /// Size of its receive queue in bytes.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// PSN of its first packet.
        starting_psn: Psn = 24,
        /// Q_Key it requires; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// Destination SRQ of messages to it; XRC only.
        shared_receive_queue: SrqNumber = 24,
        /// Reserved.
        reserved4: Octets<8> = 64,
    }

    /// Phase 3: a memory region of the client.
    pub struct MrRegisterReq("MR_REGISTER_REQ", 64) = MR_REGISTER_REQ {
        /// Region ID chosen by the client.
        region_id: RegionId = 32,
        /// Access flags of the region.
        access_flags: AccessFlags = 32,
        /// Start address in the client's memory.
        virtual_address: VirtualAddress = 64,
        /// Length in bytes.
        length: u64 = 64,
        /// Protection domain (PD) of the region.
        protection_domain: DomainId = 32,
        /// Reserved.
        reserved: Octets<20> = 160,
    }

    /// Phase 3: a memory region of the server, and its rkey.
    pub struct MrRegisterResp("MR_REGISTER_RESP", 64) = MR_REGISTER_RESP {
        /// Region ID chosen by the server.
        region_id: RegionId = 32,
        /// Access flags of the region.
        access_flags: AccessFlags = 32,
        /// Start address in the server's memory.
        virtual_address: VirtualAddress = 64,
        /// Length in bytes.
        length: u64 = 64,
        /// Protection domain (PD) of the region.
        protection_domain: DomainId = 32,
        /// R_Key for access by the client.
        remote_key: RKey = 32,
        /// L_Key of the server, informational; may be 0.
        local_key: LKey = 32,
        /// Reserved.
        reserved: Octets<12> = 96,
    }

    /// Phase 4: requests a connection of two queue pairs.
    pub struct ConnectionReq("CONNECTION_REQ", 64) = CONNECTION_REQ {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// GUID of the client's device.
        client_guid: Guid = 64,
        /// GUID of the server's device.
        server_guid: Guid = 64,
        /// R_Key of the client's memory region.
        client_key: RKey = 32,
        /// R_Key of the server's memory region.
        server_key: RKey = 32,
        /// Maximum message length of the client in bytes.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// Local ACK timeout of a requester.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// Retry count for unacknowledged requests.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// Retry count after RNR NAKs.
        rnr_retry_count: RnrRetry = 3,
        /// Reserved.
        reserved6: Octets<6> = 48,
    }

    /// Phase 4: the server accepts, with the final parameters.
    pub struct ConnectionAccept("CONNECTION_ACCEPT", 64) = CONNECTION_ACCEPT {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// R_Key of the server's memory region.
        server_key: RKey = 32,
        /// R_Key of the client's memory region.
        client_key: RKey = 32,
        /// Maximum message length of both sides in bytes, at most that of the request.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// Local ACK timeout of a requester.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// Retry count for unacknowledged requests.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// Retry count after RNR NAKs.
        rnr_retry_count: RnrRetry = 3,
        /// Reserved.
        reserved6: Octets<22> = 176,
    }

    /// Phase 4: the client is ready to send, or aborts.
    pub struct ConnectionConfirm("CONNECTION_CONFIRM", 32) = CONNECTION_CONFIRM {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// Reserved.
        reserved3: Octets<8> = 64,
    }
}

//! The nine messages, field by field. `docs/set-up-exchange.md` has the same tables, which a test compares with these.

use crate::cm::{AckTimeout, PathMtu, RnrRetry};
use crate::field::{Octets, header};
use crate::number::{Guid, LKey, Psn, QKey, Qpn, RKey, SrqNumber, VirtualAddress};
use crate::setup::{
    AccessFlags, Capabilities, DomainId, ExchangeId, Magic, MessageType, PeerId, QpType, RegionId,
    Status, TransactionId, Transports, VERSION,
};

/// Defines headers that begin with the prefix.
macro_rules! prefixed {
    ($(
        $(#[doc = $about:literal])+
        pub struct $name:ident($label:literal, $len:literal) { $($fields:tt)* }
    )+) => {
        header! {$(
            $(#[doc = $about])+
            pub struct $name($label, $len) {
                /// Type of the message.
                message_type: MessageType = 8,
                /// Version of this protocol, 1.
                version: u8 = 8,
                /// Result of the request in a response, of the exchange in CONNECTION_CONFIRM; zero in requests.
                status: Status = 8,
                /// Number of earlier transmissions of this request; the response repeats it, so that it can be timed.
                attempt: u8 = 8,
                /// Distinguishes the message from a foreign datagram: "FeSU".
                magic: Magic = 32,
                /// The exchange ID, chosen by the client; the same in all its messages.
                exchange: ExchangeId = 32,
                /// The request ID; its response and its retransmissions have the same.
                transaction: TransactionId = 32,
                $($fields)*
            }
        )+}
    };
}

prefixed! {
    /// The prefix of every message.
    pub struct Prefix("Set-up", 16) {}
}

/// Defines messages: headers that begin with the prefix, each with its type.
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
            /// The value of `message_type` of this message.
            pub const TYPE: MessageType = MessageType::$type;

            /// Returns the message with its prefix filled in and everything else zero: a first attempt, or a success.
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
    /// Phase 1: asks which servers exist and what they support.
    pub struct DeviceDiscoveryReq("DEVICE_DISCOVERY_REQ", 32) = DEVICE_DISCOVERY_REQ {
        /// Identifier chosen by the client.
        client_id: PeerId = 32,
        /// Capabilities of the client.
        capabilities: Capabilities = 32,
        /// Reserved.
        reserved: Octets<8> = 64,
    }

    /// Phase 1: the server's device.
    pub struct DeviceDiscoveryResp("DEVICE_DISCOVERY_RESP", 64) = DEVICE_DISCOVERY_RESP {
        /// Identifier chosen by the server.
        server_id: PeerId = 32,
        /// Capabilities of the server.
        capabilities: Capabilities = 32,
        /// GUID of the server's device.
        device_guid: Guid = 64,
        /// Maximum number of queue pairs of the device.
        max_queue_pairs: u32 = 32,
        /// Maximum number of memory regions of the device.
        max_memory_regions: u32 = 32,
        /// Maximum message size, bytes.
        max_message_size: u32 = 32,
        /// The transports the device offers.
        supported_transports: Transports = 8,
        /// The largest packet payload of the device's port.
        path_mtu: PathMtu = 8,
        /// Reserved.
        reserved: Octets<18> = 144,
    }

    /// Phase 2: the client's queue pair; requests a matching one.
    pub struct QpCreateReq("QP_CREATE_REQ", 64) = QP_CREATE_REQ {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        qp_number: Qpn = 24,
        /// Its transport.
        qp_type: QpType = 8,
        /// The largest packet payload it can use.
        path_mtu: PathMtu = 8,
        /// READs and atomics that it can have in flight as responder.
        responder_resources: u8 = 8,
        /// READs and atomics that it will have in flight as requester.
        initiator_depth: u8 = 8,
        /// Capacity of its send queue, WQEs.
        max_send_wqe: u32 = 32,
        /// Capacity of its receive queue, WQEs.
        max_recv_wqe: u32 = 32,
        /// Maximum number of SGEs of a send request.
        max_send_sge: u16 = 16,
        /// Maximum number of SGEs of a receive request.
        max_recv_sge: u16 = 16,
        /// Size of its send queue, bytes.
        send_queue_size: u32 = 32,
        /// Size of its receive queue, bytes.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// PSN of the first packet it sends.
        starting_psn: Psn = 24,
        /// Queue key that it expects; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// The shared receive queue that messages to it are delivered to; XRC only.
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
        /// The largest packet payload that both can use: never above the request's.
        path_mtu: PathMtu = 8,
        /// READs and atomics that it can have in flight as responder.
        responder_resources: u8 = 8,
        /// READs and atomics that it will have in flight as requester.
        initiator_depth: u8 = 8,
        /// Capacity of its send queue, WQEs.
        max_send_wqe: u32 = 32,
        /// Capacity of its receive queue, WQEs.
        max_recv_wqe: u32 = 32,
        /// Maximum number of SGEs of a send request.
        max_send_sge: u16 = 16,
        /// Maximum number of SGEs of a receive request.
        max_recv_sge: u16 = 16,
        /// Size of its send queue, bytes.
        send_queue_size: u32 = 32,
        /// Size of its receive queue, bytes.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// PSN of the first packet it sends.
        starting_psn: Psn = 24,
        /// Queue key that it expects; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// The shared receive queue that messages to it are delivered to; XRC only.
        shared_receive_queue: SrqNumber = 24,
        /// Reserved.
        reserved4: Octets<8> = 64,
    }

    /// Phase 3: a memory region of the client.
    pub struct MrRegisterReq("MR_REGISTER_REQ", 64) = MR_REGISTER_REQ {
        /// The client's number for the region.
        region_id: RegionId = 32,
        /// Access that it allows.
        access_flags: AccessFlags = 32,
        /// Its start address in the client's memory.
        virtual_address: VirtualAddress = 64,
        /// Its length, bytes.
        length: u64 = 64,
        /// The protection domain it belongs to.
        protection_domain: DomainId = 32,
        /// Reserved.
        reserved: Octets<20> = 160,
    }

    /// Phase 3: a memory region of the server, and its rkey.
    pub struct MrRegisterResp("MR_REGISTER_RESP", 64) = MR_REGISTER_RESP {
        /// The server's number for the region.
        region_id: RegionId = 32,
        /// Access that it allows.
        access_flags: AccessFlags = 32,
        /// Its start address in the server's memory.
        virtual_address: VirtualAddress = 64,
        /// Its length, bytes.
        length: u64 = 64,
        /// The protection domain it belongs to.
        protection_domain: DomainId = 32,
        /// The rkey by which the client accesses it.
        remote_key: RKey = 32,
        /// The server's own lkey. For illustration only: the client does not use it, and it may be 0.
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
        /// The rkey of the client's memory region.
        client_key: RKey = 32,
        /// The rkey of the server's memory region.
        server_key: RKey = 32,
        /// Maximum size of a message from the client, bytes.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// Local ACK timeout of the requester.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// Retransmissions of a request that is not acknowledged.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// Retransmissions of a request after an RNR NAK.
        rnr_retry_count: RnrRetry = 3,
        /// Reserved.
        reserved6: Octets<6> = 48,
    }

    /// Phase 4: the server accepts, with the agreed parameters.
    pub struct ConnectionAccept("CONNECTION_ACCEPT", 64) = CONNECTION_ACCEPT {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// The rkey of the server's memory region.
        server_key: RKey = 32,
        /// The rkey of the client's memory region.
        client_key: RKey = 32,
        /// Maximum size of a message in either direction, bytes; never above the request's.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// Local ACK timeout of the requester.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// Retransmissions of a request that is not acknowledged.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// Retransmissions of a request after an RNR NAK.
        rnr_retry_count: RnrRetry = 3,
        /// Reserved.
        reserved6: Octets<22> = 176,
    }

    /// Phase 4: the client is ready to send, or gives up.
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

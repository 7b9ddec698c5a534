//! The nine messages, field by field. `docs/set-up-exchange.md` has the same tables, and a test holds it to them.

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
                /// Which message it is.
                message_type: MessageType = 8,
                /// Version of this protocol, 1.
                version: u8 = 8,
                /// Outcome: of the request in a response, of the exchange in CONNECTION_CONFIRM; zero in requests.
                status: Status = 8,
                /// How often this request was sent before; its response repeats it, to be timed by.
                attempt: u8 = 8,
                /// Tells the message from a foreign datagram: "FeSU".
                magic: Magic = 32,
                /// The exchange, named by the client: the same in all its messages.
                exchange: ExchangeId = 32,
                /// The request; its response and its retries have the same.
                transaction: TransactionId = 32,
                $($fields)*
            }
        )+}
    };
}

prefixed! {
    /// What every message begins with.
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
            /// The type that its first byte must have.
            pub const TYPE: MessageType = MessageType::$type;

            /// The message with its prefix filled in and everything else zero, to be completed by the fields that
            /// matter: a first attempt, or a success.
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
    /// Phase 1: who is there, and what can it do?
    pub struct DeviceDiscoveryReq("DEVICE_DISCOVERY_REQ", 32) = DEVICE_DISCOVERY_REQ {
        /// The client's name for itself.
        client_id: PeerId = 32,
        /// What the client can do.
        capabilities: Capabilities = 32,
        /// Reserved.
        reserved: Octets<8> = 64,
    }

    /// Phase 1: the server's device.
    pub struct DeviceDiscoveryResp("DEVICE_DISCOVERY_RESP", 64) = DEVICE_DISCOVERY_RESP {
        /// The server's name for itself.
        server_id: PeerId = 32,
        /// What the server can do.
        capabilities: Capabilities = 32,
        /// The server's device.
        device_guid: Guid = 64,
        /// How many queue pairs the device can have.
        max_queue_pairs: u32 = 32,
        /// How many memory regions the device can have.
        max_memory_regions: u32 = 32,
        /// The longest message, bytes.
        max_message_size: u32 = 32,
        /// The transports the device offers.
        supported_transports: Transports = 8,
        /// The largest packet payload of the device's port.
        path_mtu: PathMtu = 8,
        /// Reserved.
        reserved: Octets<18> = 144,
    }

    /// Phase 2: the client's queue pair, and the wish for one to match.
    pub struct QpCreateReq("QP_CREATE_REQ", 64) = QP_CREATE_REQ {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        qp_number: Qpn = 24,
        /// Its transport.
        qp_type: QpType = 8,
        /// The largest packet payload it can use.
        path_mtu: PathMtu = 8,
        /// How many RDMA reads and atomics it can have under way as responder.
        responder_resources: u8 = 8,
        /// How many RDMA reads and atomics it will have under way as requester.
        initiator_depth: u8 = 8,
        /// How many send requests it holds.
        max_send_wqe: u32 = 32,
        /// How many receive requests it holds.
        max_recv_wqe: u32 = 32,
        /// How many pieces of memory a send request can gather.
        max_send_sge: u16 = 16,
        /// How many pieces of memory a receive request can scatter to.
        max_recv_sge: u16 = 16,
        /// Bytes of its send queue.
        send_queue_size: u32 = 32,
        /// Bytes of its receive queue.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// The first packet it sends has this sequence number.
        starting_psn: Psn = 24,
        /// Queue key that it expects; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// The shared receive queue that messages to it are for; XRC only.
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
        /// How many RDMA reads and atomics it can have under way as responder.
        responder_resources: u8 = 8,
        /// How many RDMA reads and atomics it will have under way as requester.
        initiator_depth: u8 = 8,
        /// How many send requests it holds.
        max_send_wqe: u32 = 32,
        /// How many receive requests it holds.
        max_recv_wqe: u32 = 32,
        /// How many pieces of memory a send request can gather.
        max_send_sge: u16 = 16,
        /// How many pieces of memory a receive request can scatter to.
        max_recv_sge: u16 = 16,
        /// Bytes of its send queue.
        send_queue_size: u32 = 32,
        /// Bytes of its receive queue.
        recv_queue_size: u32 = 32,
        /// Reserved.
        reserved2: u8 = 8,
        /// The first packet it sends has this sequence number.
        starting_psn: Psn = 24,
        /// Queue key that it expects; UD only.
        queue_key: QKey = 32,
        /// Reserved.
        reserved3: u8 = 8,
        /// The shared receive queue that messages to it are for; XRC only.
        shared_receive_queue: SrqNumber = 24,
        /// Reserved.
        reserved4: Octets<8> = 64,
    }

    /// Phase 3: a memory region of the client.
    pub struct MrRegisterReq("MR_REGISTER_REQ", 64) = MR_REGISTER_REQ {
        /// The client's number for the region.
        region_id: RegionId = 32,
        /// What it may be used for.
        access_flags: AccessFlags = 32,
        /// Where it begins in the client's memory.
        virtual_address: VirtualAddress = 64,
        /// Its bytes.
        length: u64 = 64,
        /// The protection domain it belongs to.
        protection_domain: DomainId = 32,
        /// Reserved.
        reserved: Octets<20> = 160,
    }

    /// Phase 3: a memory region of the server, and the key to it.
    pub struct MrRegisterResp("MR_REGISTER_RESP", 64) = MR_REGISTER_RESP {
        /// The server's number for the region.
        region_id: RegionId = 32,
        /// What it may be used for.
        access_flags: AccessFlags = 32,
        /// Where it begins in the server's memory.
        virtual_address: VirtualAddress = 64,
        /// Its bytes.
        length: u64 = 64,
        /// The protection domain it belongs to.
        protection_domain: DomainId = 32,
        /// The key by which the client may reach it.
        remote_key: RKey = 32,
        /// The key by which the server itself uses it. Shown for study; the client has no use for it, and it may be 0.
        local_key: LKey = 32,
        /// Reserved.
        reserved: Octets<12> = 96,
    }

    /// Phase 4: connect these two queue pairs.
    pub struct ConnectionReq("CONNECTION_REQ", 64) = CONNECTION_REQ {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// The client's device.
        client_guid: Guid = 64,
        /// The server's device.
        server_guid: Guid = 64,
        /// The key to the client's memory region.
        client_key: RKey = 32,
        /// The key to the server's memory region.
        server_key: RKey = 32,
        /// The longest message the client will send, bytes.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// How long a requester waits for an acknowledge.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// How often a request is repeated that is not acknowledged.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// How often a request is repeated after "receiver not ready".
        rnr_retry_count: RnrRetry = 3,
        /// Reserved.
        reserved6: Octets<6> = 48,
    }

    /// Phase 4: the server agrees, with the parameters that hold.
    pub struct ConnectionAccept("CONNECTION_ACCEPT", 64) = CONNECTION_ACCEPT {
        /// Reserved.
        reserved1: u8 = 8,
        /// The client's queue pair.
        client_qp: Qpn = 24,
        /// Reserved.
        reserved2: u8 = 8,
        /// The server's queue pair.
        server_qp: Qpn = 24,
        /// The key to the server's memory region.
        server_key: RKey = 32,
        /// The key to the client's memory region.
        client_key: RKey = 32,
        /// The longest message either side will send, bytes: never above the request's.
        max_message_size: u32 = 32,
        /// Reserved.
        reserved3: u32 = 27,
        /// How long a requester waits for an acknowledge.
        timeout: AckTimeout = 5,
        /// Reserved.
        reserved4: u8 = 5,
        /// How often a request is repeated that is not acknowledged.
        retry_count: u8 = 3,
        /// Reserved.
        reserved5: u8 = 5,
        /// How often a request is repeated after "receiver not ready".
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

//! The structures and constants of librdmacm's header.

use std::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::attributes::ibv_ah_attr;
use super::context::ibv_context;
use super::objects::{ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp, ibv_srq};
use super::{Abi, structures};

structures! {
    rdma_event_channel = 4 { fd: c_int }
    rdma_ib_addr = 40 {
        sgid: [u64; 2],
        dgid: [u64; 2],
        /// In network byte order.
        pkey: u16,
    }
    rdma_addr = 296 {
        src: sockaddr_storage,
        dst: sockaddr_storage = 128,
        ibaddr: rdma_ib_addr = 256,
    }
    rdma_route = 312 {
        addr: rdma_addr,
        path_rec: *mut ibv_sa_path_rec = 296,
        num_paths: c_int = 304,
    }
    ibv_sa_path_rec = 64 {
        dgid: [u64; 2],
        sgid: [u64; 2],
        dlid: u16,
        slid: u16,
        raw_traffic: c_int,
        /// In network byte order.
        flow_label: u32 = 40,
        hop_limit: u8,
        traffic_class: u8,
        reversible: c_int = 48,
        numb_path: u8,
        /// In network byte order.
        pkey: u16,
        sl: u8,
        mtu_selector: u8,
        mtu: u8,
        rate_selector: u8,
        rate: u8,
        packet_life_time_selector: u8,
        packet_life_time: u8,
        preference: u8,
    }
    /// `ibv_path_data`, with the `ibv_path_record` in it: as a subnet manager sends it, in network byte order.
    ibv_path_data = 72 {
        /// In host byte order.
        flags: u32,
        reserved: u32,
        service_id: u64 = 8,
        dgid: [u64; 2] = 16,
        sgid: [u64; 2] = 32,
        dlid: u16,
        slid: u16,
        flowlabel_hoplimit: u32 = 52,
        tclass: u8,
        reversible_numpath: u8,
        pkey: u16 = 58,
        qosclass_sl: u16,
        mtu: u8 = 62,
        rate: u8,
        packetlifetime: u8,
        preference: u8,
        more_reserved: [u8; 6] = 66,
    }
    rdma_cm_id = 416 {
        verbs: *mut ibv_context = 0,
        channel: *mut rdma_event_channel = 8,
        context: *mut c_void = 16,
        qp: *mut ibv_qp = 24,
        route: rdma_route = 32,
        ps: u32 = 344,
        port_num: u8 = 348,
        event: *mut rdma_cm_event = 352,
        send_cq_channel: *mut ibv_comp_channel = 360,
        send_cq: *mut ibv_cq = 368,
        recv_cq_channel: *mut ibv_comp_channel = 376,
        recv_cq: *mut ibv_cq = 384,
        srq: *mut ibv_srq = 392,
        pd: *mut ibv_pd = 400,
        qp_type: u32 = 408,
    }
    rdma_conn_param = 24 {
        private_data: *const c_void,
        private_data_len: u8,
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: u8,
        retry_count: u8,
        rnr_retry_count: u8,
        srq: u8,
        qp_num: u32,
    }
    rdma_ud_param = 56 {
        private_data: *const c_void,
        private_data_len: u8,
        ah_attr: ibv_ah_attr,
        qp_num: u32,
        qkey: u32,
    }
    rdma_cm_event = 80 {
        id: *mut rdma_cm_id = 0,
        listen_id: *mut rdma_cm_id = 8,
        event: u32 = 16,
        status: c_int = 20,
        param: rdma_event_param = 24,
    }
    rdma_addrinfo = 96 {
        ai_flags: c_int,
        ai_family: c_int,
        ai_qp_type: c_int,
        ai_port_space: c_int,
        ai_src_len: socklen_t,
        ai_dst_len: socklen_t,
        ai_src_addr: *mut sockaddr,
        ai_dst_addr: *mut sockaddr,
        ai_src_canonname: *mut c_char,
        ai_dst_canonname: *mut c_char,
        ai_route_len: usize,
        ai_route: *mut c_void,
        ai_connect_len: usize,
        ai_connect: *mut c_void,
        ai_next: *mut rdma_addrinfo,
    }
    rdma_cm_join_mc_attr_ex = 16 {
        comp_mask: u32,
        join_flags: u32,
        addr: *mut sockaddr,
    }
}

/// The part of an event that depends on the service.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union rdma_event_param {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
    /// The value of a user event.
    pub(crate) arg: u64,
}

// SAFETY: numbers and pointers.
unsafe impl Abi for rdma_event_param {}

/// `rdma_port_space`.
pub(crate) mod port_space {
    pub(crate) const IPOIB: u32 = 0x0002;
    pub(crate) const TCP: u32 = 0x0106;
    pub(crate) const UDP: u32 = 0x0111;
    pub(crate) const IB: u32 = 0x013f;
}

/// `rdma_cm_event_type`.
#[allow(dead_code, reason = "complete, as the header has it")]
pub(crate) mod cm_event {
    pub(crate) const ADDR_RESOLVED: u32 = 0;
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_RESOLVED: u32 = 2;
    pub(crate) const ROUTE_ERROR: u32 = 3;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_RESPONSE: u32 = 5;
    pub(crate) const CONNECT_ERROR: u32 = 6;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const DEVICE_REMOVAL: u32 = 11;
    pub(crate) const MULTICAST_JOIN: u32 = 12;
    pub(crate) const MULTICAST_ERROR: u32 = 13;
    pub(crate) const ADDR_CHANGE: u32 = 14;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
    pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
    pub(crate) const ADDRINFO_ERROR: u32 = 17;
    pub(crate) const USER: u32 = 18;
}

/// Flags of `rdma_addrinfo`.
pub(crate) mod rai {
    use std::ffi::c_int;

    pub(crate) const PASSIVE: c_int = 1;
    pub(crate) const NUMERICHOST: c_int = 1 << 1;
    /// Resolve by InfiniBand's subnet administrator.
    pub(crate) const SA: c_int = 1 << 4;
    pub(crate) const DNS: c_int = 1 << 5;
}

/// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`: the device's maximum.
pub(crate) const DEVICE_MAX: u8 = 0xff;

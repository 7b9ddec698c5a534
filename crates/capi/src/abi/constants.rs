//! Constants of the header.

/// Defines families of constants: a module with the constants, and the list of their names.
macro_rules! numbers {
    ($( $(#[$meta:meta])+ $module:ident: $type:ty { $( $name:ident = $value:expr ),+ $(,)? } )+) => {$(
        $(#[$meta])+
        #[allow(dead_code, reason = "families are complete as far as they have a meaning here")]
        pub(crate) mod $module {
            $( pub(crate) const $name: $type = $value; )+
            pub(crate) const NAMES: &[($type, &str)] = &[$( ($name, stringify!($name)) ),+];
        }
    )+};
}

numbers! {
    /// `ibv_qp_state`.
    qp_state: u32 { RESET = 0, INIT = 1, RTR = 2, RTS = 3, SQD = 4, SQE = 5, ERR = 6 }
    /// `ibv_mtu`: codes, not bytes.
    mtu: u32 { MTU_256 = 1, MTU_512 = 2, MTU_1024 = 3, MTU_2048 = 4, MTU_4096 = 5 }
    /// `ibv_mig_state`.
    migration: u32 { MIGRATED = 0, REARM = 1, ARMED = 2 }
    /// `ibv_port_state`.
    port_state: u32 { NOP = 0, DOWN = 1, INIT = 2, ARMED = 3, ACTIVE = 4, ACTIVE_DEFER = 5 }
    /// `ibv_access_flags`.
    access: u32 {
        LOCAL_WRITE = 1, REMOTE_WRITE = 1 << 1, REMOTE_READ = 1 << 2, REMOTE_ATOMIC = 1 << 3, MW_BIND = 1 << 4,
        ZERO_BASED = 1 << 5, ON_DEMAND = 1 << 6, HUGETLB = 1 << 7, FLUSH_GLOBAL = 1 << 8, FLUSH_PERSISTENT = 1 << 9,
        RELAXED_ORDERING = 1 << 20,
    }
    /// `ibv_srq_type`.
    srq_type: u32 { BASIC = 0, XRC = 1, TM = 2 }
    /// `ibv_mw_type`.
    mw_type: u32 { TYPE_1 = 1, TYPE_2 = 2 }
    /// `ibv_srq_attr_mask`.
    srq_attr: u32 { MAX_WR = 1, LIMIT = 1 << 1 }
    /// `ibv_rereg_mr_flags`.
    rereg: u32 { CHANGE_TRANSLATION = 1, CHANGE_PD = 1 << 1, CHANGE_ACCESS = 1 << 2 }
    /// `ibv_qp_type`.
    qp_type: u32 { RC = 2, UC = 3, UD = 4, XRC_SEND = 9, XRC_RECV = 10 }
    /// `ibv_wr_opcode`.
    wr: u32 {
        RDMA_WRITE = 0, RDMA_WRITE_WITH_IMM = 1, SEND = 2, SEND_WITH_IMM = 3, RDMA_READ = 4, ATOMIC_CMP_AND_SWP = 5,
        ATOMIC_FETCH_AND_ADD = 6, LOCAL_INV = 7, BIND_MW = 8, SEND_WITH_INV = 9, FLUSH = 14,
        ATOMIC_WRITE = 15,
    }
    /// `ibv_send_flags`.
    send: u32 { FENCE = 1, SIGNALED = 1 << 1, SOLICITED = 1 << 2, INLINE = 1 << 3 }
    /// `ibv_wc_opcode`.
    wc: u32 {
        SEND = 0, RDMA_WRITE = 1, RDMA_READ = 2, COMP_SWAP = 3, FETCH_ADD = 4, BIND_MW = 5, LOCAL_INV = 6, FLUSH = 8,
        ATOMIC_WRITE = 9, RECV = 1 << 7, RECV_RDMA_WITH_IMM = (1 << 7) + 1,
    }
    /// `ibv_wc_status`.
    status: u32 {
        SUCCESS = 0, LOC_LEN_ERR = 1, LOC_QP_OP_ERR = 2, LOC_PROT_ERR = 4, WR_FLUSH_ERR = 5, MW_BIND_ERR = 6,
        BAD_RESP_ERR = 7, LOC_ACCESS_ERR = 8, REM_INV_REQ_ERR = 9, REM_ACCESS_ERR = 10, REM_OP_ERR = 11, RETRY_EXC_ERR = 12,
        RNR_RETRY_EXC_ERR = 13,
    }
    /// `ibv_wc_flags`.
    wc_flags: u32 { GRH = 1, WITH_IMM = 1 << 1, WITH_INV = 1 << 3 }
    /// `ibv_event_type`.
    event: u32 {
        CQ_ERR = 0, QP_FATAL = 1, QP_REQ_ERR = 2, QP_ACCESS_ERR = 3, COMM_EST = 4, SQ_DRAINED = 5, DEVICE_FATAL = 8,
        PORT_ACTIVE = 9, PORT_ERR = 10,
        SRQ_ERR = 14, SRQ_LIMIT_REACHED = 15, QP_LAST_WQE_REACHED = 16,
    }
    /// `ibv_qp_init_attr_mask`.
    qp_init: u32 {
        PD = 1, XRCD = 1 << 1, CREATE_FLAGS = 1 << 2, MAX_TSO_HEADER = 1 << 3, IND_TABLE = 1 << 4, RX_HASH = 1 << 5,
        SEND_OPS_FLAGS = 1 << 6,
    }
    /// `ibv_srq_init_attr_mask`.
    srq_init: u32 { TYPE = 1, PD = 1 << 1, XRCD = 1 << 2, CQ = 1 << 3, TM = 1 << 4 }
    /// `ibv_device_cap_flags`.
    device: u32 {
        CURR_QP_STATE_MOD = 1 << 7, RC_RNR_NAK_GEN = 1 << 12, SRQ_RESIZE = 1 << 13, MEM_WINDOW = 1 << 17,
        XRC = 1 << 20, MEM_MGT_EXTENSIONS = 1 << 21, MEM_WINDOW_TYPE_2B = 1 << 24,
    }
    /// `ibv_port_cap_flags`.
    port: u32 { CM_SUP = 1 << 16, IP_BASED_GIDS = 1 << 26 }
    /// `ibv_odp_transport_cap_bits`.
    odp: u32 { SEND = 1, RECV = 1 << 1, WRITE = 1 << 2, READ = 1 << 3, ATOMIC = 1 << 4, SRQ_RECV = 1 << 5 }
}

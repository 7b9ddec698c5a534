//! What the library exports, under which version. The one list of it: the build script reads it for the linker's version
//! script.
//!
//! Each name is a jump to a function of ours. Rust alone cannot give a symbol a version: names that it exports itself get
//! none, and are then not found by programs that ask for one.

use std::arch::global_asm;

use crate::{
    address, async_event, attributes, completion, context, device, device_memory, domain, names,
    query, queue_pair, rate, rdmacm, refuse, region, shared_receive,
};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the jump instruction of this processor is missing here");

macro_rules! exports {
    ($( $version:literal { $( $name:ident => $function:path; )+ } )+) => {$($(
        global_asm!(
            ".text",
            ".balign 16",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            jump!(),
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            function = sym $function,
        );
    )+)+};
}

// A variable, which drivers of vendors set.
global_asm!(
    ".pushsection .data.verbs_allow_disassociate_destroy, \"aw\"",
    ".globl verbs_allow_disassociate_destroy",
    ".type verbs_allow_disassociate_destroy, @object",
    "verbs_allow_disassociate_destroy: .byte 0",
    ".size verbs_allow_disassociate_destroy, 1",
    ".popsection",
);

exports! {
    "IBVERBS_1.0" {
        ibv_copy_path_rec_from_kern => refuse::nothing;
        ibv_copy_path_rec_to_kern => refuse::nothing;
        ibv_copy_qp_attr_from_kern => refuse::nothing;
        ibv_create_comp_channel => completion::create_comp_channel;
        ibv_destroy_comp_channel => completion::destroy_comp_channel;
        ibv_get_sysfs_path => device::get_sysfs_path;
        ibv_rate_to_mult => rate::rate_to_mult;
        ibv_read_sysfs_file => device::read_sysfs_file;
        mult_to_ibv_rate => rate::mult_to_rate;
    }
    "IBVERBS_1.1" {
        ibv_ack_async_event => async_event::ack_async_event;
        ibv_ack_cq_events => completion::ack_cq_events;
        ibv_alloc_pd => domain::alloc_pd;
        ibv_attach_mcast => queue_pair::attach_mcast;
        ibv_close_device => context::close_device;
        ibv_copy_ah_attr_from_kern => refuse::nothing;
        ibv_create_ah => address::create_ah;
        ibv_create_ah_from_wc => address::create_ah_from_wc;
        ibv_create_cq => completion::create_cq;
        ibv_create_qp => queue_pair::create_qp;
        ibv_create_srq => shared_receive::create_srq;
        ibv_dealloc_pd => domain::dealloc_pd;
        ibv_dereg_mr => region::dereg_mr;
        ibv_destroy_ah => address::destroy_ah;
        ibv_destroy_cq => completion::destroy_cq;
        ibv_destroy_qp => queue_pair::destroy_qp;
        ibv_destroy_srq => shared_receive::destroy_srq;
        ibv_detach_mcast => queue_pair::detach_mcast;
        ibv_dofork_range => refuse::zero;
        ibv_dontfork_range => refuse::zero;
        ibv_event_type_str => names::event_type;
        ibv_fork_init => refuse::zero;
        ibv_free_device_list => device::free_device_list;
        ibv_get_async_event => async_event::get_async_event;
        ibv_get_cq_event => completion::get_cq_event;
        ibv_get_device_guid => device::get_device_guid;
        ibv_get_device_list => device::get_device_list;
        ibv_get_device_name => device::get_device_name;
        ibv_init_ah_from_wc => address::init_ah_from_wc;
        ibv_modify_qp => attributes::modify_qp;
        ibv_modify_srq => shared_receive::modify_srq;
        ibv_node_type_str => names::node_type;
        ibv_open_device => context::open_device;
        ibv_port_state_str => names::port_state;
        ibv_query_device => query::query_device;
        ibv_query_gid => query::query_gid;
        ibv_query_pkey => query::query_pkey;
        ibv_query_port => query::query_port;
        ibv_query_qp => attributes::query_qp;
        ibv_query_srq => shared_receive::query_srq;
        ibv_rate_to_mbps => rate::rate_to_mbps;
        ibv_reg_mr => region::reg_mr;
        ibv_register_driver => refuse::nothing;
        ibv_rereg_mr => region::rereg_mr;
        ibv_resize_cq => completion::resize_cq;
        ibv_resolve_eth_l2_from_gid => refuse::number;
        ibv_wc_status_str => names::wc_status;
        mbps_to_ibv_rate => rate::mbps_to_rate;
    }
    "IBVERBS_1.5" {
        ibv_get_pkey_index => query::get_pkey_index;
    }
    "IBVERBS_1.6" {
        ibv_qp_to_qp_ex => queue_pair::qp_to_qp_ex;
    }
    "IBVERBS_1.7" {
        ibv_reg_mr_iova => region::reg_mr_iova;
    }
    "IBVERBS_1.8" {
        ibv_reg_mr_iova2 => region::reg_mr_iova2;
    }
    "IBVERBS_1.9" {
        ibv_get_device_index => device::get_device_index;
    }
    "IBVERBS_1.10" {
        ibv_import_device => context::import_device;
        ibv_import_mr => region::import_mr;
        ibv_import_pd => domain::import_pd;
        ibv_query_ece => refuse::query_ece;
        ibv_set_ece => refuse::number;
        ibv_unimport_mr => region::unimport_mr;
        ibv_unimport_pd => domain::unimport_pd;
    }
    "IBVERBS_1.11" {
        _ibv_query_gid_ex => query::query_gid_ex;
        _ibv_query_gid_table => query::query_gid_table;
    }
    "IBVERBS_1.12" {
        ibv_reg_dmabuf_mr => refuse::null;
    }
    "IBVERBS_1.13" {
        ibv_import_dm => device_memory::import_dm;
        ibv_is_fork_initialized => refuse::fork_unneeded;
        ibv_unimport_dm => device_memory::unimport_dm;
    }
    "IBVERBS_1.14" {
        ibv_query_qp_data_in_order => queue_pair::query_qp_data_in_order;
    }
    "IBVERBS_PRIVATE_34" {
        __ioctl_final_num_attrs => refuse::zero;
        __verbs_log => refuse::nothing;
        _verbs_init_and_alloc_context => refuse::null;
        execute_ioctl => refuse::number;
        ibv_cmd_advise_mr => refuse::number;
        ibv_cmd_alloc_dm => refuse::number;
        ibv_cmd_alloc_mw => refuse::number;
        ibv_cmd_alloc_pd => refuse::number;
        ibv_cmd_attach_mcast => refuse::number;
        ibv_cmd_close_xrcd => refuse::number;
        ibv_cmd_create_ah => refuse::number;
        ibv_cmd_create_counters => refuse::number;
        ibv_cmd_create_cq => refuse::number;
        ibv_cmd_create_cq_ex => refuse::number;
        ibv_cmd_create_flow => refuse::number;
        ibv_cmd_create_flow_action_esp => refuse::number;
        ibv_cmd_create_qp => refuse::number;
        ibv_cmd_create_qp_ex => refuse::number;
        ibv_cmd_create_qp_ex2 => refuse::number;
        ibv_cmd_create_rwq_ind_table => refuse::number;
        ibv_cmd_create_srq => refuse::number;
        ibv_cmd_create_srq_ex => refuse::number;
        ibv_cmd_create_wq => refuse::number;
        ibv_cmd_dealloc_mw => refuse::number;
        ibv_cmd_dealloc_pd => refuse::number;
        ibv_cmd_dereg_mr => refuse::number;
        ibv_cmd_destroy_ah => refuse::number;
        ibv_cmd_destroy_counters => refuse::number;
        ibv_cmd_destroy_cq => refuse::number;
        ibv_cmd_destroy_flow => refuse::number;
        ibv_cmd_destroy_flow_action => refuse::number;
        ibv_cmd_destroy_qp => refuse::number;
        ibv_cmd_destroy_rwq_ind_table => refuse::number;
        ibv_cmd_destroy_srq => refuse::number;
        ibv_cmd_destroy_wq => refuse::number;
        ibv_cmd_detach_mcast => refuse::number;
        ibv_cmd_free_dm => refuse::number;
        ibv_cmd_get_context => refuse::number;
        ibv_cmd_modify_cq => refuse::number;
        ibv_cmd_modify_flow_action_esp => refuse::number;
        ibv_cmd_modify_qp => refuse::number;
        ibv_cmd_modify_qp_ex => refuse::number;
        ibv_cmd_modify_srq => refuse::number;
        ibv_cmd_modify_wq => refuse::number;
        ibv_cmd_open_qp => refuse::number;
        ibv_cmd_open_xrcd => refuse::number;
        ibv_cmd_poll_cq => refuse::number;
        ibv_cmd_post_recv => refuse::number;
        ibv_cmd_post_send => refuse::number;
        ibv_cmd_post_srq_recv => refuse::number;
        ibv_cmd_query_context => refuse::number;
        ibv_cmd_query_device_any => refuse::number;
        ibv_cmd_query_mr => refuse::number;
        ibv_cmd_query_port => refuse::number;
        ibv_cmd_query_qp => refuse::number;
        ibv_cmd_query_srq => refuse::number;
        ibv_cmd_read_counters => refuse::number;
        ibv_cmd_reg_dm_mr => refuse::number;
        ibv_cmd_reg_dmabuf_mr => refuse::number;
        ibv_cmd_reg_mr => refuse::number;
        ibv_cmd_req_notify_cq => refuse::number;
        ibv_cmd_rereg_mr => refuse::number;
        ibv_cmd_resize_cq => refuse::number;
        ibv_query_gid_type => query::query_gid_type;
        ibv_read_ibdev_sysfs_file => refuse::minus_one;
        verbs_init_cq => refuse::nothing;
        verbs_open_device => refuse::null;
        verbs_register_driver_34 => refuse::nothing;
        verbs_set_ops => refuse::nothing;
        verbs_uninit_context => refuse::nothing;
    }
    "RDMACM_1.0" {
        raccept => refuse::minus_one;
        rbind => refuse::minus_one;
        rclose => refuse::minus_one;
        rconnect => refuse::minus_one;
        rdma_accept => rdmacm::connect::accept;
        rdma_ack_cm_event => rdmacm::channel::ack_cm_event;
        rdma_bind_addr => rdmacm::resolve::bind_addr;
        rdma_connect => rdmacm::connect::connect;
        rdma_create_ep => rdmacm::endpoint::create_ep;
        rdma_create_event_channel => rdmacm::channel::create_event_channel;
        rdma_create_id => rdmacm::id::create_id;
        rdma_create_qp => rdmacm::queue_pair::create_qp;
        rdma_create_qp_ex => rdmacm::queue_pair::create_id_qp_ex;
        rdma_create_srq => rdmacm::queue_pair::create_srq;
        rdma_create_srq_ex => rdmacm::queue_pair::create_srq_ex;
        rdma_destroy_ep => rdmacm::endpoint::destroy_ep;
        rdma_destroy_event_channel => rdmacm::channel::destroy_event_channel;
        rdma_destroy_id => rdmacm::id::destroy_id;
        rdma_destroy_qp => rdmacm::queue_pair::destroy_qp;
        rdma_destroy_srq => rdmacm::queue_pair::destroy_srq;
        rdma_disconnect => rdmacm::connect::disconnect;
        rdma_event_str => rdmacm::names::event_str;
        rdma_free_devices => rdmacm::devices::free_devices;
        rdma_freeaddrinfo => rdmacm::information::freeaddrinfo;
        rdma_get_cm_event => rdmacm::channel::get_cm_event;
        rdma_get_devices => rdmacm::devices::get_devices;
        rdma_get_dst_port => rdmacm::resolve::get_dst_port;
        rdma_get_request => rdmacm::connect::get_request;
        rdma_get_src_port => rdmacm::resolve::get_src_port;
        rdma_getaddrinfo => rdmacm::information::getaddrinfo;
        rdma_join_multicast => rdmacm::group::join_multicast;
        rdma_leave_multicast => rdmacm::group::leave_multicast;
        rdma_listen => rdmacm::resolve::listen;
        rdma_migrate_id => rdmacm::id::migrate_id;
        rdma_notify => rdmacm::connect::notify;
        rdma_reject => rdmacm::connect::reject;
        rdma_resolve_addr => rdmacm::resolve::resolve_addr;
        rdma_resolve_route => rdmacm::resolve::resolve_route;
        rdma_set_option => rdmacm::option::set_option;
        rfcntl => refuse::minus_one;
        rgetpeername => refuse::minus_one;
        rgetsockname => refuse::minus_one;
        rgetsockopt => refuse::minus_one;
        riomap => refuse::minus_one;
        riounmap => refuse::minus_one;
        riowrite => refuse::minus_one;
        rlisten => refuse::minus_one;
        rpoll => refuse::minus_one;
        rread => refuse::minus_one;
        rreadv => refuse::minus_one;
        rrecv => refuse::minus_one;
        rrecvfrom => refuse::minus_one;
        rrecvmsg => refuse::minus_one;
        rselect => refuse::minus_one;
        rsend => refuse::minus_one;
        rsendmsg => refuse::minus_one;
        rsendto => refuse::minus_one;
        rsetsockopt => refuse::minus_one;
        rshutdown => refuse::minus_one;
        rsocket => refuse::minus_one;
        rwrite => refuse::minus_one;
        rwritev => refuse::minus_one;
    }
    "RDMACM_1.1" {
        rdma_join_multicast_ex => rdmacm::group::join_multicast_ex;
    }
    "RDMACM_1.2" {
        rdma_establish => rdmacm::connect::establish;
        rdma_init_qp_attr => rdmacm::queue_pair::init_qp_attr;
    }
    "RDMACM_1.3" {
        rdma_get_remote_ece => rdmacm::option::get_remote_ece;
        rdma_reject_ece => rdmacm::connect::reject_ece;
        rdma_set_local_ece => rdmacm::option::set_local_ece;
    }
}

//! The list of exported symbols with their versions. The build script generates the linker's version script from it.
//!
//! Each symbol is a jump to a Rust function. Rust alone cannot give a symbol a version: the names that it exports have
//! none, and programs that request a version do not find them.
//!
//! The jump goes through a slot, which holds a traced function while calls are traced. An entry that names its
//! arguments is traced: `name => function(argument, argument: show);`, where `show` is a function of `calls::show` for
//! an argument that is more than a number or pointer. `()` stands for no arguments. `as "C-unwind"` follows a function
//! that is a cancellation point.

use std::arch::global_asm;
use std::sync::atomic::AtomicPtr;

use crate::calls::{self, About, Argument, Call, optional};
use crate::verbs::{
    ah, async_event, buffer, context, cq, device, dm, mr, names, pd, qp, qp_attributes, query,
    rate, refuse, srq,
};
use crate::{rdmacm, rsocket as sockets};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp qword ptr [rip + {slot}]"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        // The intra-procedure-call scratch register: AAPCS64, 6.1.1.
        "adrp x16, {slot}\nldr x16, [x16, :lo12:{slot}]\nbr x16"
    };
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the jump instruction of this processor is missing here");

/// The type of an argument, inferred by the compiler.
macro_rules! any {
    ($argument:ident) => {
        _
    };
}

/// The type of a function with these arguments.
macro_rules! pointer {
    ([] $($argument:ident)*) => {
        unsafe extern "C" fn($(any!($argument)),*) -> _
    };
    ([$abi:literal] $($argument:ident)*) => {
        unsafe extern $abi fn($(any!($argument)),*) -> _
    };
}

/// The private ABI of libibverbs changes its version whenever one of its functions changes. Vendor drivers bind the
/// version of the release that they were built with, and do not load without it. Functions that do nothing are the same
/// in every release, so all of them are exported under every version.
macro_rules! older_versions {
    (verbs_register_driver_65, $version:tt) => {
        ""
    };
    ($name:ident, "IBVERBS_PRIVATE_65") => {
        older_versions!([$name] "25" "33" "34" "57" "59" "64")
    };
    ($name:ident, $version:tt) => {
        ""
    };
    ([$name:ident] $($older:literal)+) => {
        concat!($( ".symver ", stringify!($name), ", ", stringify!($name), "@IBVERBS_PRIVATE_", $older, "\n" ),+)
    };
}

macro_rules! exports {
    ($( $version:tt { $(
        $name:ident => $($function:ident)::+ $( ( $($argument:ident $(: $show:ident)?),* ) $( as $abi:literal )? )?;
    )+ } )+) => {
        $($(
            mod $name {
                pub(super) use super::$($function)::+ as function;
                use super::*;

                const PLAIN: *mut () = function as *mut ();
                pub(super) static SLOT: AtomicPtr<()> = AtomicPtr::new(PLAIN);

                global_asm!(
                    ".text",
                    ".balign 16",
                    concat!(".globl ", stringify!($name)),
                    concat!(".type ", stringify!($name), ", @function"),
                    concat!(stringify!($name), ":"),
                    jump!(),
                    concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
                    older_versions!($name, $version),
                    slot = sym SLOT,
                );

                pub(super) struct Traced;

                impl Call for Traced {
                    const ABOUT: About = About {
                        name: stringify!($name),
                        arguments: &[$($( Argument {
                            name: stringify!($argument),
                            show: optional!($( calls::show::$show )?),
                        } ),*)?],
                        empty_result: None,
                    };
                    fn plain() -> *mut () {
                        PLAIN
                    }
                }
            }
        )+)+

        /// Replaces every exported function that names its arguments by the traced one.
        fn install_traced() {
            $($($(
                calls::install::<$name::Traced, _>(
                    &$name::SLOT,
                    $name::function as pointer!([$($abi)?] $($argument)*),
                );
            )?)+)+
        }
    };
}

/// Runs when the library is loaded, before the program can call anything and before it has other threads: no call is
/// missed.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    calls::start(install_traced);
}

// A variable that vendor drivers set.
global_asm!(
    ".pushsection .data.verbs_allow_disassociate_destroy, \"aw\"",
    ".globl verbs_allow_disassociate_destroy",
    ".type verbs_allow_disassociate_destroy, @object",
    "verbs_allow_disassociate_destroy: .byte 0",
    ".size verbs_allow_disassociate_destroy, 1",
    older_versions!(verbs_allow_disassociate_destroy, "IBVERBS_PRIVATE_65"),
    ".popsection",
);

exports! {
    "IBVERBS_1.0" {
        ibv_copy_path_rec_from_kern => refuse::nothing();
        ibv_copy_path_rec_to_kern => refuse::nothing();
        ibv_copy_qp_attr_from_kern => refuse::nothing();
        ibv_create_comp_channel => cq::create_comp_channel(context);
        ibv_destroy_comp_channel => cq::destroy_comp_channel(channel);
        ibv_get_sysfs_path => device::get_sysfs_path();
        ibv_rate_to_mult => rate::rate_to_mult(rate);
        ibv_read_sysfs_file => device::read_sysfs_file(dir: text, file: text, buf, size);
        mult_to_ibv_rate => rate::mult_to_rate(mult);
    }
    "IBVERBS_1.1" {
        ibv_ack_async_event => async_event::ack_async_event(event: event);
        ibv_ack_cq_events => cq::ack_cq_events(cq, nevents);
        ibv_alloc_pd => pd::alloc_pd(context);
        ibv_attach_mcast => qp::attach_mcast(qp, gid: gid, lid);
        ibv_close_device => context::close_device(context);
        ibv_copy_ah_attr_from_kern => refuse::nothing();
        ibv_create_ah => ah::create_ah(pd, attr: path);
        ibv_create_ah_from_wc => ah::create_ah_from_wc(pd, wc, grh, port_num);
        ibv_create_cq => cq::create_cq(context, cqe, cq_context, channel, comp_vector);
        ibv_create_qp => qp::create_qp(pd, attr: qp_init);
        ibv_create_srq => srq::create_srq(pd, attr: srq_init);
        ibv_dealloc_pd => pd::dealloc_pd(pd);
        ibv_dereg_mr => mr::dereg_mr(mr);
        ibv_destroy_ah => ah::destroy_ah(ah);
        ibv_destroy_cq => cq::destroy_cq(cq);
        ibv_destroy_qp => qp::destroy_qp(qp);
        ibv_destroy_srq => srq::destroy_srq(srq);
        ibv_detach_mcast => qp::detach_mcast(qp, gid: gid, lid);
        ibv_dofork_range => refuse::zero();
        ibv_dontfork_range => refuse::zero();
        ibv_event_type_str => names::event_type(event: event_code);
        ibv_fork_init => refuse::zero();
        ibv_free_device_list => device::free_device_list(list);
        ibv_get_async_event => async_event::get_async_event(context, event: event) as "C-unwind";
        ibv_get_cq_event => cq::get_cq_event(channel, cq: pointer, cq_context: pointer) as "C-unwind";
        ibv_get_device_guid => device::get_device_guid(device);
        ibv_get_device_list => device::get_device_list(num_devices: number);
        ibv_get_device_name => device::get_device_name(device);
        ibv_init_ah_from_wc => ah::init_ah_from_wc(context, port_num, wc, grh, attr: path);
        ibv_modify_qp => qp_attributes::modify_qp(qp, attr: qp_attr, attr_mask: qp_mask);
        ibv_modify_srq => srq::modify_srq(srq, attr: srq_attr, attr_mask: srq_mask);
        ibv_node_type_str => names::node_type(node_type);
        ibv_open_device => context::open_device(device);
        ibv_port_state_str => names::port_state(state: port_code);
        ibv_query_device => query::query_device(context, attr: device);
        ibv_query_gid => query::query_gid(context, port_num, index, gid: gid);
        ibv_query_pkey => query::query_pkey(context, port_num, index, pkey);
        ibv_query_port => query::query_port(context, port_num, attr: port);
        ibv_query_qp => qp_attributes::query_qp(qp, attr: qp_attr, attr_mask: qp_mask, init_attr: qp_init);
        ibv_query_srq => srq::query_srq(srq, attr: srq_attr);
        ibv_rate_to_mbps => rate::rate_to_mbps(rate);
        ibv_reg_mr => mr::reg_mr(pd, addr, length, access: access_flags);
        ibv_register_driver => refuse::nothing();
        ibv_rereg_mr => mr::rereg_mr(mr, flags: rereg_flags, pd, addr, length, access: access_flags);
        ibv_resize_cq => cq::resize_cq(cq, cqe);
        ibv_resolve_eth_l2_from_gid => refuse::number();
        ibv_wc_status_str => names::wc_status(status: status_code);
        mbps_to_ibv_rate => rate::mbps_to_rate(mbps);
    }
    "IBVERBS_1.5" {
        ibv_get_pkey_index => query::get_pkey_index(context, port_num, pkey: hex);
    }
    "IBVERBS_1.6" {
        ibv_qp_to_qp_ex => qp::qp_to_qp_ex(qp);
    }
    "IBVERBS_1.7" {
        ibv_reg_mr_iova => mr::reg_mr_iova(pd, addr, length, iova: hex, access: access_flags);
    }
    "IBVERBS_1.8" {
        ibv_reg_mr_iova2 => mr::reg_mr_iova2(pd, addr, length, iova: hex, access: access_flags);
    }
    "IBVERBS_1.9" {
        ibv_get_device_index => device::get_device_index(device);
    }
    "IBVERBS_1.10" {
        ibv_import_device => context::import_device(cmd_fd);
        ibv_import_mr => mr::import_mr(pd, mr_handle);
        ibv_import_pd => pd::import_pd(context, pd_handle);
        ibv_query_ece => refuse::query_ece(qp, ece: ece);
        ibv_set_ece => refuse::number();
        ibv_unimport_mr => mr::unimport_mr(mr);
        ibv_unimport_pd => pd::unimport_pd(pd);
    }
    "IBVERBS_1.11" {
        _ibv_query_gid_ex => query::query_gid_ex(context, port_num, gid_index, entry: gid, flags, entry_size);
        _ibv_query_gid_table => query::query_gid_table(context, entries, max_entries, flags, entry_size);
    }
    "IBVERBS_1.12" {
        ibv_reg_dmabuf_mr => refuse::null();
    }
    "IBVERBS_1.13" {
        ibv_import_dm => dm::import_dm(context, dm_handle);
        ibv_is_fork_initialized => refuse::fork_unneeded();
        ibv_unimport_dm => dm::unimport_dm(dm);
    }
    "IBVERBS_1.14" {
        ibv_query_qp_data_in_order => qp::query_qp_data_in_order(qp, op, flags: hex);
    }
    "IBVERBS_1.15" {
        ibv_alloc_dmah => refuse::null();
        ibv_dealloc_dmah => refuse::number();
        ibv_reg_mr_ex => buffer::reg_mr_ex(pd, attr);
    }
    "IBVERBS_1.16" {
        ibv_dm_export_dmabuf_fd => refuse::no_descriptor();
        ibv_query_port_speed => query::query_port_speed(context, port_num, port_speed);
    }
    "IBVERBS_1.17" {
        ibv_alloc_buf => buffer::alloc_buf(pd, size, buf: pointer);
        ibv_free_buf => buffer::free_buf(buf);
        ibv_reg_buf_mr => buffer::reg_buf_mr(pd, buf, addr, length, access: access_flags);
    }
    "IBVERBS_1.18" {
        _ibv_query_comp_cntr_caps => refuse::number();
        ibv_create_comp_cntr => refuse::null();
        ibv_destroy_comp_cntr => refuse::number();
        ibv_export_buf_dmabuf_fd => buffer::export_buf_dmabuf_fd(buf);
        ibv_inc_comp_cntr => refuse::number();
        ibv_inc_err_comp_cntr => refuse::number();
        ibv_qp_attach_comp_cntr => refuse::number();
        ibv_read_comp_cntr => refuse::number();
        ibv_read_err_comp_cntr => refuse::number();
        ibv_set_comp_cntr => refuse::number();
        ibv_set_err_comp_cntr => refuse::number();
    }
    "IBVERBS_PRIVATE_25" {
        verbs_register_driver_25 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_33" {
        verbs_register_driver_33 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_34" {
        verbs_register_driver_34 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_57" {
        verbs_register_driver_57 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_59" {
        verbs_register_driver_59 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_64" {
        verbs_register_driver_64 => refuse::nothing();
    }
    "IBVERBS_PRIVATE_65" {
        __ioctl_final_num_attrs => refuse::zero();
        __verbs_log => refuse::nothing();
        _verbs_init_and_alloc_context => refuse::null();
        execute_ioctl => refuse::number();
        ibv_cmd_advise_mr => refuse::number();
        ibv_cmd_alloc_dm => refuse::number();
        ibv_cmd_alloc_dmah => refuse::number();
        ibv_cmd_alloc_mw => refuse::number();
        ibv_cmd_alloc_pd => refuse::number();
        ibv_cmd_attach_mcast => refuse::number();
        ibv_cmd_close_xrcd => refuse::number();
        ibv_cmd_create_ah => refuse::number();
        ibv_cmd_create_comp_cntr => refuse::number();
        ibv_cmd_create_counters => refuse::number();
        ibv_cmd_create_cq => refuse::number();
        ibv_cmd_create_cq_ex => refuse::number();
        ibv_cmd_create_cq_ex2 => refuse::number();
        ibv_cmd_create_flow => refuse::number();
        ibv_cmd_create_flow_action_esp => refuse::number();
        ibv_cmd_create_qp => refuse::number();
        ibv_cmd_create_qp_ex => refuse::number();
        ibv_cmd_create_qp_ex2 => refuse::number();
        ibv_cmd_create_rwq_ind_table => refuse::number();
        ibv_cmd_create_srq => refuse::number();
        ibv_cmd_create_srq_ex => refuse::number();
        ibv_cmd_create_wq => refuse::number();
        ibv_cmd_dealloc_mw => refuse::number();
        ibv_cmd_dealloc_pd => refuse::number();
        ibv_cmd_dereg_mr => refuse::number();
        ibv_cmd_destroy_ah => refuse::number();
        ibv_cmd_destroy_comp_cntr => refuse::number();
        ibv_cmd_destroy_counters => refuse::number();
        ibv_cmd_destroy_cq => refuse::number();
        ibv_cmd_destroy_flow => refuse::number();
        ibv_cmd_destroy_flow_action => refuse::number();
        ibv_cmd_destroy_qp => refuse::number();
        ibv_cmd_destroy_rwq_ind_table => refuse::number();
        ibv_cmd_destroy_srq => refuse::number();
        ibv_cmd_destroy_wq => refuse::number();
        ibv_cmd_detach_mcast => refuse::number();
        ibv_cmd_export_dmabuf_fd => refuse::number();
        ibv_cmd_free_dm => refuse::number();
        ibv_cmd_free_dmah => refuse::number();
        ibv_cmd_get_context => refuse::number();
        ibv_cmd_inc_comp_cntr => refuse::number();
        ibv_cmd_inc_err_comp_cntr => refuse::number();
        ibv_cmd_modify_cq => refuse::number();
        ibv_cmd_modify_flow_action_esp => refuse::number();
        ibv_cmd_modify_qp => refuse::number();
        ibv_cmd_modify_qp_ex => refuse::number();
        ibv_cmd_modify_srq => refuse::number();
        ibv_cmd_modify_wq => refuse::number();
        ibv_cmd_open_qp => refuse::number();
        ibv_cmd_open_xrcd => refuse::number();
        ibv_cmd_poll_cq => refuse::number();
        ibv_cmd_post_recv => refuse::number();
        ibv_cmd_post_send => refuse::number();
        ibv_cmd_post_srq_recv => refuse::number();
        ibv_cmd_qp_attach_comp_cntr => refuse::number();
        ibv_cmd_query_comp_cntr_caps => refuse::number();
        ibv_cmd_query_context => refuse::number();
        ibv_cmd_query_device => refuse::number();
        ibv_cmd_query_device_any => refuse::number();
        ibv_cmd_query_mr => refuse::number();
        ibv_cmd_query_port => refuse::number();
        ibv_cmd_query_port_speed => refuse::number();
        ibv_cmd_query_qp => refuse::number();
        ibv_cmd_query_srq => refuse::number();
        ibv_cmd_read_comp_cntr => refuse::number();
        ibv_cmd_read_counters => refuse::number();
        ibv_cmd_read_err_comp_cntr => refuse::number();
        ibv_cmd_reg_dm_mr => refuse::number();
        ibv_cmd_reg_dmabuf_mr => refuse::number();
        ibv_cmd_reg_mr => refuse::number();
        ibv_cmd_reg_mr_ex => refuse::number();
        ibv_cmd_req_notify_cq => refuse::number();
        ibv_cmd_rereg_mr => refuse::number();
        ibv_cmd_resize_cq => refuse::number();
        ibv_cmd_set_comp_cntr => refuse::number();
        ibv_cmd_set_err_comp_cntr => refuse::number();
        ibv_dmabuf_heap_alloc => refuse::null();
        ibv_dmabuf_heap_cc_shared_init => refuse::null();
        ibv_dmabuf_heap_destroy => refuse::nothing();
        ibv_dmabuf_heap_free => refuse::nothing();
        ibv_query_gid_type => query::query_gid_type(context, port_num, index, gid_type: number);
        ibv_read_ibdev_sysfs_file => refuse::minus_one();
        ibv_wr_opcode_str => names::wr_opcode(opcode);
        verbs_init_cq => refuse::nothing();
        verbs_open_device => refuse::null();
        verbs_register_driver_65 => refuse::nothing();
        verbs_set_ops => refuse::nothing();
        verbs_uninit_context => refuse::nothing();
    }
    "RDMACM_1.0" {
        raccept => sockets::connect::raccept(socket, addr, addrlen);
        rbind => sockets::connect::rbind(socket, addr, addrlen);
        rclose => sockets::connect::rclose(socket);
        rconnect => sockets::connect::rconnect(socket, addr, addrlen);
        rdma_accept => rdmacm::connect::accept(id, param);
        rdma_ack_cm_event => rdmacm::channel::ack_cm_event(event);
        rdma_bind_addr => rdmacm::resolve::bind_addr(id, address);
        rdma_connect => rdmacm::connect::connect(id, param);
        rdma_create_ep => rdmacm::endpoint::create_ep(out, about, pd, attr);
        rdma_create_event_channel => rdmacm::channel::create_event_channel();
        rdma_create_id => rdmacm::id::create_id(channel, out, context, ps);
        rdma_create_qp => rdmacm::queue_pair::create_qp(id, pd, attr: qp_init);
        rdma_create_qp_ex => rdmacm::queue_pair::create_id_qp_ex(id, attr);
        rdma_create_srq => rdmacm::queue_pair::create_srq(id, pd, attr: srq_init);
        rdma_create_srq_ex => rdmacm::queue_pair::create_srq_ex(id, attr: srq_init_ex);
        rdma_destroy_ep => rdmacm::endpoint::destroy_ep(id);
        rdma_destroy_event_channel => rdmacm::channel::destroy_event_channel(channel);
        rdma_destroy_id => rdmacm::id::destroy_id(id);
        rdma_destroy_qp => rdmacm::queue_pair::destroy_qp(id);
        rdma_destroy_srq => rdmacm::queue_pair::destroy_srq(id);
        rdma_disconnect => rdmacm::connect::disconnect(id);
        rdma_event_str => rdmacm::names::event_str(event);
        rdma_free_devices => rdmacm::devices::free_devices(list);
        rdma_freeaddrinfo => rdmacm::information::freeaddrinfo(list);
        rdma_get_cm_event => rdmacm::channel::get_cm_event(channel, out) as "C-unwind";
        rdma_get_devices => rdmacm::devices::get_devices(number);
        rdma_get_dst_port => rdmacm::resolve::get_dst_port(id);
        rdma_get_request => rdmacm::connect::get_request(listen, out) as "C-unwind";
        rdma_get_src_port => rdmacm::resolve::get_src_port(id);
        rdma_getaddrinfo => rdmacm::information::getaddrinfo(node, service, hints, out);
        rdma_join_multicast => rdmacm::group::join_multicast(id, address, context);
        rdma_leave_multicast => rdmacm::group::leave_multicast(id, address);
        rdma_listen => rdmacm::resolve::listen(id, backlog);
        rdma_migrate_id => rdmacm::id::migrate_id(id, channel);
        rdma_notify => rdmacm::connect::notify(id, event);
        rdma_reject => rdmacm::connect::reject(id, data, length);
        rdma_resolve_addr => rdmacm::resolve::resolve_addr(id, source, destination, timeout);
        rdma_resolve_route => rdmacm::resolve::resolve_route(id, timeout);
        rdma_set_option => rdmacm::option::set_option(id, level, name, data, length);
        rfcntl => sockets::options::rfcntl(socket, cmd, arg);
        rgetpeername => sockets::connect::rgetpeername(socket, addr, addrlen);
        rgetsockname => sockets::connect::rgetsockname(socket, addr, addrlen);
        rgetsockopt => sockets::options::rgetsockopt(socket, level, optname, optval, optlen);
        riomap => sockets::iomap::riomap(socket, buf, len, prot, flags, offset);
        riounmap => sockets::iomap::riounmap(socket, buf, len);
        riowrite => sockets::iomap::riowrite(socket, buf, count, offset, flags);
        rlisten => sockets::connect::rlisten(socket, backlog);
        rpoll => sockets::poll::rpoll(fds, nfds, timeout);
        rread => sockets::transfer::rread(socket, buf, count);
        rreadv => sockets::transfer::rreadv(socket, iov, iovcnt);
        rrecv => sockets::transfer::rrecv(socket, buf, len, flags);
        rrecvfrom => sockets::transfer::rrecvfrom(socket, buf, len, flags, src_addr, addrlen);
        rrecvmsg => sockets::transfer::rrecvmsg(socket, msg, flags);
        rselect => sockets::poll::rselect(nfds, readfds, writefds, exceptfds, timeout);
        rsend => sockets::transfer::rsend(socket, buf, len, flags);
        rsendmsg => sockets::transfer::rsendmsg(socket, msg, flags);
        rsendto => sockets::transfer::rsendto(socket, buf, len, flags, dest_addr, addrlen);
        rsetsockopt => sockets::options::rsetsockopt(socket, level, optname, optval, optlen);
        rshutdown => sockets::connect::rshutdown(socket, how);
        rsocket => sockets::connect::rsocket(domain, type_, protocol);
        rwrite => sockets::transfer::rwrite(socket, buf, count);
        rwritev => sockets::transfer::rwritev(socket, iov, iovcnt);
    }
    "RDMACM_1.1" {
        rdma_join_multicast_ex => rdmacm::group::join_multicast_ex(id, attr, context);
    }
    "RDMACM_1.2" {
        rdma_establish => rdmacm::connect::establish(id);
        rdma_init_qp_attr => rdmacm::queue_pair::init_qp_attr(id, attr, mask);
    }
    "RDMACM_1.3" {
        rdma_get_remote_ece => rdmacm::option::get_remote_ece(id, ece);
        rdma_reject_ece => rdmacm::connect::reject_ece(id, data, length);
        rdma_set_local_ece => rdmacm::option::set_local_ece(id, ece);
    }
    "RDMACM_1.4" {
        rdma_query_addrinfo => rdmacm::user_event::query_addrinfo(id, out);
        rdma_resolve_addrinfo => rdmacm::user_event::resolve_addrinfo(id, node: text, service: text, hints);
        rdma_write_cm_event => rdmacm::user_event::write_cm_event(id, event, status, arg: hex);
    }
    "RDMACM_1.5" {
        repoll_create => sockets::epoll::repoll_create(flags: hex);
        repoll_ctl => sockets::epoll::repoll_ctl(epfd, op, fd, event);
        repoll_wait => sockets::epoll::repoll_wait(epfd, events, maxevents, timeout);
    }
}

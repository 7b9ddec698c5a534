//! Attributes of devices, ports, and the GID and P_Key tables.

use std::ffi::c_int;
use std::ptr;

use ferroce::{Context, Device, PathMtu, identity};

use crate::abi::Abi;
use crate::abi::constants::{device as flag, odp, port};
use crate::abi::context::ibv_context;
use crate::abi::device::*;
use crate::convert::{gid_out, text};
use crate::entry::{self, Errno, Result};
use crate::handle::context::ContextHandle;

/// Maximum device memory of a process, in bytes: it is ordinary memory.
pub(crate) const DEVICE_MEMORY: u64 = 1 << 26;
/// The largest message, 2^31 bytes (IBA 9.7.4.1.6).
const MESSAGE: u32 = 1 << 31;
/// Length of the older `ibv_port_attr`, which ends before `port_cap_flags2`.
const OLD_PORT_ATTR: usize = 48;
/// The value in `ibv_gid_entry`; in other calls, RoCE v1 is 0.
const GID_TYPE_ROCE_V2: u32 = 2;
const GID_TYPE_SYSFS_ROCE_V2: u32 = 1;
/// The speed of a port in units of 100 Mbit/s.
const SPEED: u64 = 1000;
const DEFAULT_PARTITION: u16 = 0xffff;

/// Copies a structure, truncated to the size of the program's, and zeroes the rest of a larger one.
///
/// # Safety
/// The program's structure has this size.
unsafe fn copy_out<T>(value: &T, to: *mut T, size: usize) -> Result<()> {
    if to.is_null() {
        return Err(Errno::INVALID);
    }
    let length = size.min(size_of::<T>());
    // SAFETY: both have at least this length.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), to.cast::<u8>(), length);
        ptr::write_bytes(to.cast::<u8>().add(length), 0, size - length);
    }
    Ok(())
}

fn attributes(device: &Device) -> ibv_device_attr {
    let limits = device.limits();
    let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let guid = device.guid().to_be();
    ibv_device_attr {
        fw_ver: text(identity::FIRMWARE_VERSION),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: limits.max_mr_size,
        // All page sizes from 4 KiB.
        page_size_cap: !0xfff,
        vendor_id: identity::VENDOR_ID,
        vendor_part_id: identity::VENDOR_PART_ID,
        hw_ver: identity::HARDWARE_VERSION,
        max_qp: number(limits.max_qp),
        max_qp_wr: number(limits.max_qp_wr),
        device_cap_flags: flag::CURR_QP_STATE_MOD
            | flag::RC_RNR_NAK_GEN
            | flag::SRQ_RESIZE
            | flag::MEM_WINDOW
            | flag::XRC
            | flag::MEM_MGT_EXTENSIONS
            | flag::MEM_WINDOW_TYPE_2B,
        max_sge: number(limits.max_sge),
        max_sge_rd: number(limits.max_sge),
        max_cq: number(limits.max_cq),
        max_cqe: number(limits.max_cqe),
        max_mr: number(limits.max_mr),
        max_pd: number(limits.max_pd),
        max_qp_rd_atom: limits.max_rd_atomic.into(),
        max_res_rd_atom: c_int::from(limits.max_rd_atomic).saturating_mul(number(limits.max_qp)),
        max_qp_init_rd_atom: limits.max_rd_atomic.into(),
        // IBV_ATOMIC_HCA, as rdma_rxe. Atomics are executed by the processor, so they are atomic for programs as well,
        // which would be IBV_ATOMIC_GLOB; but UCX before 1.14 takes that for a device without atomics.
        atomic_cap: 1,
        max_mw: number(limits.max_mr),
        max_mcast_grp: number(limits.max_mcast_grp),
        max_mcast_qp_attach: number(limits.max_qp),
        max_total_mcast_qp_attach: number(limits.max_qp),
        max_ah: c_int::MAX,
        max_srq: number(limits.max_srq),
        max_srq_wr: number(limits.max_qp_wr),
        max_srq_sge: number(limits.max_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..Abi::zeroed()
    }
}

fn attributes_ex(device: &Device) -> ibv_device_attr_ex {
    let datagrams = odp::SEND | odp::RECV | odp::SRQ_RECV;
    let reliable = datagrams | odp::WRITE | odp::READ | odp::ATOMIC;
    let orig_attr = attributes(device);
    ibv_device_attr_ex {
        orig_attr,
        odp_caps: ibv_odp_caps {
            // ODP, and implicit ODP of the whole address space.
            general_caps: 3,
            rc_odp_caps: reliable,
            uc_odp_caps: datagrams | odp::WRITE,
            ud_odp_caps: datagrams,
        },
        // Nanoseconds.
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: 1_000_000,
        device_cap_flags_ex: orig_attr.device_cap_flags.into(),
        max_dm_size: DEVICE_MEMORY,
        xrc_odp_caps: reliable,
        phys_port_cnt_ex: 1,
        ..Abi::zeroed()
    }
}

fn port_attributes(context: &Context) -> ibv_port_attr {
    let active = context.is_active();
    let mtu = |mtu: PathMtu| u32::from(mtu.0);
    ibv_port_attr {
        // Active, or down.
        state: if active { 4 } else { 1 },
        max_mtu: mtu(PathMtu::MTU_4096),
        active_mtu: mtu(context.mtu()),
        gid_tbl_len: context.limits().gid_tbl_len.into(),
        port_cap_flags: port::CM_SUP | port::IP_BASED_GIDS,
        max_msg_sz: MESSAGE,
        pkey_tbl_len: 1,
        lid: context.device().lid(),
        max_vl_num: 1,
        // 4 lanes of 25 Gbit/s ([`SPEED`]): a nominal value, since the speed of a software device is unknown.
        active_width: 2,
        active_speed: 32,
        // Link up, or disabled.
        phys_state: if active { 5 } else { 3 },
        // Ethernet, whose packets all have a GRH.
        link_layer: 2,
        flags: 1,
        ..Abi::zeroed()
    }
}

fn check_port(port: u32) -> Result<()> {
    if port == 1 { Ok(()) } else { Err(Errno::INVALID) }
}

pub(crate) unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's context.
        let context = unsafe { ContextHandle::of(context) }?;
        // SAFETY: the program's structure.
        *unsafe { entry::write(attr) }? = attributes(context.open.context.device());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const u32,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    entry::number(|| {
        // SAFETY: null, or a structure that starts with the mask of extensions, of which there are none.
        if unsafe { input.as_ref() }.is_some_and(|&extensions| extensions != 0) {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's context.
        let context = unsafe { ContextHandle::of(context) }?;
        if size < size_of::<ibv_device_attr>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program passes the size of its structure is.
        unsafe { copy_out(&attributes_ex(context.open.context.device()), attr, size) }
    })
}

pub(crate) unsafe extern "C" fn query_port_sized(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    entry::number(|| {
        check_port(port.into())?;
        // SAFETY: the program's context.
        let context = unsafe { ContextHandle::of(context) }?;
        // SAFETY: the program passes the size of its structure is.
        unsafe { copy_out(&port_attributes(&context.open.context), attr, size) }
    })
}

pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: programs that call this may have the old structure.
    unsafe { query_port_sized(context, port, attr, OLD_PORT_ATTR) }
}

pub(crate) unsafe extern "C" fn query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    entry::number(|| {
        check_port(port)?;
        // SAFETY: the program's context.
        unsafe { ContextHandle::of(context) }?;
        // SAFETY: the program's number.
        *unsafe { entry::write(speed) }? = SPEED;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut [u64; 2],
) -> c_int {
    entry::count(|| {
        check_port(port.into())?;
        // SAFETY: the program's context.
        let context = &unsafe { ContextHandle::of(context) }?.open.context;
        let index = gid_index(context, index.try_into().map_err(|_| Errno::INVALID)?)?;
        let entry = context.device().gids().get(index).map(|entry| entry.gid);
        // SAFETY: the program's GID.
        *unsafe { entry::write(gid) }? = entry.map_or([0; 2], gid_out);
        Ok(0)
    })
}

/// Checks an index of the GID table, whose entry may be empty.
fn gid_index(context: &Context, index: u32) -> Result<usize> {
    if index < context.limits().gid_tbl_len.into() {
        Ok(index as usize)
    } else {
        Err(Errno::INVALID)
    }
}

fn gid_entries(context: &Context) -> Vec<ibv_gid_entry> {
    let ndev_ifindex = context.device().interface().index;
    let entry = |(index, gid): (usize, ferroce::GidEntry)| ibv_gid_entry {
        gid: gid_out(gid.gid),
        gid_index: index as u32,
        port_num: 1,
        gid_type: GID_TYPE_ROCE_V2,
        ndev_ifindex,
    };
    context.device().gids().into_iter().enumerate().map(entry).collect()
}

pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    entry::number(|| {
        check_port(port)?;
        if flags != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's context.
        let context = &unsafe { ContextHandle::of(context) }?.open.context;
        let entries = gid_entries(context);
        let found = entries.get(gid_index(context, index)?).ok_or(Errno(libc::ENODATA))?;
        // SAFETY: the program passes the size of its entry is.
        unsafe { copy_out(found, entry, size) }
    })
}

pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    out: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    let copied = entry::run(|| {
        // SAFETY: the program's context.
        let entries = gid_entries(&unsafe { ContextHandle::of(context) }?.open.context);
        if flags != 0 || entries.len() > max {
            return Err(Errno::INVALID);
        }
        for (index, entry) in entries.iter().enumerate() {
            // SAFETY: the program's table has `max` entries of this size.
            unsafe { copy_out(entry, out.byte_add(index * size), size)? };
        }
        Ok(entries.len() as isize)
    });
    copied.unwrap_or_else(|error| -(error.0 as isize))
}

pub(crate) unsafe extern "C" fn query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    kind: *mut u32,
) -> c_int {
    entry::count(|| {
        check_port(port.into())?;
        // SAFETY: the program's context.
        let gids = unsafe { ContextHandle::of(context) }?.open.context.device().gids();
        gids.get(index as usize).ok_or(Errno::INVALID)?;
        // SAFETY: the program's number.
        *unsafe { entry::write(kind) }? = GID_TYPE_SYSFS_ROCE_V2;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    entry::count(|| {
        check_port(port.into())?;
        if index != 0 {
            return Err(Errno::INVALID);
        }
        // SAFETY: the program's number.
        *unsafe { entry::write(pkey) }? = DEFAULT_PARTITION.to_be();
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn get_pkey_index(
    _context: *mut ibv_context,
    port: u8,
    pkey: u16,
) -> c_int {
    entry::count(|| {
        check_port(port.into())?;
        if u16::from_be(pkey) == DEFAULT_PARTITION { Ok(0) } else { Err(Errno::INVALID) }
    })
}

pub(crate) unsafe extern "C" fn query_rt_values(
    _context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's structure.
        let values = unsafe { entry::write(values) }?;
        // The raw clock is the only value supported.
        if values.comp_mask & 1 != 0 {
            let now = ferroce::clock::now();
            values.raw_clock = [(now / 1_000_000_000) as i64, (now % 1_000_000_000) as i64];
        }
        values.comp_mask &= 1;
        Ok(())
    })
}

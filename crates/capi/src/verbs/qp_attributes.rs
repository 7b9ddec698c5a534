//! QP attributes.

use std::ffi::c_int;

use ferroce::{
    AccessFlags, AckTimeout, AlternatePath, AttributeMask, Device, Migration, PathMtu, Psn, QKey,
    Qpn, QueuePairAttributes, RnrRetry, RnrTimer, ServiceType, State,
};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_qp_attr, ibv_qp_init_attr};
use crate::abi::objects::ibv_qp;
use crate::convert::{capabilities_in, capabilities_out, check_lid, vector_in, vector_out};
use crate::entry::{self, Result};
use crate::handle::Handle;
use crate::handle::qp::QpHandle;
use crate::reason::invalid;

const MIGRATIONS: [Migration; 3] = [Migration::Migrated, Migration::Rearm, Migration::Armed];

/// Converts the attributes in the mask.
fn change(attr: &ibv_qp_attr, mask: u32, device: &Device) -> Result<QueuePairAttributes> {
    let unknown = mask & !AttributeMask::ALL.bits();
    if unknown != 0 {
        return Err(invalid(format_args!("attr_mask has unknown bits {unknown:#x}")));
    }
    let has = |one: AttributeMask| mask & one.bits() != 0;
    let state = |code: u32| {
        State::from_code(code).ok_or_else(|| invalid(format_args!("qp_state {code} is unknown")))
    };
    let given = |one: AttributeMask| has(one).then_some(());
    Ok(QueuePairAttributes {
        state: given(AttributeMask::STATE).map(|()| state(attr.qp_state)).transpose()?,
        current_state: given(AttributeMask::CURRENT_STATE)
            .map(|()| state(attr.cur_qp_state))
            .transpose()?,
        drain_notice: given(AttributeMask::DRAIN_NOTICE).map(|()| attr.en_sqd_async_notify != 0),
        access: given(AttributeMask::ACCESS)
            .map(|()| AccessFlags::from_bits_retain(attr.qp_access_flags)),
        partition: given(AttributeMask::PARTITION).map(|()| attr.pkey_index),
        port: given(AttributeMask::PORT).map(|()| attr.port_num),
        queue_key: given(AttributeMask::QUEUE_KEY).map(|()| QKey(attr.qkey)),
        path: given(AttributeMask::PATH).map(|()| vector_in(&attr.ah_attr, device)).transpose()?,
        path_mtu: given(AttributeMask::PATH_MTU).map(|()| PathMtu(attr.path_mtu as u8)),
        timeout: given(AttributeMask::TIMEOUT).map(|()| AckTimeout(attr.timeout)),
        retry_count: given(AttributeMask::RETRY_COUNT).map(|()| attr.retry_cnt),
        rnr_retry: given(AttributeMask::RNR_RETRY).map(|()| RnrRetry(attr.rnr_retry)),
        receive_psn: given(AttributeMask::RECEIVE_PSN).map(|()| Psn(attr.rq_psn & 0xff_ffff)),
        max_rd_atomic: given(AttributeMask::MAX_RD_ATOMIC).map(|()| attr.max_rd_atomic),
        alternate_path: given(AttributeMask::ALTERNATE_PATH)
            .map(|()| alternate_path(attr, device))
            .transpose()?,
        min_rnr_timer: given(AttributeMask::MIN_RNR_TIMER)
            .map(|()| {
                let code = attr.min_rnr_timer;
                let timer = RnrTimer::from_code(code);
                timer.ok_or_else(|| {
                    invalid(format_args!("min_rnr_timer {code}: the valid codes are 0 to 31"))
                })
            })
            .transpose()?,
        send_psn: given(AttributeMask::SEND_PSN).map(|()| Psn(attr.sq_psn & 0xff_ffff)),
        max_dest_rd_atomic: given(AttributeMask::MAX_DEST_RD_ATOMIC)
            .map(|()| attr.max_dest_rd_atomic),
        migration: given(AttributeMask::MIGRATION)
            .map(|()| {
                let (code, known) = (attr.path_mig_state, MIGRATIONS);
                let found = known.get(code as usize).copied();
                found.ok_or_else(|| invalid(format_args!("path_mig_state {code} is unknown")))
            })
            .transpose()?,
        capabilities: given(AttributeMask::CAPABILITIES).map(|()| capabilities_in(&attr.cap)),
        destination: given(AttributeMask::DESTINATION).map(|()| Qpn(attr.dest_qp_num)),
        rate_limit: given(AttributeMask::RATE_LIMIT).map(|()| attr.rate_limit),
    })
}

fn alternate_path(attr: &ibv_qp_attr, device: &Device) -> Result<AlternatePath> {
    let (partition, timeout) = (attr.alt_pkey_index, AckTimeout(attr.alt_timeout));
    Ok(AlternatePath { path: vector_in(&attr.alt_ah_attr, device)?, partition, timeout })
}

/// Attributes that programs set on both ends of XRC although one end does not use them: devices ignore them.
fn without_meaning(service: ServiceType) -> AttributeMask {
    match service {
        ServiceType::XrcInitiator => {
            AttributeMask::MIN_RNR_TIMER | AttributeMask::MAX_DEST_RD_ATOMIC
        }
        ServiceType::XrcTarget => {
            AttributeMask::RETRY_COUNT | AttributeMask::RNR_RETRY | AttributeMask::MAX_RD_ATOMIC
        }
        _ => AttributeMask::NONE,
    }
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair and structure.
        let (handle, attr) = unsafe { (QpHandle::of(qp.cast())?, entry::read(attr)?) };
        let device = handle.queue_pair.context().device();
        let mut change = change(attr, mask as u32, device)?;
        if change.path.is_some() && change.destination.is_some() {
            check_lid(attr, handle.queue_pair.context())?;
        }
        change.clear(without_meaning(handle.service));
        let requested = change.state.is_some();
        let state = handle.queue_pair.modify(&change)?;
        if requested {
            handle.show_state(state);
        }
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    entry::number(|| {
        // SAFETY: the program's queue pair and structures.
        let (handle, attr, init) =
            unsafe { (QpHandle::of(qp.cast())?, entry::write(attr)?, entry::write(init)?) };
        let cap = capabilities_out(&handle.queue_pair.capabilities());
        let now = handle.queue_pair.attributes();
        let state = handle.queue_pair.state();
        *attr = ibv_qp_attr { cap, ..attributes_out(&now, state) };
        attr.sq_draining = handle.queue_pair.is_draining().into();
        // The mask is a hint, and everything is returned; but the public field changes only with this bit.
        if mask as u32 & AttributeMask::STATE.bits() != 0 {
            handle.show_state(state);
        }
        // SAFETY: as above.
        let shown = unsafe { &*qp };
        *init = ibv_qp_init_attr {
            qp_context: shown.qp_context,
            send_cq: shown.send_cq,
            recv_cq: shown.recv_cq,
            srq: shown.srq,
            cap,
            qp_type: shown.qp_type,
            sq_sig_all: handle.signal_all.into(),
        };
        Ok(())
    })
}

/// Converts attributes for the program; unset ones are zero.
pub(crate) fn attributes_out(now: &QueuePairAttributes, state: State) -> ibv_qp_attr {
    let alternate = now.alternate_path;
    ibv_qp_attr {
        qp_state: state.code(),
        cur_qp_state: state.code(),
        path_mtu: now.path_mtu.map_or(0, |mtu| mtu.0.into()),
        path_mig_state: now.migration.map_or(0, |migration| migration as u32),
        qkey: now.queue_key.map_or(0, |key| key.0),
        rq_psn: now.receive_psn.map_or(0, |psn| psn.0),
        sq_psn: now.send_psn.map_or(0, |psn| psn.0),
        dest_qp_num: now.destination.map_or(0, |number| number.0),
        qp_access_flags: now.access.map_or(0, |access| access.bits()),
        ah_attr: now.path.as_ref().map_or_else(Abi::zeroed, vector_out),
        alt_ah_attr: alternate.map_or_else(Abi::zeroed, |path| vector_out(&path.path)),
        pkey_index: now.partition.unwrap_or(0),
        alt_pkey_index: alternate.map_or(0, |path| path.partition),
        en_sqd_async_notify: now.drain_notice.unwrap_or(false).into(),
        max_rd_atomic: now.max_rd_atomic.unwrap_or(0),
        max_dest_rd_atomic: now.max_dest_rd_atomic.unwrap_or(0),
        min_rnr_timer: now.min_rnr_timer.map_or(0, RnrTimer::code),
        port_num: now.port.unwrap_or(0),
        timeout: now.timeout.map_or(0, |timeout| timeout.0),
        retry_cnt: now.retry_count.unwrap_or(0),
        rnr_retry: now.rnr_retry.map_or(0, |retry| retry.0),
        alt_port_num: alternate.map_or(0, |path| path.path.port),
        alt_timeout: alternate.map_or(0, |path| path.timeout.0),
        rate_limit: now.rate_limit.unwrap_or(0),
        ..Abi::zeroed()
    }
}

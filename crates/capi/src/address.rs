//! Address handles, and addresses.

use std::ffi::c_int;

use ferroce::{AddressHandle, AddressVector, Context, Device, Gid, Qpn};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_ah_attr, ibv_global_route, ibv_qp_attr};
use crate::abi::constants::wc_flags;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_ah, ibv_pd};
use crate::abi::work::ibv_wc;
use crate::context::ContextHandle;
use crate::entry::{self, Errno, Result};
use crate::handle::{Handle, Shown, handle};
use crate::pd::PdHandle;
use crate::query::{gid_in, gid_out};

#[repr(C)]
pub(crate) struct PathHandle {
    shown: Shown<ibv_ah>,
    pub(crate) address: AddressHandle,
}

handle!(PathHandle, shown, ibv_ah);

/// A way as the library knows it. Over Ethernet all are global (IBA A17).
pub(crate) fn vector_in(attr: &ibv_ah_attr, device: &Device) -> Result<AddressVector> {
    if attr.port_num != 1 {
        return Err(Errno::INVALID);
    }
    if attr.is_global == 0 {
        return itself(attr, device).ok_or(Errno::INVALID);
    }
    Ok(AddressVector {
        port: attr.port_num,
        source_index: attr.grh.sgid_index,
        destination: gid_in(attr.grh.dgid),
        flow_label: attr.grh.flow_label & 0xf_ffff,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
        service_level: attr.sl & 0xf,
    })
}

/// The way of programs that know of LIDs alone, such as qperf: to this host, for the port's own LID. Other hosts have the
/// same, so that a queue pair's destination has to be here, too: see [`check_lid`].
fn itself(attr: &ibv_ah_attr, device: &Device) -> Option<AddressVector> {
    let gids = device.gids();
    let loopback = gids.iter().position(|entry| entry.address.ip().is_loopback());
    let index = loopback.unwrap_or(0);
    let entry = gids.get(index).filter(|_| attr.dlid == device.lid())?;
    Some(AddressVector {
        port: attr.port_num,
        source_index: u8::try_from(index).ok()?,
        destination: entry.gid,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 1,
        service_level: attr.sl & 0xf,
    })
}

/// Whether a queue pair that is connected by LIDs has its peer on this host. Between hosts they say nothing, and it is an
/// error as on all Ethernet.
pub(crate) fn check_lid(attr: &ibv_qp_attr, context: &Context) -> Result<()> {
    let by_lid = attr.ah_attr.is_global == 0 && !context.device().interface().loopback;
    if by_lid && !context.is_on_this_host(Qpn(attr.dest_qp_num)) {
        return Err(Errno::INVALID);
    }
    Ok(())
}

pub(crate) fn vector_out(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid_out(vector.destination),
            flow_label: vector.flow_label,
            sgid_index: vector.source_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        sl: vector.service_level,
        is_global: 1,
        port_num: vector.port,
        ..Abi::zeroed()
    }
}

pub(crate) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    entry::pointer(|| {
        // SAFETY: the program's domain and structure.
        let (domain, attr) = unsafe { (&PdHandle::of(pd)?.domain, entry::read(attr)?) };
        let address = domain.address_handle(&vector_in(attr, domain.context().device())?)?;
        // SAFETY: as above.
        let context = unsafe { (*pd).context };
        Ok(PathHandle { shown: Shown::new(ibv_ah { context, pd, handle: 0 }), address }.give())
    })
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    entry::number(|| {
        // SAFETY: the program's handle.
        unsafe { PathHandle::of(ah) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { PathHandle::take(ah) });
        Ok(())
    })
}

/// The way back to who sent a datagram, from the header in front of it: that of IPv6, or that of IPv4 in the last 20
/// bytes (IBA A17).
fn way_back(device: &Device, header: &[u8; 40]) -> Result<ibv_ah_attr> {
    let mapped = |at: usize| {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&header[at..at + 4]);
        Gid(gid)
    };
    let whole = |at: usize| {
        let mut gid = [0; 16];
        gid.copy_from_slice(&header[at..at + 16]);
        Gid(gid)
    };
    let (source, destination, traffic_class, flow_label) = if header[0] >> 4 == 6 {
        let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        (whole(8), whole(24), (word >> 20) as u8, word & 0xf_ffff)
    } else {
        (mapped(32), mapped(36), header[21], 0)
    };
    let gids = device.gids();
    // A datagram to a group came to no address of ours: any of its family will do.
    let ours = gids.iter().position(|entry| entry.gid == destination);
    let family = gids.iter().position(|entry| entry.address.is_ipv4() == source.to_ip().is_ipv4());
    // To the loopback it does not matter, and its addresses may not be in the table.
    let any = source.to_ip().is_loopback().then_some(0);
    let index = ours.or(family).or(any).ok_or(Errno::INVALID)?;
    Ok(vector_out(&AddressVector {
        port: 1,
        source_index: index as u8,
        destination: source,
        flow_label,
        traffic_class,
        hop_limit: 255,
        service_level: 0,
    }))
}

pub(crate) unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    completion: *mut ibv_wc,
    header: *mut [u8; 40],
    attr: *mut ibv_ah_attr,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's structures; the header is in its receive buffer.
        let (context, completion, header, attr) = unsafe {
            let context = ContextHandle::of(context)?;
            (context, entry::read(completion)?, entry::read(header)?, entry::write(attr)?)
        };
        if port != 1 || completion.wc_flags & wc_flags::GRH == 0 {
            return Err(Errno::INVALID);
        }
        *attr = way_back(context.open.context.device(), header)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    completion: *mut ibv_wc,
    header: *mut [u8; 40],
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the program's domain.
    let Some(context) = (unsafe { pd.as_ref() }).map(|pd| pd.context) else {
        return entry::pointer(|| Err(Errno::INVALID));
    };
    let mut attr = Abi::zeroed();
    // SAFETY: the program's structures.
    let failed = unsafe { init_ah_from_wc(context, port, completion, header, &raw mut attr) } != 0;
    if failed {
        return std::ptr::null_mut();
    }
    // SAFETY: the program's domain.
    unsafe { create_ah(pd, &raw mut attr) }
}

//! Address handles.

use std::ffi::c_int;

use ferroce::{AddressVector, Device, Gid};

use crate::abi::Abi;
use crate::abi::attributes::ibv_ah_attr;
use crate::abi::constants::wc_flags;
use crate::abi::context::ibv_context;
use crate::abi::objects::{ibv_ah, ibv_pd};
use crate::abi::work::ibv_wc;
use crate::convert::{vector_in, vector_out};
use crate::entry::{self, Errno, Result};
use crate::handle::ah::AhHandle;
use crate::handle::context::ContextHandle;
use crate::handle::pd::PdHandle;
use crate::handle::{Handle, Shown};
use crate::reason::invalid;

pub(crate) unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    entry::pointer(|| {
        // SAFETY: the program's PD and structure.
        let (domain, attr) = unsafe { (&PdHandle::of(pd)?.domain, entry::read(attr)?) };
        let device = domain.context().device();
        // RoCE packets have a GRH (IBA A17), and LID 0 is nobody's: a QP may be connected by it to a peer that is known to be
        // on this host, but of the peer of an AH nothing is known.
        if attr.is_global == 0 && device.lid() == 0 {
            return Err(invalid(format_args!(
                "is_global is 0: RoCE needs a GRH, so set is_global and grh"
            )));
        }
        let address = domain.address_handle(&vector_in(attr, device)?)?;
        // SAFETY: as above.
        let context = unsafe { (*pd).context };
        Ok(AhHandle { shown: Shown::new(ibv_ah { context, pd, handle: 0 }), address }.give())
    })
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    entry::number(|| {
        // SAFETY: the program's handle.
        unsafe { AhHandle::of(ah) }?;
        // SAFETY: as above, and it is not used again.
        drop(unsafe { AhHandle::take(ah) });
        Ok(())
    })
}

/// The address vector to the sender of a datagram, from the GRH area in front of it: an IPv6 header, or an IPv4 header
/// in the last 20 bytes (IBA A17).
fn reply_vector(device: &Device, header: &[u8; 40]) -> Result<ibv_ah_attr> {
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
    // A multicast datagram has no local address as its destination: any GID of the family will do.
    let ours = gids.iter().position(|entry| entry.gid == destination);
    let family = gids.iter().position(|entry| entry.address.is_ipv4() == source.to_ip().is_ipv4());
    // For the loopback the index does not matter, and its addresses may not be in the table.
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
            return Err(invalid(format_args!("port {port}, or a completion without IBV_WC_GRH")));
        }
        *attr = reply_vector(context.open.context.device(), header)?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    completion: *mut ibv_wc,
    header: *mut [u8; 40],
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the program's PD.
    let Some(context) = (unsafe { pd.as_ref() }).map(|pd| pd.context) else {
        return entry::pointer(|| Err(Errno::INVALID));
    };
    let mut attr = Abi::zeroed();
    // SAFETY: the program's structures.
    let failed = unsafe { init_ah_from_wc(context, port, completion, header, &raw mut attr) } != 0;
    if failed {
        return std::ptr::null_mut();
    }
    // SAFETY: the program's PD.
    unsafe { create_ah(pd, &raw mut attr) }
}

//! Conversion between structures of the ABI and types of the library.

use std::ffi::c_char;

use ferroce::{AddressVector, Capabilities, Context, Device, Gid, Qpn, ServiceType};

use crate::abi::Abi;
use crate::abi::attributes::{ibv_ah_attr, ibv_global_route, ibv_qp_attr, ibv_qp_cap};
use crate::abi::constants::qp_type;
use crate::entry::{Errno, Result};
use crate::reason::invalid;

/// A GID as the structures of the ABI hold it.
pub(crate) fn gid_out(gid: Gid) -> [u64; 2] {
    let (high, low) = gid.0.split_at(8);
    [high, low].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}

/// The GID that a structure of the ABI holds.
pub(crate) fn gid_in(halves: [u64; 2]) -> Gid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&halves[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&halves[1].to_ne_bytes());
    Gid(bytes)
}

/// Converts AH attributes. Over Ethernet every address vector is global, that is, has a GRH (IBA A17).
pub(crate) fn vector_in(attr: &ibv_ah_attr, device: &Device) -> Result<AddressVector> {
    if attr.port_num != 1 {
        let port = attr.port_num;
        return Err(invalid(format_args!("port_num {port}: the device has port 1 only")));
    }
    if attr.is_global == 0 {
        let lid = attr.dlid;
        return local_vector(attr, device).ok_or_else(|| {
            invalid(format_args!(
                "is_global is 0 with dlid {lid}: RoCE needs a GRH, so set is_global and grh"
            ))
        });
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

/// The address vector of programs that address by LID only, such as qperf: this host, if the LID is the port's own.
/// Other hosts have the same LID, so the destination QP must be on this host as well: see [`check_lid`].
fn local_vector(attr: &ibv_ah_attr, device: &Device) -> Option<AddressVector> {
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

/// Checks that the peer of a QP addressed by LID is on this host. Between hosts, LIDs mean nothing over Ethernet, and
/// addressing by them is an error.
pub(crate) fn check_lid(attr: &ibv_qp_attr, context: &Context) -> Result<()> {
    let by_lid = attr.ah_attr.is_global == 0 && !context.device().interface().loopback;
    if by_lid && !context.is_on_this_host(Qpn(attr.dest_qp_num)) {
        return Err(invalid(format_args!(
            "is_global is 0 and the peer is on another host: RoCE needs a GRH"
        )));
    }
    Ok(())
}

/// Converts to AH attributes.
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

/// The service of an `ibv_qp_type`.
pub(crate) fn service_of(kind: u32) -> Result<ServiceType> {
    Ok(match kind {
        qp_type::RC => ServiceType::ReliableConnection,
        qp_type::UC => ServiceType::UnreliableConnection,
        qp_type::UD => ServiceType::UnreliableDatagram,
        qp_type::XRC_SEND => ServiceType::XrcInitiator,
        qp_type::XRC_RECV => ServiceType::XrcTarget,
        _ => return Err(Errno::UNSUPPORTED),
    })
}

pub(crate) fn capabilities_in(cap: &ibv_qp_cap) -> Capabilities {
    Capabilities {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

pub(crate) fn capabilities_out(capabilities: &Capabilities) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capabilities.max_send_wr,
        max_recv_wr: capabilities.max_recv_wr,
        max_send_sge: capabilities.max_send_sge,
        max_recv_sge: capabilities.max_recv_sge,
        max_inline_data: capabilities.max_inline_data,
    }
}

/// Copies a string into a NUL-terminated C array, truncated to fit.
pub(crate) fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(text.bytes()).take(N - 1) {
        *to = from as c_char;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn gids_keep_their_byte_order() {
        let gid = Gid(std::array::from_fn(|index| index as u8));
        let halves = gid_out(gid);
        assert_eq!(halves[0].to_ne_bytes(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(gid_in(halves), gid);
    }

    #[test]
    fn an_address_vector_is_shown_with_a_grh() {
        let vector = AddressVector {
            port: 1,
            source_index: 3,
            destination: Gid([7; 16]),
            flow_label: 0x12345,
            traffic_class: 9,
            hop_limit: 64,
            service_level: 5,
        };
        let attr = vector_out(&vector);
        assert_eq!((attr.is_global, attr.port_num, attr.sl), (1, 1, 5));
        assert_eq!((attr.grh.sgid_index, attr.grh.hop_limit), (3, 64));
        assert_eq!(gid_in(attr.grh.dgid), Gid([7; 16]));
    }

    #[test]
    fn services_are_those_of_the_header() {
        let known = [2, 3, 4, 9, 10].map(|kind| service_of(kind).unwrap());
        assert_eq!(known[0], ServiceType::ReliableConnection);
        assert_eq!(known[4], ServiceType::XrcTarget);
        // Raw packet and driver QPs.
        for kind in [0, 1, 8, 0xff] {
            assert_eq!(service_of(kind), Err(Errno::UNSUPPORTED));
        }
    }

    #[test]
    fn capabilities_round_trip() {
        let cap = ibv_qp_cap {
            max_send_wr: 1,
            max_recv_wr: 2,
            max_send_sge: 3,
            max_recv_sge: 4,
            max_inline_data: 5,
        };
        let back = capabilities_out(&capabilities_in(&cap));
        assert_eq!((back.max_send_wr, back.max_recv_wr, back.max_send_sge), (1, 2, 3));
        assert_eq!((back.max_recv_sge, back.max_inline_data), (4, 5));
    }

    #[test]
    fn strings_are_terminated_and_truncated() {
        let shown = |array: &[c_char]| {
            // SAFETY: `text` terminates every array.
            unsafe { CStr::from_ptr(array.as_ptr()) }.to_str().unwrap().to_owned()
        };
        assert_eq!(shown(&text::<8>("roce0")), "roce0");
        assert_eq!(shown(&text::<4>("roce0")), "roc");
        assert_eq!(shown(&text::<1>("roce0")), "");
    }
}

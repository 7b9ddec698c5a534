//! Path records: those that a program sets, and those that it is shown.

use std::ffi::c_void;

use ferroce::cm::Route;
use ferroce::{AckTimeout, PathMtu};

use crate::abi::Abi;
use crate::abi::rdmacm::{ibv_path_data, ibv_sa_path_rec};
use crate::convert::gid_in;
use crate::entry::{Errno, Result};
use crate::rdmacm::id::{Details, IdHandle, PARTITION};
use crate::sync::lock;

/// `IBV_PATH_FLAG_GMP`, `_PRIMARY` and `_BIDIRECTIONAL`: the only kind of path that Linux accepts.
const COMPLETE: u32 = 0x2b;
/// Mask of a value without the selector in its upper bits.
const VALUE_MASK: u8 = 0x1f;
/// The selector "exactly".
const EXACTLY: u8 = 2;

impl ibv_path_data {
    fn flow_label(&self) -> u32 {
        (u32::from_be(self.flowlabel_hoplimit) >> 8) & 0x000f_ffff
    }

    fn hop_limit(&self) -> u8 {
        u32::from_be(self.flowlabel_hoplimit) as u8
    }
}

/// `RDMA_OPTION_IB_PATH`: sets the first complete path of a list, in place of `rdma_resolve_route`.
///
/// # Safety
/// The value has this length.
pub(super) unsafe fn set(handle: &IdHandle, data: *const c_void, length: usize) -> Result<()> {
    const SIZE: usize = size_of::<ibv_path_data>();
    if data.is_null() || length % SIZE != 0 {
        return Err(Errno::INVALID);
    }
    let list = data.cast::<ibv_path_data>();
    // SAFETY: as the caller promises; it may be unaligned.
    let mut paths = (0..length / SIZE).map(|index| unsafe { list.add(index).read_unaligned() });
    let path = paths.find(|path| path.flags == COMPLETE).ok_or(Errno::INVALID)?;
    // Linux accepts any destination, and sends to it instead of the peer. Here it must be the resolved address.
    let peer = gid_in(handle.fields().route.addr.ibaddr.dgid);
    let to = gid_in(path.dgid);
    if to.0 != [0; 16] && to != peer {
        return Err(Errno::INVALID);
    }
    let before = lock(&handle.details).path.replace(path);
    let set = handle.id.set_route(&Route {
        mtu: PathMtu(path.mtu & VALUE_MASK),
        traffic_class: path.tclass,
        flow_label: path.flow_label(),
        hop_limit: path.hop_limit(),
    });
    if let Err(error) = set {
        lock(&handle.details).path = before;
        return Err(error.into());
    }
    Ok(())
}

impl Details {
    /// Checks that the device has the P_Key of the program's path. Linux checks it when it connects, not earlier.
    pub(super) fn check_partition(&self) -> Result<()> {
        const FULL_MEMBER: u16 = 0x8000;
        let foreign =
            |path: &ibv_path_data| u16::from_be(path.pkey) | FULL_MEMBER != u16::from_be(PARTITION);
        if self.path.as_ref().is_some_and(foreign) { Err(Errno(libc::ENOENT)) } else { Ok(()) }
    }

    /// The round-trip time that the program has set, as an ACK timeout.
    pub(super) fn round_trip(&self) -> Option<AckTimeout> {
        let of_path =
            self.path.map(|path| (path.packetlifetime & VALUE_MASK).saturating_add(1).min(31));
        self.ack_timeout.or(of_path).map(AckTimeout)
    }
}

impl IdHandle {
    /// Writes the path record of the public fields.
    pub(super) fn show_path(&self) -> Result<()> {
        /// 10 Gb/s, and 4.3 s / 4: the values that Linux shows for every RoCE path.
        const RATE: u8 = 3;
        const LIFETIME: u8 = 18;
        let now = self.fields();
        if now.route.num_paths > 0 {
            return Ok(());
        }
        // SAFETY: the call takes no pointers.
        let path = unsafe { libc::calloc(1, size_of::<ibv_sa_path_rec>()) };
        let path = path.cast::<ibv_sa_path_rec>();
        // SAFETY: null, or of this size and all zeroes.
        let record = unsafe { path.as_mut() }.ok_or(Errno::NO_MEMORY)?;
        let mut shown = ibv_sa_path_rec {
            dgid: now.route.addr.ibaddr.dgid,
            sgid: now.route.addr.ibaddr.sgid,
            hop_limit: 64,
            reversible: 1,
            numb_path: 1,
            pkey: PARTITION,
            mtu_selector: EXACTLY,
            mtu: self.id.path_mtu().0,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: LIFETIME,
            ..Abi::zeroed()
        };
        if let Some(said) = &lock(&self.details).path {
            shown.hop_limit = said.hop_limit();
            shown.flow_label = said.flow_label().to_be();
            shown.traffic_class = said.tclass;
            shown.pkey = said.pkey;
            shown.rate = said.rate & VALUE_MASK;
            shown.packet_life_time = said.packetlifetime & VALUE_MASK;
        }
        *record = shown;
        self.shown.change(|shown| {
            shown.route.path_rec = path;
            shown.route.num_paths = 1;
        });
        Ok(())
    }
}

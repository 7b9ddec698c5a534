//! Completion queues of the extended interface: completions are read field by field.

use std::ffi::{c_int, c_uint, c_void};

use ferroce::WorkCompletion;

use crate::abi::Abi;
use crate::abi::attributes::ibv_cq_init_attr_ex;
use crate::abi::context::ibv_context;
use crate::abi::extended::ibv_cq_ex;
use crate::calls;
use crate::entry::{self, Errno};
use crate::handle::Handle;
use crate::handle::cq::CqHandle;
use crate::reason::invalid;
use crate::sync::lock;
use crate::verbs::cq::{self, NewCq, flags_of, immediate_of, level_of, opcode_of, status_of};

type Cq = *mut ibv_cq_ex;

/// Bits of `wc_flags`: those that every device supports, and timestamps.
const STANDARD: u64 = 0x7f;
const TIMESTAMP: u64 = 1 << 7;
const WALL_CLOCK: u64 = 1 << 11;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    /// Flags, both of which are hints, and a parent domain, whose allocators are not needed.
    const KNOWN_MASK: u32 = 3;
    const KNOWN_FLAGS: u32 = 3;
    entry::pointer(|| {
        // SAFETY: the program's structure.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask & !KNOWN_MASK != 0 {
            return Err(invalid(format_args!("comp_mask has unknown bits")));
        }
        let flags = if attr.comp_mask & 1 != 0 { attr.flags } else { 0 };
        if attr.wc_flags & !(STANDARD | TIMESTAMP | WALL_CLOCK) != 0 || flags & !KNOWN_FLAGS != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let new = NewCq {
            context,
            channel: attr.channel,
            cq_context: attr.cq_context,
            capacity: attr.cqe as usize,
            vector: attr.comp_vector,
        };
        let mut table = table();
        calls::completion_queue(&mut table);
        // SAFETY: the program's context and channel.
        unsafe { cq::create(&new, table) }
    })
}

fn table() -> ibv_cq_ex {
    ibv_cq_ex {
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_zero),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_zero_byte),
        read_completion_ts: Some(read_completion_ts),
        read_cvlan: Some(read_cvlan),
        read_flow_tag: Some(read_zero),
        read_tm_info: Some(read_tm_info),
        read_completion_wallclock_ns: Some(read_wall_clock),
        ..Abi::zeroed()
    }
}

/// Advances to the next CQE: 0, or ENOENT if there is none.
fn advance(cq: Cq) -> c_int {
    let moved = entry::run_without_cancellation_points(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { CqHandle::of(cq) }?;
        let one = handle.queue.poll_one().ok_or(Errno(libc::ENOENT))?;
        handle
            .shown
            .change(|shown| (shown.wr_id, shown.status) = (one.id.0, status_of(one.status)));
        *lock(&handle.current) = Some(one);
        Ok(())
    });
    moved.err().map_or(0, |error| error.0)
}

/// A field of the current CQE.
fn field<T: Default>(cq: Cq, of: impl FnOnce(&WorkCompletion) -> T) -> T {
    let value = entry::run_without_cancellation_points(|| {
        // SAFETY: the program's queue.
        let handle = unsafe { CqHandle::of(cq) }?;
        Ok(lock(&handle.current).as_ref().map(of).unwrap_or_default())
    });
    value.unwrap_or_default()
}

unsafe extern "C" fn start_poll(cq: Cq, attr: *mut c_void) -> c_int {
    // SAFETY: null, or a structure that starts with the mask of extensions, of which there are none.
    match unsafe { attr.cast::<u32>().as_ref() } {
        Some(&extensions) if extensions != 0 => libc::EINVAL,
        _ => advance(cq),
    }
}

unsafe extern "C" fn next_poll(cq: Cq) -> c_int {
    advance(cq)
}

unsafe extern "C" fn end_poll(cq: Cq) {
    entry::nothing(|| {
        // SAFETY: the program's queue.
        *lock(&unsafe { CqHandle::of(cq) }?.current) = None;
        Ok(())
    });
}

unsafe extern "C" fn read_opcode(cq: Cq) -> u32 {
    field(cq, |one| opcode_of(one.kind))
}

unsafe extern "C" fn read_byte_len(cq: Cq) -> u32 {
    field(cq, |one| one.length)
}

unsafe extern "C" fn read_imm_data(cq: Cq) -> u32 {
    field(cq, immediate_of)
}

unsafe extern "C" fn read_qp_num(cq: Cq) -> u32 {
    field(cq, |one| one.queue_pair.0)
}

unsafe extern "C" fn read_src_qp(cq: Cq) -> u32 {
    field(cq, |one| one.source.map_or(0, |source| source.0))
}

unsafe extern "C" fn read_wc_flags(cq: Cq) -> c_uint {
    field(cq, flags_of)
}

unsafe extern "C" fn read_completion_ts(cq: Cq) -> u64 {
    field(cq, |one| one.time.as_nanos())
}

/// The wall-clock time of the completion: now, less its age.
unsafe extern "C" fn read_wall_clock(cq: Cq) -> u64 {
    let ago = ferroce::clock::now().saturating_sub(field(cq, |one| one.time.as_nanos()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| (now.as_nanos() as u64).saturating_sub(ago))
}

unsafe extern "C" fn read_vendor_err(cq: Cq) -> u32 {
    field(cq, |one| one.vendor_error.into())
}

unsafe extern "C" fn read_zero(_cq: Cq) -> u32 {
    0
}

unsafe extern "C" fn read_sl(cq: Cq) -> u8 {
    field(cq, level_of)
}

unsafe extern "C" fn read_zero_byte(_cq: Cq) -> u8 {
    0
}

unsafe extern "C" fn read_cvlan(_cq: Cq) -> u16 {
    0
}

/// Tag matching is not supported.
unsafe extern "C" fn read_tm_info(_cq: Cq, _info: *mut c_void) {}

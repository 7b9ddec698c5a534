//! Registered memory: keys, memory regions (MR) and windows (MW), and access to the bytes behind them.
//!
//! This crate knows addresses, keys, protection domains (PD) and access flags. It does not know packets, sockets, or queue
//! pairs beyond their QPN. It is the only crate below the C ABI that dereferences pointers into the program's memory. It
//! makes system calls through `ferroce-sys`; libc is used where the C library itself is hooked (`hooks`) and for signal
//! handlers (`guard`).
//!
//! - [`Registry`] holds the regions and windows of one device. A reference to it implements [`Memory`], which the
//!   transports use.
//! - [`AddressRange`] is a range of the program's memory, for one registration. Creating one of addresses is unsafe, because
//!   only the program knows how long they stay mapped; everything after that is safe.
//! - [`Buffer`] is memory that this crate maps, so that it can be registered and used without unsafe code.
//!
//! ```
//! use std::sync::Arc;
//!
//! use ferroce_memory::{Buffer, Registry};
//! use ferroce_proto::memory::{AccessFlags, Memory, PdId, Sge};
//! use ferroce_wire::number::VirtualAddress;
//!
//! let (registry, pd) = (Registry::new(0x5eed), PdId(1));
//! let buffer = Arc::new(Buffer::new(4096)?);
//! let (iova, access) = (VirtualAddress(0), AccessFlags::LOCAL_WRITE);
//! let keys = registry.register_buffer(pd, &buffer, 0, 4096, iova, access)?;
//! let sge = Sge { key: keys.lkey, address: VirtualAddress(16), length: 5 };
//! assert_eq!((&registry).write_local(pd, sge, b"hello"), Ok(()));
//! registry.deregister(keys.lkey)?;
//! assert_eq!(&buffer.to_vec()[16..21], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//! The engine's thread and those of the application share one registry. An access announces the region that it uses
//! (`hazard`) and takes no lock. If that is impossible, and for windows, it holds the read lock of the slot of its key. Either
//! lasts while it copies, which is at most one packet. Deregistering takes the write lock of that slot and waits for announced
//! accesses, so the key is invalid for all threads when the call returns. No call holds the locks of two slots.
//!
//! # Memory that is unmapped while registered
//! A region is accessed through pointers; its pages are not pinned. If the program unmaps it, changes its protection or
//! truncates the file behind it while it is registered, accesses fail: faults are caught (`guard`), and unmapping is
//! detected (`hooks`, `watch`), so that other memory that is mapped at the same addresses later is not accessed. Both
//! modules document their limits; `docs/memory.md` describes them for users.
//!
//! # Miri
//! The tests that need no special mappings are written to run under Miri with `-Zmiri-permissive-provenance`; probing is
//! left out there (`cfg(miri)`). They have not been run under it yet: the component is not part of the stable toolchain
//! that builds this.
//!
//! [`Memory`]: ferroce_proto::memory::Memory
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod atomic;
mod buffer;
mod copy;
mod error;
mod explain;
mod guard;
mod hazard;
mod hooks;
mod keys;
#[cfg(all(test, ferroce_loom))]
mod models;
mod placement;
mod probe;
mod range;
mod region;
mod registry;
mod sync;
mod table;
#[cfg(all(test, not(ferroce_loom)))]
mod tests;
#[cfg_attr(
    any(miri, ferroce_loom),
    allow(dead_code, reason = "the hooks that report unmapped memory are left out")
)]
mod watch;
mod window;

pub use buffer::{Buffer, OutOfBounds};
pub use error::{DeregisterError, RegisterError, ReregisterError, WindowError};
pub use placement::Placement;
pub use range::AddressRange;
pub use region::{Kind, RegionInfo};
pub use registry::{Change, Keys, Registry};
pub use window::WindowKind;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("RDMA atomics are 8 bytes wide, and this processor has no atomics of that size");

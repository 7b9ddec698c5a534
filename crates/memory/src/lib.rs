//! Registered memory: what has a key, who may reach it, and the bytes behind it. Raw pointers live here alone.
//!
//! This crate knows addresses, keys, protection domains and access rights. It does not know packets, queue pairs beyond
//! their number, or sockets. Its system calls ask about memory, and nothing else.
//!
//! - [`Registry`] holds the regions and windows of one device. A reference to it is the [`Memory`] that the transports
//!   take.
//! - [`AddressRange`] is how a program's own memory gets in. To name one is unsafe, because only the program knows how
//!   long it stays mapped; everything after that is safe to call.
//! - [`Buffer`] is memory that is ours, so that it can be registered and used without unsafe code.
//! - [`Pinned`] is a SGE that the kernel may read or fill without a copy. [`Draining`] waits for the last of them.
//!
//! ```
//! use std::sync::Arc;
//!
//! use ferroce_memory::{Buffer, Registry};
//! use ferroce_proto::memory::{AccessFlags, Domain, Sge, Memory};
//! use ferroce_wire::number::VirtualAddress;
//!
//! let (registry, domain) = (Registry::new(0x5eed), Domain(1));
//! let buffer = Arc::new(Buffer::new(4096)?);
//! let (iova, access) = (VirtualAddress(0), AccessFlags::LOCAL_WRITE);
//! let keys = registry.register_buffer(domain, &buffer, 0, 4096, iova, access)?;
//! let SGE = Sge { key: keys.lkey, address: VirtualAddress(16), length: 5 };
//! assert_eq!((&registry).write_local(domain, SGE, b"hello"), Ok(()));
//! registry.deregister(keys.lkey)?.wait();
//! assert_eq!(&buffer.to_vec()[16..21], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//! One registry serves the engine's thread and those of the application. An access takes the read lock of the one slot
//! that its key names, for as long as its bytes are copied: at most a packet's. To deregister takes the write lock of
//! that slot, so a key is invalid for all when the call returns. No call holds the locks of two slots.
//!
//! # Memory that is gone
//! A region is used through pointers; its pages are not pinned. If the program unmaps it, protects it or truncates the file
//! behind it while it is registered, an access is refused: a fault is caught (`guard`), and what is unmapped is noticed
//! (`hooks`, `watch`), so that other memory at the same addresses is not taken for it. Both modules say what they do not
//! reach; `docs/memory.md` has it for users.
//!
//! # Miri
//! The tests that need no memory mapped in a special way are written to run under Miri with
//! `-Zmiri-permissive-provenance`; probing is left out there (`cfg(miri)`). They have not been run under it yet: the
//! component is not part of the stable toolchain that builds this.
//!
//! [`Memory`]: ferroce_proto::memory::Memory
#![deny(unsafe_op_in_unsafe_fn)]

mod access;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod atomic;
mod buffer;
mod copy;
mod error;
mod guard;
mod hooks;
mod keys;
mod pinned;
mod probe;
mod range;
mod region;
mod registry;
mod system;
mod table;
#[cfg(test)]
mod tests;
mod watch;
mod window;

pub use buffer::{Buffer, OutOfBounds};
pub use error::{DeregisterError, PinError, RegisterError, ReregisterError, WindowError};
pub use pinned::{Draining, Pinned};
pub use range::AddressRange;
pub use region::{Kind, RegionInfo};
pub use registry::{Change, Keys, Registry};
pub use window::WindowKind;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("RDMA's atomic operations are on 8 bytes, and this processor has no such atomics");

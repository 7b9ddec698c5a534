//! What the threads of a process and the two sides of a ring meet in, and nothing else: the unsafe code of concurrency, checked by loom.
//!
//! - [`Mutex`]: a mutex that is unlocked without a locked instruction.
//! - [`Owned`]: a value that one thread owns at a time, and that no thread waits for.
//! - [`PostedQueue`]: objects with something to do, queued by threads that do not own what serves them.
//! - [`CompletionRing`]: the entries of a completion queue, and whether the next one raises an event.
//! - [`Signals`]: what the device thread and the threads that use the device tell each other, so that no wakeup is lost.
//! - [`RingControl`]: the head, tail and flags of a ring between two processes.
//! - [`asymmetric_fence`]: a pair of fences of which one is free.
//!
//! This crate knows no packet, queue pair or device, and makes two system calls: futex(2) and membarrier(2). It knows no
//! other crate of the workspace.
//!
//! # Loom
//! With `--cfg ferroce_loom`, atomics, cells and locks are those of [loom](https://docs.rs/loom), and the tests explore the
//! interleavings of a few threads instead of running many at random. Both fences of [`asymmetric_fence`] are full fences
//! then. A line of `scripts/test` builds and runs them.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod asymmetric_fence;
mod completion_ring;
mod mutex;
mod owned;
mod posted;
mod primitives;
mod ring_control;
mod signals;
#[cfg(all(test, ferroce_loom))]
mod tests {
    pub(crate) mod models;
}

pub use completion_ring::{CompletionRing, Full, Observer};
pub use mutex::{Mutex, MutexGuard};
pub use owned::{Guard, Owned, Requests};
pub use posted::{PostedQueue, QueuedMark};
pub use ring_control::RingControl;
pub use signals::{Mode, NEVER, Signals, Wake};

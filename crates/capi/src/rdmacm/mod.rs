//! librdmacm.so.1, over [`ferroce::cm`].
//!
//! As in the library that it stands for, a queue pair is brought through its states by the thread that takes the events
//! out of a channel: here [`ferroce::cm`] only says what is to be set. An id without a channel of the program's is
//! synchronous: calls wait for their event.
//!
//! | file | of the man pages |
//! |---|---|
//! | `channel` | event channels, `rdma_get_cm_event`, `rdma_ack_cm_event` |
//! | `event` | what becomes of the library's events |
//! | `id` | ids, and where they are |
//! | `resolve` | binding, resolving, listening |
//! | `connect` | connecting, accepting, rejecting, disconnecting |
//! | `queue_pair` | queue pairs, their completion queues and shared receive queues |
//! | `user_event` | events that programs write to channels; `rdma_resolve_addrinfo` |
//! | `group` | multicast |
//! | `endpoint`, `information` | `rdma_create_ep`, `rdma_getaddrinfo` |
//! | `option` | options, enhancements of vendors |
//! | `path` | paths that programs know, and how the way is shown to them |
//! | `devices` | the one context of each device that all ids share |
//! | `socket` | addresses as C has them |

pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod devices;
pub(crate) mod endpoint;
mod event;
pub(crate) mod group;
pub(crate) mod id;
pub(crate) mod information;
pub(crate) mod names;
pub(crate) mod option;
mod path;
pub(crate) mod queue_pair;
pub(crate) mod resolve;
pub(crate) mod socket;
pub(crate) mod user_event;

use crate::entry::{Errno, Result};

/// What a call of libibverbs' that returns the error's number means.
fn check(number: std::ffi::c_int) -> Result<()> {
    if number == 0 { Ok(()) } else { Err(Errno(number)) }
}

/// What a call of libibverbs' that returns a pointer means.
fn made<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

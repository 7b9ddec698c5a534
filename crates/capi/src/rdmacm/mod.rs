//! librdmacm.so.1, over [`ferroce::cm`].
//!
//! As in rdma-core, the thread that takes events from a channel changes the state of the QP; [`ferroce::cm`] supplies
//! the attributes. An id without a channel of the program is synchronous: its calls wait for their event.
//!
//! | file | content |
//! |---|---|
//! | `channel` | event channels, `rdma_get_cm_event`, `rdma_ack_cm_event` |
//! | `event` | conversion of events |
//! | `id` | ids |
//! | `resolve` | binding, resolving, listening |
//! | `connect` | connecting, accepting, rejecting, disconnecting |
//! | `queue_pair` | queue pairs, their completion queues and shared receive queues |
//! | `user_event` | events that programs write to channels; `rdma_resolve_addrinfo` |
//! | `group` | multicast |
//! | `endpoint`, `information` | `rdma_create_ep`, `rdma_getaddrinfo` |
//! | `option` | options, enhanced connection establishment (ECE) |
//! | `path` | path records |
//! | `devices` | the context of each device that all ids share |

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
pub(crate) mod user_event;

use crate::entry::{Errno, Result};

/// The result of a call that returns an error number.
fn check(number: std::ffi::c_int) -> Result<()> {
    if number == 0 { Ok(()) } else { Err(Errno(number)) }
}

/// The result of a call that returns a pointer.
fn made<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

//! libibverbs.so.1, and by the same file librdmacm.so.1: programs that are linked with these run over Ferroce as they
//! are.
//!
//! Thin: all that it does is in [`ferroce`]. Here are the structures of the ABI, translation between them and the
//! library's types, and the objects that programs hold by pointer. It knows nothing of packets.
//!
//! Pointers of a program's are trusted as far as C's contract goes: that they are what the header says, or null where
//! that can be told. Unsafe code is all there is at such a boundary; each block says what it relies on. A panic is caught
//! before it reaches C.
#![deny(unsafe_op_in_unsafe_fn)]

// Unit tests open sockets too.
#[cfg(test)]
use ferroce_test_support as _;

mod abi;
mod acknowledge;
mod address;
mod async_event;
mod attributes;
mod buffer;
mod completion;
mod completion_ex;
mod context;
mod device;
mod device_memory;
mod entry;
mod exit;
mod export;
mod handle;
mod import;
mod names;
mod pd;
mod post;
mod post_ex;
mod query;
mod queue_pair;
mod rate;
mod rdmacm;
mod refuse;
mod region;
mod rsocket;
mod shared_receive;
mod trace;
mod window;
mod xrc;

//! libibverbs.so.1 and librdmacm.so.1 in one file: programs linked with these libraries run over Ferroce unchanged.
//!
//! The crate contains the structures of the ABI, conversion between them and the library's types, and the objects that
//! programs hold by pointer. All behaviour is in [`ferroce`] and [`ferroce_rsocket`]; packets are unknown here.
//!
//! | module | content |
//! |---|---|
//! | `export` | the list of exported symbols |
//! | `exit` | the end of the process |
//! | `verbs`, `rdmacm`, `rsocket` | the functions of the headers `verbs.h`, `rdma_cma.h` and `rsocket.h` |
//! | `calls` | the call tracer |
//! | `handle`, `convert`, `socket_address` | objects behind pointers; conversion of structures |
//! | `abi` | the structures and numbers of the headers |
//! | `entry`, `acknowledge`, `fd`, `sync` | results and panics at the boundary; small tools |
//!
//! A program's pointers are trusted as far as the C contract goes: they are what the header specifies, or null where
//! that is checked. Each unsafe block states what it relies on. A panic is caught before it reaches C.
#![deny(unsafe_op_in_unsafe_fn)]

// Unit tests open sockets: this moves them to a network namespace of their own.
#[cfg(test)]
use ferroce_test_support as _;

mod abi;
mod acknowledge;
mod calls;
mod convert;
mod entry;
mod exit;
mod export;
mod fd;
mod handle;
mod rdmacm;
mod reason;
mod rsocket;
mod socket_address;
mod sync;
mod verbs;

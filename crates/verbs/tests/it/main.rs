//! Tests over real sockets, in one binary: each binary links the whole library, which takes longer than compiling a test.
//!
//! Tests that affect their whole process (forks, signals, foreign descriptors) have their own binaries beside this one.

mod backpressure;
mod examples;
mod flow;
#[cfg(feature = "tokio")]
mod future;
mod headers;
mod hostile;
#[path = "../support/interfaces.rs"]
mod interfaces;
mod loopback;
mod namespaces;
mod polling;
mod processes;
mod setup;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod transports;
mod unreachable;

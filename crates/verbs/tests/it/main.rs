//! Tests over real sockets, in one binary, so that the library is linked once.
//!
//! Tests that affect their whole process (forks, signals, foreign descriptors) have their own binaries beside this one.

mod addresses;
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
mod paths;
mod polling;
mod processes;
mod reasons;
mod regions;
mod setup;
mod shards;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod transports;
mod unreachable;

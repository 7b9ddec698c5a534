//! Helpers shared by the tests of several commands.

pub(crate) mod scratch;
pub(crate) mod server;
mod two_hosts;

pub(crate) const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

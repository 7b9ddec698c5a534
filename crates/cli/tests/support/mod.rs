//! Helpers shared by the tests of several commands.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod scratch;
pub(crate) mod server;

pub(crate) const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

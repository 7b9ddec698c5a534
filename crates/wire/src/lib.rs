//! RoCE on the wire: bytes to meaning and back.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod icrc;

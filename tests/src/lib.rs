//! What the end-to-end tests share: the captures, the tools that ours are compared with, and generated frames.
//!
//! Nothing here judges. A test that fails says so itself; what cannot be set up panics with what to do about it.
#![forbid(unsafe_code)]

pub mod capture;
pub mod random;
pub mod sample;
pub mod tool;

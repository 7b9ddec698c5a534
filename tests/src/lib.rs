//! What the end-to-end tests share: the captures, the tools that ours are compared with, generated frames, and
//! machines to talk to.
//!
//! Nothing here judges. A test that fails says so itself; what cannot be set up panics with what to do about it.
#![forbid(unsafe_code)]

use ferroce_test_support as _;

pub mod c;
pub mod capture;
pub mod document;
pub mod exchange;
pub mod hosts;
pub mod libraries;
pub mod listening;
pub mod managed;
pub mod peer;
pub mod perftest;
pub mod pingpong;
pub mod random;
pub mod running;
pub mod sample;
pub mod tool;

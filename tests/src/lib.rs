//! Support shared by the end-to-end tests: captures, reference tools, generated frames, and machines that run rdma_rxe.
//!
//! Nothing here decides whether a test passes. If something cannot be set up, it panics with the remedy.
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
pub mod report;
pub mod running;
pub mod sample;
pub mod tool;

//! Tests that run the command, in one binary, so that it is linked once.

use ferroce_test_support as _;

mod analyze;
mod captures;
mod client_server;
mod decode;
mod demo;
mod devices;
mod leaks;
mod memory;
mod offload;
mod run;
mod simulate;
mod support;
mod terminal;

//! Tests that run the command, in one binary, so that it is linked once.

use ferroce_test_support as _;

mod analyze;
mod analyze_live;
mod capture_live;
mod captures;
mod client_server;
mod compare;
mod dashboard;
mod decode;
mod demo;
mod devices;
mod doctor;
mod explain;
mod leaks;
mod memory;
mod offload;
mod perf;
mod report;
mod report_compressed;
mod run;
mod simulate;
mod simulate_pattern;
mod stat;
mod support;
mod terminal;
mod top;
mod workload;

//! Virtual time and a seeded fabric around the transports.
#![forbid(unsafe_code)]

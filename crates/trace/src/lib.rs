//! Packet captures: reading and writing files, dissection, analysis and text rendering.
//!
//! Builds on `wire` for packet formats; knows neither sockets nor the verbs layer.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod dissect;
pub mod file;
pub mod filter;
pub mod link;
pub mod render;
pub mod segments;
mod timestamp;

//! A capture as one self-contained web page, and its figures as SVG.
//!
//! [`build()`] analyses a capture and collects everything that the page shows, in bounded memory: all aggregates, and a
//! limited number of packets with their bytes. [`html::page`] writes the page; [`figures`] draws single figures. This
//! crate opens no files: the caller passes a function that opens the capture, which is read twice.
#![forbid(unsafe_code)]

mod build;
mod diagnosis;
pub mod figures;
pub mod html;
pub mod model;
mod packets;
mod sha256;
mod state;
mod traffic;

pub use build::{Options, build};

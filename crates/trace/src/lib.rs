//! Captures: files in and out, dissection, conversations, diagnosis.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod dissect;
pub mod file;
pub mod link;
pub mod render;
pub mod segments;

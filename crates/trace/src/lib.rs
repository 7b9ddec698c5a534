//! Captures: files in and out, dissection, conversations, diagnosis.
#![forbid(unsafe_code)]

pub mod file;
pub mod link;

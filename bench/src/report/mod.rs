//! Results as text, JSON and `docs/benchmarks.md`.

mod document;
mod json;
mod numbers;
mod table;

pub(crate) use document::write as write_document;
pub(crate) use json::json;
pub(crate) use table::text;

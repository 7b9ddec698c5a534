//! The report as text: tables, bars, graphs and ladder diagrams.
//!
//! Pure functions from the data of [`crate::analysis::report`] to [`Line`]s. This module knows neither the terminal
//! nor its colours: a line consists of spans with a semantic [`Tone`], which the printer maps to colours. Drawings use
//! Unicode box and block characters; [`ascii`] replaces them, column by column, for terminals without UTF-8.

pub mod bar;
mod endpoint;
pub mod graph;
pub mod ladder;
pub mod sections;
pub mod table;
pub mod text;
pub mod units;

#[cfg(test)]
mod samples;

pub use text::{Line, StyledSpan, Tone, ascii};

//! A report as text: tables, bars, graphs and ladders.
//!
//! Pure functions from the data of [`crate::analysis::report`] to [`Line`]s. This module knows neither the terminal
//! nor its colours: a line is made of spans whose [`Tone`] says what they mean, and whoever prints it decides how
//! that looks. It draws in one alphabet, that of Unicode's box and block characters; [`ascii`] translates it, one
//! column for one, for terminals that have not got it.

pub mod bar;
pub mod graph;
pub mod ladder;
pub mod sections;
pub mod table;
pub mod text;
pub mod units;

#[cfg(test)]
mod samples;

pub use text::{Line, StyledSpan, Tone, ascii};

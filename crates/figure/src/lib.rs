//! Charts as SVG: for `--svg` options, reports and documentation.
//!
//! A chart is a plain value; [`LineChart::to_svg`] and [`BarChart::to_svg`] draw it as a document of its own that
//! follows the reader's light or dark scheme. `to_fragment` draws it without the style sheet, for a page that includes
//! [`STYLE`] once or brings its own rules for the same classes.
//!
//! All text is escaped, and numbers that cannot be drawn (not a number, infinite, zero or less on a logarithmic axis)
//! are left out, so any input gives a valid document. This crate knows nothing about packets, files or terminals.
#![forbid(unsafe_code)]

mod axis;
mod bar;
mod line;
mod svg;
#[cfg(test)]
mod tests;
mod unit;

pub use axis::{Axis, Scale};
pub use bar::{Bar, BarChart};
pub use line::{LineChart, Series, Stroke};
pub use svg::{STYLE, escape};
pub use unit::Unit;

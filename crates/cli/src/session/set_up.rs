//! The ways to set up a connection.

use clap::ValueEnum;
use serde::Serialize;

/// How a connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SetUp {
    /// The connection manager, as in librdmacm
    Cm,
    /// The set-up exchange, in five phases
    Exchange,
}

//! A decoded frame.

use ferroce_trace::dissect::Tree;
use ferroce_trace::file::Record;
use ferroce_trace::link::LinkType;

/// One frame.
pub(super) struct DecodedFrame<'a> {
    /// Its number and time, if it comes from a file.
    pub(super) record: Option<&'a Record<'a>>,
    pub(super) link: LinkType,
    pub(super) tree: &'a Tree<'a>,
    /// What it means, if that was asked for.
    pub(super) explanation: String,
}

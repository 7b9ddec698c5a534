//! Direction of control plane messages if both ends have the same address, as on a loopback: derived from the messages
//! instead of the addresses.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::report::{CmEvent, Conversation, FileReport};

/// Senders of control plane messages, by frame.
#[derive(Debug)]
pub(super) struct Sides {
    /// Whether the active side sent this frame.
    from_active: BTreeMap<u64, bool>,
}

impl Sides {
    pub(super) fn new(file: &FileReport) -> Self {
        let is_request = |event: &&CmEvent| matches!(event.message, "REQ" | "SIDR_REQ");
        let ids: BTreeSet<_> =
            file.cm.iter().filter(is_request).filter_map(|event| event.local_id).collect();
        let mut from_active = BTreeMap::new();
        from_active.extend(file.cm.iter().map(|event| {
            let is_active = event.local_id.is_some_and(|id| ids.contains(&id));
            (event.frame, is_active && event.message != "SIDR_REP")
        }));
        from_active.extend(file.setup.iter().map(|event| {
            let is_response = event.message.ends_with("_RESP") || event.message.ends_with("ACCEPT");
            (event.frame, !is_response)
        }));
        Self { from_active }
    }

    /// Whether `a` sent this frame: `a` sent the first packet, so it is the active side. `None` if the addresses differ.
    pub(super) fn is_from_a(&self, frame: u64, conversation: &Conversation) -> Option<bool> {
        let ambiguous = conversation.a.address == conversation.b.address;
        self.from_active.get(&frame).copied().filter(|_| ambiguous)
    }
}

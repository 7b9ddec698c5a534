//! Who sent a message of the control plane when both ends have one address, as on a loopback: addresses do not tell,
//! but the messages do.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::report::{CmEvent, Conversation, FileReport};

/// Who asked, by frame.
#[derive(Debug)]
pub(super) struct Sides {
    /// Whether the one who asks sent this frame.
    asking: BTreeMap<u64, bool>,
}

impl Sides {
    pub(super) fn new(file: &FileReport) -> Self {
        let is_request = |event: &&CmEvent| matches!(event.message, "REQ" | "SIDR_REQ");
        let ids: BTreeSet<_> =
            file.cm.iter().filter(is_request).filter_map(|event| event.local_id).collect();
        let mut asking = BTreeMap::new();
        asking.extend(file.cm.iter().map(|event| {
            let asks = event.local_id.is_some_and(|id| ids.contains(&id));
            (event.frame, asks && event.message != "SIDR_REP")
        }));
        asking.extend(file.setup.iter().map(|event| {
            let answers = event.message.ends_with("_RESP") || event.message.ends_with("ACCEPT");
            (event.frame, !answers)
        }));
        Self { asking }
    }

    /// Whether `a` sent this frame: it was heard first, so it is the one who asks. `None` where the addresses tell.
    pub(super) fn is_from_a(&self, frame: u64, conversation: &Conversation) -> Option<bool> {
        let ambiguous = conversation.a.address == conversation.b.address;
        self.asking.get(&frame).copied().filter(|_| ambiguous)
    }
}

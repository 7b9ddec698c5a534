//! XRC domains (IBA A14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferroce_proto::receive;

use crate::context::Context;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// An XRC domain: its targets reach its shared receive queues. Clones are the same one.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    shared: Arc<(Context, receive::XrcDomain)>,
}

impl XrcDomain {
    pub(crate) fn new(context: Context) -> Self {
        let domain = receive::XrcDomain(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { shared: Arc::new((context, domain)) }
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.shared.0
    }

    /// How many targets and shared receive queues are in it, and other handles to it there are.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    pub(crate) fn xrcd(&self) -> receive::XrcDomain {
        self.shared.1
    }
}

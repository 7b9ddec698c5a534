//! The handle of a protection domain (PD).

use std::sync::Arc;

use ferroce::ProtectionDomain;

use super::context::OpenDevice;
use super::{Shown, handle};
use crate::abi::objects::ibv_pd;

#[repr(C)]
pub(crate) struct PdHandle {
    pub(crate) shown: Shown<ibv_pd>,
    pub(crate) domain: ProtectionDomain,
    /// A parent domain: an alias of another handle's PD, which outlives it.
    pub(crate) is_parent: bool,
    pub(crate) open: Arc<OpenDevice>,
}

handle!(PdHandle, shown, ibv_pd);

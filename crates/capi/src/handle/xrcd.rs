//! The handle of an XRC domain.

use ferroce::XrcDomain;

use super::{Shown, handle};
use crate::abi::objects::ibv_xrcd;
use crate::fd::FileId;

#[repr(C)]
pub(crate) struct XrcdHandle {
    pub(crate) shown: Shown<ibv_xrcd>,
    pub(crate) domain: XrcDomain,
    /// The file that other handles find the domain by.
    pub(crate) file: Option<FileId>,
}

handle!(XrcdHandle, shown, ibv_xrcd);

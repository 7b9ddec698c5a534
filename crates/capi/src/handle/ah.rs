//! The handle of an address handle (AH).

use ferroce::AddressHandle;

use super::{Shown, handle};
use crate::abi::objects::ibv_ah;

#[repr(C)]
pub(crate) struct AhHandle {
    pub(crate) shown: Shown<ibv_ah>,
    pub(crate) address: AddressHandle,
}

handle!(AhHandle, shown, ibv_ah);

//! Inline data of a work request.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;

/// The bytes of an inline send. They are not in the request itself: that would make all requests longer, also the many without
/// inline data, and a send queue would take most of a first-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineData(Box<[u8]>);

impl InlineData {
    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for InlineData {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<&[u8]> for InlineData {
    fn from(data: &[u8]) -> Self {
        Self(data.into())
    }
}

impl<const N: usize> From<[u8; N]> for InlineData {
    fn from(data: [u8; N]) -> Self {
        data.as_slice().into()
    }
}

impl From<Vec<u8>> for InlineData {
    fn from(data: Vec<u8>) -> Self {
        Self(data.into())
    }
}

impl From<Box<[u8]>> for InlineData {
    fn from(data: Box<[u8]>) -> Self {
        Self(data)
    }
}

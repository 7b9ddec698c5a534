//! Inline data of a work request.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

/// The bytes of an inline send. Up to [`InlineData::CAPACITY`] bytes need no allocation: otherwise each post would
/// allocate in one thread what another frees.
#[derive(Clone)]
pub struct InlineData(Bytes);

#[derive(Clone)]
enum Bytes {
    Short { bytes: [u8; InlineData::CAPACITY], length: u8 },
    Long(Box<[u8]>),
}

impl InlineData {
    /// Bytes that are stored in the request itself. Larger than most messages sent inline, and small enough that a send
    /// queue stays compact.
    pub const CAPACITY: usize = 128;

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { bytes, length } => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }

    fn short(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self(Bytes::Short { bytes, length: data.len() as u8 }))
    }
}

impl Deref for InlineData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<&[u8]> for InlineData {
    fn from(data: &[u8]) -> Self {
        Self::short(data).unwrap_or_else(|| Self(Bytes::Long(data.into())))
    }
}

impl<const N: usize> From<[u8; N]> for InlineData {
    fn from(data: [u8; N]) -> Self {
        data.as_slice().into()
    }
}

impl From<Vec<u8>> for InlineData {
    fn from(data: Vec<u8>) -> Self {
        Self::short(&data).unwrap_or_else(|| Self(Bytes::Long(data.into())))
    }
}

impl From<Box<[u8]>> for InlineData {
    fn from(data: Box<[u8]>) -> Self {
        Self::short(&data).unwrap_or(Self(Bytes::Long(data)))
    }
}

impl PartialEq for InlineData {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for InlineData {}

impl fmt::Debug for InlineData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn keeps_the_bytes_of_any_length() {
        for length in [0, 1, 127, 128, 129, 1000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            for data in [
                InlineData::from(bytes.as_slice()),
                InlineData::from(bytes.clone()),
                InlineData::from(bytes.clone().into_boxed_slice()),
            ] {
                assert_eq!(*data, *bytes);
                assert_eq!(matches!(data.0, Bytes::Short { .. }), length <= InlineData::CAPACITY);
            }
        }
        assert_eq!(InlineData::from([7; 3]), InlineData::from(vec![7; 3]));
        assert_ne!(InlineData::from([7; 3]), InlineData::from([7; 4]));
    }
}

//! The level `SOL_RDMA` of socket options, common to both kinds of sockets (rsocket(7)).

use std::ffi::c_int;

use crate::error::{Errno, Result};

/// `SOL_RDMA`.
pub(crate) const SOL_RDMA: c_int = 0x10000;
/// `RDMA_SQSIZE`.
pub(crate) const RDMA_SQSIZE: c_int = 0;
/// `RDMA_RQSIZE`.
pub(crate) const RDMA_RQSIZE: c_int = 1;
/// `RDMA_INLINE`.
pub(crate) const RDMA_INLINE: c_int = 2;
/// `RDMA_IOMAPSIZE`.
pub(crate) const RDMA_IOMAPSIZE: c_int = 3;

/// Returns the number that the value of an option starts with. A single byte is accepted, as for options of that size.
pub(crate) fn number(value: &[u8]) -> Result<c_int> {
    match (value, value.first_chunk()) {
        (_, Some(bytes)) => Ok(c_int::from_ne_bytes(*bytes)),
        ([first, ..], None) => Ok((*first).into()),
        ([], None) => Err(Errno(libc::EINVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_bytes_or_one() {
        assert_eq!(number(&(-5i32).to_ne_bytes()), Ok(-5));
        assert_eq!(number(&[7u32.to_ne_bytes(), [0xff; 4]].concat()), Ok(7));
        assert_eq!(number(&[200]), Ok(200));
        assert_eq!(number(&[3, 9, 9]), Ok(3));
        assert_eq!(number(&[]), Err(Errno(libc::EINVAL)));
    }
}

//! The result of one transfer, as the sender sees it.

/// One transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// From handing over the first chunk until the last one is known to be in the receiver's memory.
    pub(super) elapsed_ns: u64,
    /// The same time of each chunk.
    pub(super) chunks_ns: Vec<u64>,
    /// Packets or segments sent more than once.
    pub(super) retransmissions: u64,
}

impl Transfer {
    /// From the times at which chunks were handed over, and at which they were acknowledged.
    pub(super) fn new(starts: &[u64], ends: &[u64], retransmissions: u64) -> Self {
        let (first, last) = (starts.first().copied(), ends.iter().max().copied());
        let elapsed_ns = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
        let chunks = starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start));
        Self { elapsed_ns, chunks_ns: chunks.collect(), retransmissions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_each_chunk_and_of_all() {
        let transfer = Transfer::new(&[100, 110, 120], &[150, 160, 200], 4);
        assert_eq!(transfer.chunks_ns, [50, 50, 80]);
        assert_eq!((transfer.elapsed_ns, transfer.retransmissions), (100, 4));
        assert_eq!(Transfer::new(&[], &[], 0).elapsed_ns, 0);
    }
}

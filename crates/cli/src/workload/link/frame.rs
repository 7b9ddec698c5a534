//! The messages of the TCP link: a header of fixed length, and a payload.

/// Bytes of a header.
pub(super) const HEADER: usize = 56;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data for the receiver's memory; acknowledged.
    Write,
    /// The same, and the receiver is told a number.
    WriteImmediate,
    /// A request for data.
    Read,
    /// Data for the receiver's program; acknowledged.
    Send,
    /// Atomic requests.
    CompareSwap,
    FetchAdd,
    /// The request with this ticket is complete.
    Ack,
    /// Data that was requested: it belongs at `local`.
    ReadData,
    /// The original value of an atomic request, in `first`: it belongs at `local`.
    Value,
}

const KINDS: [Kind; 9] = [
    Kind::Write,
    Kind::WriteImmediate,
    Kind::Read,
    Kind::Send,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::Ack,
    Kind::ReadData,
    Kind::Value,
];

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) immediate: u32,
    pub(super) ticket: u64,
    pub(super) local: u64,
    pub(super) remote: u64,
    pub(super) length: u64,
    /// The operands of atomics.
    pub(super) first: u64,
    pub(super) second: u64,
}

impl Frame {
    pub(super) fn new(kind: Kind, ticket: u64) -> Self {
        Self { kind, immediate: 0, ticket, local: 0, remote: 0, length: 0, first: 0, second: 0 }
    }

    /// Bytes that follow the header.
    pub(super) fn payload(&self) -> u64 {
        match self.kind {
            Kind::Write | Kind::WriteImmediate | Kind::Send | Kind::ReadData => self.length,
            _ => 0,
        }
    }

    pub(super) fn emit(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        bytes[0] = kind as u8;
        bytes[4..8].copy_from_slice(&self.immediate.to_le_bytes());
        let words = [self.ticket, self.local, self.remote, self.length, self.first, self.second];
        for (word, place) in words.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` if it is none.
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let kind = *KINDS.get(usize::from(bytes[0]))?;
        let mut immediate = [0; 4];
        immediate.copy_from_slice(&bytes[4..8]);
        let mut words = bytes[8..].chunks_exact(8).map(|bytes| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        Some(Self {
            kind,
            immediate: u32::from_le_bytes(immediate),
            ticket: words.next()?,
            local: words.next()?,
            remote: words.next()?,
            length: words.next()?,
            first: words.next()?,
            second: words.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for kind in KINDS {
            let frame = Frame {
                immediate: 7,
                local: 1,
                remote: u64::MAX,
                length: 3,
                first: 4,
                second: 5,
                ..Frame::new(kind, 6)
            };
            assert_eq!(Frame::parse(&frame.emit()), Some(frame));
        }
        let mut bytes = Frame::new(Kind::Ack, 0).emit();
        bytes[0] = 99;
        assert_eq!(Frame::parse(&bytes), None);
    }
}

//! The protocol between client and server: a request and a grant in the CM private data, with big-endian numbers, and
//! messages by SEND, as text that is readable in a capture. Received bytes are untrusted and are parsed into these
//! types or refused.

use ferroce::{RKey, RemoteAddress, VirtualAddress};

/// "FeS" and the version.
const MAGIC: u32 = 0x4665_5301;

/// The longest message.
pub(crate) const MAIL: usize = 256;

/// The minimum length of a message, padded with spaces: Wireshark takes a shorter SEND for a malformed RPC.
const SHORTEST: usize = 32;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_be_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_be_bytes)
}

/// A client's request: this many bytes of memory, and 8 more for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRequest {
    pub(crate) size: u64,
}

impl MemoryRequest {
    pub(crate) fn emit(self) -> Vec<u8> {
        [&MAGIC.to_be_bytes()[..], &self.size.to_be_bytes()].concat()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let size = long(bytes, 4)?;
        (word(bytes, 0)? == MAGIC && size > 0).then_some(Self { size })
    }

    /// The offset of the counter: behind the bytes, aligned to 8.
    pub(crate) fn counter(self) -> u64 {
        self.size.next_multiple_of(8)
    }

    /// The size of the region.
    pub(crate) fn region(self) -> Option<usize> {
        let length = self.size.checked_next_multiple_of(8)?.checked_add(8)?;
        usize::try_from(length).ok()
    }
}

/// The server's grant: address and rkey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGrant {
    pub(crate) remote: RemoteAddress,
}

impl MemoryGrant {
    pub(crate) fn emit(self) -> Vec<u8> {
        let RemoteAddress { address, key } = self.remote;
        [&MAGIC.to_be_bytes()[..], &address.0.to_be_bytes(), &key.0.to_be_bytes()].concat()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (address, key) = (VirtualAddress(long(bytes, 4)?), RKey(word(bytes, 12)?));
        (word(bytes, 0)? == MAGIC).then_some(Self { remote: RemoteAddress { address, key } })
    }

    /// The remote address at an offset.
    pub(crate) fn at(self, offset: u64) -> RemoteAddress {
        let address = VirtualAddress(self.remote.address.0.wrapping_add(offset));
        RemoteAddress { address, ..self.remote }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionMessage {
    /// Any text. The server echoes it.
    Text(String),
    /// Asks whether the first bytes of the region are the pattern of this seed. The server answers with a verdict.
    Check { seed: u64, length: u64 },
    /// This many bytes are correct.
    Verdict { right: u64 },
    /// The end of the session.
    Goodbye,
}

impl SessionMessage {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let text = match self {
            Self::Text(text) => format!("text {text}"),
            Self::Check { seed, length } => format!("check {seed} {length}"),
            Self::Verdict { right } => format!("right {right}"),
            Self::Goodbye => "goodbye".to_owned(),
        };
        format!("{text:<SHORTEST$}").into_bytes()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "text" => Some(Self::Text(rest.to_owned())),
            "check" => {
                let (seed, length) = rest.split_once(' ')?;
                Some(Self::Check { seed: seed.parse().ok()?, length: length.parse().ok()? })
            }
            "right" => Some(Self::Verdict { right: rest.parse().ok()? }),
            "goodbye" => Some(Self::Goodbye),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let request = MemoryRequest { size: 1001 };
        assert_eq!(MemoryRequest::parse(&request.emit()), Some(request));
        assert_eq!((request.counter(), request.region()), (1008, Some(1016)));
        let remote = RemoteAddress { address: VirtualAddress(1 << 40), key: RKey(77) };
        assert_eq!(
            MemoryGrant::parse(&MemoryGrant { remote }.emit()),
            Some(MemoryGrant { remote })
        );
        for message in [
            SessionMessage::Text("hello".to_owned()),
            SessionMessage::Check { seed: 1, length: 1 << 40 },
            SessionMessage::Verdict { right: 5 },
            SessionMessage::Goodbye,
        ] {
            assert_eq!(SessionMessage::parse(&message.emit()), Some(message));
        }
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for bytes in [&[][..], &[0; 11], &[0; 56], b"GET / HTTP/1.1\r\n"] {
            assert_eq!((MemoryRequest::parse(bytes), MemoryGrant::parse(bytes)), (None, None));
            assert_eq!(SessionMessage::parse(bytes), None);
        }
        assert_eq!(MemoryRequest::parse(&MemoryRequest { size: 0 }.emit()), None);
        assert_eq!(MemoryRequest { size: u64::MAX }.region(), None);
        assert_eq!(SessionMessage::parse(b"check 1"), None);
        assert_eq!(SessionMessage::parse(b"right -1"), None);
    }
}

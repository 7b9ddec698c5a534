//! Times as the connection manager and the queue pairs encode them: 4.096 µs · 2^code, in five bits.

use core::time::Duration;

use crate::number::numbers;

numbers! {
    /// How long an answer may take (IBA 12.7): 4.096 µs · 2^code.
    pub struct ResponseTimeout(u8), 4 => |timeout, f| write!(f, "{:.3?}", timeout.duration());
    /// How long a requester waits for an acknowledge (IBA 9.7.6.1.3): 4.096 µs · 2^code, where 0 means for ever.
    pub struct AckTimeout(u8), 4 => |timeout, f| match timeout.duration() {
        Some(duration) => write!(f, "{duration:.3?}"),
        None => f.write_str("no timeout"),
    };
}

impl ResponseTimeout {
    /// The time. Only five bits count, as on the wire: 4.096 µs to 2.4 hours.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << (self.0 & 0x1f))
    }

    /// The shortest encodable time that is at least `time`; the longest when none is.
    pub fn at_least(time: Duration) -> Self {
        Self((0..31).find(|&code| Self(code).duration() >= time).unwrap_or(31))
    }
}

impl AckTimeout {
    /// A requester that waits for ever.
    pub const NEVER: Self = Self(0);

    /// The time, `None` when there is no limit. Only five bits count, as on the wire.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 & 0x1f {
            0 => None,
            code => Some(ResponseTimeout(code).duration()),
        }
    }

    /// The shortest encodable time that is at least `time`; the longest when none is.
    pub fn at_least(time: Duration) -> Self {
        Self(ResponseTimeout::at_least(time).0.max(1))
    }
}

//! Timeouts encoded in five bits: 4.096 µs · 2^code.

use core::time::Duration;

use crate::number::numbers;

numbers! {
    /// Maximum response time (IBA 12.7): 4.096 µs · 2^code.
    pub struct ResponseTimeout(u8), 4 => |timeout, f| write!(f, "{:.3?}", timeout.duration());
    /// Local ACK timeout of a requester (IBA 9.7.6.1.3): 4.096 µs · 2^code, where 0 means no timeout.
    pub struct AckTimeout(u8), 4 => |timeout, f| match timeout.duration() {
        Some(duration) => write!(f, "{duration:.3?}"),
        None => f.write_str("no timeout"),
    };
}

impl ResponseTimeout {
    /// The time of the lower five bits: 4.096 µs to 2.4 hours.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << (self.0 & 0x1f))
    }

    /// The shortest encodable time that is at least `time`, or the longest if there is none.
    pub fn at_least(time: Duration) -> Self {
        Self((0..31).find(|&code| Self(code).duration() >= time).unwrap_or(31))
    }
}

impl AckTimeout {
    /// No timeout.
    pub const NEVER: Self = Self(0);

    /// The time of the lower five bits; `None` if there is no timeout.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 & 0x1f {
            0 => None,
            code => Some(ResponseTimeout(code).duration()),
        }
    }

    /// The shortest encodable time that is at least `time`, or the longest if there is none.
    pub fn at_least(time: Duration) -> Self {
        Self(ResponseTimeout::at_least(time).0.max(1))
    }
}

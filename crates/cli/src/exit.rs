//! Exit statuses.

use std::io;
use std::process::ExitCode;

use crate::style::Screen;

/// The exit status. Documented in `--help` and the man page; scripts rely on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Everything was done, and the input was valid.
    #[default]
    Success,
    /// Failed: wrong usage, a file that cannot be opened, output that cannot be written.
    Failure,
    /// Invalid input: a damaged or foreign file, a malformed packet. Everything readable was shown.
    BadInput,
    /// The input was valid and contains what `--fail-on` names.
    Found,
}

impl ExitStatus {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::BadInput => 2,
            Self::Found => 3,
        }
    }

    /// Combines two statuses: a failure outweighs invalid input, which outweighs a finding.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failure, _) | (_, Self::Failure) => Self::Failure,
            (Self::BadInput, _) | (_, Self::BadInput) => Self::BadInput,
            (Self::Found, _) | (_, Self::Found) => Self::Found,
            (Self::Success, Self::Success) => Self::Success,
        }
    }

    /// The status of a command that can fail only by its output. A closed pipe (`| head`) is not an error.
    pub(crate) fn of_output(result: io::Result<Self>, screen: &Screen) -> Self {
        match result {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::Success,
            Err(error) => {
                screen.complain(format_args!("cannot write the output: {error}"));
                Self::Failure
            }
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::ExitStatus::{BadInput, Failure, Found, Success};

    #[test]
    fn the_more_severe_status_wins() {
        assert_eq!(Success.and(Success), Success);
        assert_eq!(Success.and(BadInput), BadInput);
        assert_eq!((Success.and(Found), Found.and(BadInput)), (Found, BadInput));
        assert_eq!(BadInput.and(Failure), Failure);
        assert_eq!(Failure.and(Success), Failure);
    }
}

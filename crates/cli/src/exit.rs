//! What the command tells the shell.

use std::io;
use std::process::ExitCode;

use crate::style::Screen;

/// The exit status. Documented in `--help` and the man page, so scripts rely on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// All was done, and nothing was wrong with the input.
    #[default]
    Success,
    /// The job could not be done: wrong usage, a file that cannot be opened, output that cannot be written.
    Failure,
    /// Bad input was met: a damaged or foreign file, a malformed packet. Whatever was readable was shown.
    BadInput,
    /// Nothing was wrong with the input, and it shows what the user said must not be there.
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

    /// The status of two jobs together: a job that was not done outweighs bad input, which outweighs what was found.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Failure, _) | (_, Self::Failure) => Self::Failure,
            (Self::BadInput, _) | (_, Self::BadInput) => Self::BadInput,
            (Self::Found, _) | (_, Self::Found) => Self::Found,
            (Self::Success, Self::Success) => Self::Success,
        }
    }

    /// The status of a job that could fail only by its output. Who reads it may have gone away (`| head`): that is
    /// no error, and nobody is left to be told.
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
    fn the_worse_of_two_wins() {
        assert_eq!(Success.and(Success), Success);
        assert_eq!(Success.and(BadInput), BadInput);
        assert_eq!((Success.and(Found), Found.and(BadInput)), (Found, BadInput));
        assert_eq!(BadInput.and(Failure), Failure);
        assert_eq!(Failure.and(Success), Failure);
    }
}

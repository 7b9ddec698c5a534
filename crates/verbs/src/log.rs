//! Diagnostic messages on standard error, off unless `FERROCE_LOG` asks for them.

use std::io::{self, IsTerminal, Write, stderr};

use ferroce_sys::{Uncancellable, environment};
use tracing::level_filters::LevelFilter;

/// The variable that sets the level: `error`, `warn`, `info`, `debug` or `trace`.
const VARIABLE: &str = "FERROCE_LOG";

/// Writes the messages of this library to standard error, down to the level that `FERROCE_LOG` names.
///
/// For programs that have no subscriber of their own: the `ferroce` command and the C libraries call it. A Rust program
/// installs a `tracing` subscriber instead. Without the variable, or if a subscriber is installed already, it does
/// nothing.
///
/// # Errors
///
/// If the variable holds something else. The error names what it may hold.
pub fn log_to_stderr() -> Result<(), BadLogLevel> {
    let Some(value) = environment::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let level = value
        .to_str()
        .and_then(parse)
        .ok_or_else(|| BadLogLevel { value: value.to_string_lossy().into_owned() })?;
    // Fails only if the program has a subscriber of its own, which takes precedence.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| UncancelledStderr)
        .with_ansi(stderr().is_terminal())
        .try_init();
    Ok(())
}

/// Standard error, for threads that may be cancelled.
struct UncancelledStderr;

impl Write for UncancelledStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _guard = Uncancellable::new();
        stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn parse(level: &str) -> Option<LevelFilter> {
    // Its own parser takes numbers and capital letters, too.
    let is_level = ["off", "error", "warn", "info", "debug", "trace"].contains(&level);
    is_level.then(|| level.parse().ok()).flatten()
}

/// `FERROCE_LOG` does not hold a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE}={value} is not a log level: use off, error, warn, info, debug or trace")]
pub struct BadLogLevel {
    value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_parsed_and_others_refused() {
        assert_eq!(parse("debug"), Some(LevelFilter::DEBUG));
        assert_eq!(parse("off"), Some(LevelFilter::OFF));
        assert_eq!(parse("Debug"), None);
        assert_eq!(parse("1"), None);
        let error = BadLogLevel { value: "loud".into() };
        assert!(error.to_string().contains("FERROCE_LOG=loud"), "{error}");
    }
}

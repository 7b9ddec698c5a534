//! What `ferroce demo`, `ferroce server` and `ferroce client` share: the ends of a connection, what they say to each
//! other, and the bytes that are checked.
//!
//! | file | role |
//! |---|---|
//! | `bytes` | sizes on the command line, and bytes that can be checked |
//! | `protocol` | what the two programs tell each other |
//! | `dump` | objects and work requests on one line each |
//! | `end` | one end: queue pair, completions, mail |
//! | `events` | the connection manager's events, awaited |
//! | `failure` | what goes wrong, told to a person |
//! | `log` | the steps, and how long each took |
//! | `place` | where to listen and to connect |

pub(crate) mod bytes;
pub(crate) mod dump;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod log;
pub(crate) mod place;
pub(crate) mod protocol;

use std::path::PathBuf;

use ferroce::Options;

/// The port of RDMA-CM that is tried when none is said.
pub(crate) const PORT: u16 = 7471;

/// How devices are opened: as always, with a capture if one is asked for.
pub(crate) fn options(capture: Option<&PathBuf>) -> Options {
    let mut options = Options::default();
    if let Some(path) = capture {
        options.capture = Some(path.clone());
    }
    options
}

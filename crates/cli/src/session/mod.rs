//! Shared code of `ferroce demo`, `ferroce server` and `ferroce client`: the ends of a connection, their messages, and
//! the test pattern.
//!
//! | file | role |
//! |---|---|
//! | `bytes` | sizes on the command line, and test patterns |
//! | `protocol` | the messages between client and server |
//! | `dump` | one-line descriptions of objects and work requests |
//! | `end` | one end of a connection: QP, CQ, message buffers |
//! | `events` | waiting for CM events |
//! | `failure` | errors as shown to users |
//! | `log` | the steps of a run, with their times |
//! | `set_up` | the ways to set up a connection |
//! | `address` | addresses to listen on and connect to |

pub(crate) mod address;
pub(crate) mod bytes;
pub(crate) mod dump;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod log;
pub(crate) mod protocol;
pub(crate) mod set_up;

use std::path::PathBuf;

use ferroce::{EnvironmentError, Options};

use crate::capture::PolicyArgs;

/// The default RDMA-CM port.
pub(crate) const PORT: u16 = 7471;

/// How devices are opened: as always, with a capture if one is asked for.
pub(crate) fn options(
    capture: Option<&PathBuf>,
    policy: PolicyArgs,
) -> Result<Options, EnvironmentError> {
    let mut options = Options::from_env()?;
    if let Some(path) = capture {
        options.capture = Some(path.clone());
    }
    policy.apply(&mut options);
    Ok(options)
}

//! The messages between the command and its ranks: lines of JSON over the standard input and output of a rank. They are
//! bounded, and parsed into these types or refused.

use std::io::{self, BufRead, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::link::Endpoint;
use super::method::Method;
use super::tally::RankResult;

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;

/// The longest line: a histogram of latencies is the largest part of one.
const MAX_LINE: u64 = 4 << 20;

/// What a rank is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) version: u32,
    pub(super) job: Job,
    pub(super) rank: usize,
    /// The address that ranks use.
    pub(super) address: IpAddr,
    pub(super) method: Method,
    /// What TCP connections between ranks present.
    pub(super) token: u64,
    pub(super) capture: Option<PathBuf>,
}

/// A message to a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToRank {
    /// The first message.
    Start(Box<Start>),
    /// The endpoints of all ranks.
    Connect { endpoints: Vec<Endpoint> },
    /// All ranks are connected.
    Go,
    /// All ranks have finished.
    Quit,
    /// Another rank failed.
    Abort,
}

/// A message of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum FromRank {
    /// It runs.
    Here { pid: u32, endpoint: Endpoint },
    /// It is connected.
    Ready { shares_memory: bool },
    /// It is alive; sent at regular intervals.
    Alive { operations: u64 },
    /// It has finished, and serves the other ranks until they have, too.
    Finished { result: Box<RankResult> },
    /// It failed: the message names another rank if that is the cause.
    Failed { message: String },
    /// It ends because it was told to.
    Aborted,
}

/// Sends a message.
pub(super) fn send(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Waits for a message; `None` at the end of the stream.
pub(super) fn receive<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let length = input.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if length == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_foreign_ones_are_refused() {
        let mut bytes = Vec::new();
        send(&mut bytes, &FromRank::Aborted).unwrap();
        send(&mut bytes, &FromRank::Failed { message: "x".into() }).unwrap();
        let mut input = &bytes[..];
        assert!(matches!(receive(&mut input).unwrap(), Some(FromRank::Aborted)));
        assert!(matches!(receive(&mut input).unwrap(), Some(FromRank::Failed { .. })));
        assert!(receive::<FromRank>(&mut input).unwrap().is_none());
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"{\"type\":\"reboot\"}\n", b"{\"type\""] {
            assert!(receive::<FromRank>(&mut &*bytes).is_err());
        }
    }
}

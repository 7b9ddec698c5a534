//! The control connection: lines of JSON over TCP, by which both sides agree on what comes next. Lines from the network
//! are untrusted: they are bounded, and parsed into these types or refused.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ferroce_sys::tcp;
use ferroce_sys::usage::CpuTime;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::session::failure::Failure;

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;

/// The longest line.
const MAX_LINE: usize = 4096;

/// How long a connection may be idle before the kernel probes whether the peer's host exists.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A request of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// The first on a control connection.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// What will be transferred.
        plan: Plan,
    },
    /// The first, and only one, on a TCP connection for data.
    Data {
        /// The token of the session that it belongs to.
        token: u64,
    },
    /// A connection for data follows.
    Expect {
        /// How it is made.
        carrier: Carrier,
    },
    /// A transfer begins.
    Begin {
        /// What the receiver does.
        receiver: Receiver,
    },
    /// The transfer is complete.
    End {
        /// The seed of the pattern, if the receiver is to verify it.
        seed: Option<u64>,
    },
}

/// A connection for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Carrier {
    /// By RDMA-CM.
    Rdma,
    /// By TCP.
    Tcp,
}

/// What the receiver does during a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Receiver {
    /// Nothing: the sender WRITEs.
    Rdma,
    /// It receives by TCP into its memory.
    Tcp,
    /// It receives by TCP, and the kernel discards the bytes.
    TcpDiscard,
}

/// A response of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub(super) enum Response {
    /// Another client is served; repeated until this one's turn comes.
    Waiting,
    /// The memory exists.
    Ready {
        /// What connections for data present.
        token: u64,
    },
    /// The request is not possible.
    Refused {
        /// The reason.
        reason: String,
    },
    /// The connection for data exists, or the transfer may begin.
    Go,
    /// The figures of the transfer.
    Done {
        /// The server's CPU time.
        cpu: Cpu,
        /// Correct bytes from the start, if verification was requested.
        correct: Option<u64>,
    },
}

/// CPU time of one side during a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cpu {
    /// In the program.
    pub(super) user_ns: u64,
    /// In the kernel.
    pub(super) system_ns: u64,
}

impl Cpu {
    /// The time between two readings.
    pub(super) fn between(before: CpuTime, after: CpuTime) -> Self {
        let nanoseconds = |before: Duration, after: Duration| {
            u64::try_from(after.saturating_sub(before).as_nanos()).unwrap_or(u64::MAX)
        };
        Self {
            user_ns: nanoseconds(before.user, after.user),
            system_ns: nanoseconds(before.system, after.system),
        }
    }

    /// Both together, in seconds.
    pub(super) fn seconds(self) -> f64 {
        (self.user_ns as f64 + self.system_ns as f64) / 1e9
    }
}

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Control {
    reader: BufReader<TcpStream>,
}

impl Control {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        tcp::set_keepalive(stream.as_fd(), KEEPALIVE)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(super) fn local_address(&self) -> Result<SocketAddr, Failure> {
        self.reader.get_ref().local_addr().map_err(lost)
    }

    /// The connection itself, after the last line.
    pub(super) fn into_stream(self) -> TcpStream {
        self.reader.into_inner()
    }

    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from).map_err(lost)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).map_err(lost)
    }

    /// Waits for a line; `None` at the end of the connection.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        what: &'static str,
        timeout: Duration,
    ) -> Result<Option<T>, Failure> {
        let deadline = Instant::now() + timeout;
        let late = || Failure::Timeout(what, timeout.as_secs());
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            self.reader.get_ref().set_read_timeout(Some(left)).map_err(lost)?;
            let found = match self.reader.fill_buf() {
                Ok(found) => found,
                Err(error) if is_timeout(&error) => return Err(late()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(lost(error)),
            };
            if found.is_empty() {
                return Ok(None);
            }
            let end = found.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(found.len(), |end| end + 1);
            line.extend_from_slice(&found[..length]);
            self.reader.consume(length);
            if line.len() > MAX_LINE {
                return Err(Failure::IncompatiblePeer);
            }
            if end.is_some() {
                let parsed = serde_json::from_slice(&line);
                return parsed.map(Some).map_err(|_| Failure::IncompatiblePeer);
            }
        }
    }

    /// Waits for a response of the server.
    pub(super) fn response(
        &mut self,
        what: &'static str,
        timeout: Duration,
    ) -> Result<Response, Failure> {
        match self.receive(what, timeout)? {
            Some(Response::Refused { reason }) => {
                Err(Failure::Refused(crate::style::printable(&reason).into_owned()))
            }
            Some(response) => Ok(response),
            None => Err(Failure::Disconnected),
        }
    }
}

/// Whether a read or write failed because the socket's timeout expired.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The failure of a TCP connection to the peer.
pub(super) fn lost(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Failure::Disconnected,
        _ => Failure::Other(format!("the TCP connection to the peer failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const SECOND: Duration = Duration::from_secs(10);

    fn pair() -> (TcpStream, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, Control::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn messages_round_trip() {
        let (client, mut server) = pair();
        let mut client = Control::new(client).unwrap();
        let plan = Plan { size: 1 << 40, chunk: 4096, depth: 2 };
        for request in [
            Request::Hello { version: VERSION, plan },
            Request::Data { token: u64::MAX },
            Request::Begin { receiver: Receiver::TcpDiscard },
            Request::End { seed: None },
        ] {
            client.send(&request).unwrap();
            assert_eq!(server.receive("a request", SECOND).unwrap(), Some(request));
        }
        server.send(&Response::Refused { reason: "no\x1b[2J".into() }).unwrap();
        let refused = client.response("a response", SECOND).unwrap_err().to_string();
        assert_eq!(refused, "the server refused the request: no?[2J");
        drop(client);
        assert_eq!(server.receive::<Request>("a request", SECOND).unwrap(), None);
    }

    #[test]
    fn foreign_and_endless_lines_are_refused() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"{\"request\":\"reboot\"}\n", &[b'x'; 9000]] {
            let (mut client, mut server) = pair();
            client.write_all(bytes).unwrap();
            let error = server.receive::<Request>("a request", SECOND).unwrap_err();
            assert!(matches!(error, Failure::IncompatiblePeer), "{error}");
        }
    }
}

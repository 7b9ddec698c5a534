//! The control connection: a TCP connection with one JSON object per line, beside the QPs that are measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ferroce::{Device, Gid};
use serde::{Deserialize, Serialize};

use super::end::EndAddress;
use super::tally::Tally;
use super::test::Test;
use crate::session::failure::Failure;

/// The name and version of the protocol.
pub(super) const PROTOCOL: &str = "ferroce-perf";
pub(super) const VERSION: u32 = 1;

/// The longest line: the addresses of all QPs.
const MAX_LINE: u64 = 1 << 20;

/// How long connecting and one step of the set-up may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// A message between client and server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Message {
    /// The client's request.
    Hello { protocol: String, version: u32, test: Test, ends: Vec<EndAddress> },
    /// The server has connected its QPs.
    Accept { ends: Vec<EndAddress> },
    /// The server does not run this test.
    Refuse { why: String },
    /// The client has connected its QPs and is ready for this size.
    Run { size: u64 },
    /// The server is ready for the size.
    Go,
    /// From a worker to the worker of the same number.
    Mail { worker: usize, mail: Mail },
    /// The client was interrupted: the current size ends early.
    Interrupt,
    /// The server's workers are done with the size.
    Done { tally: Tally },
    /// This side failed.
    Failed { why: String },
}

/// A message between two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Mail {
    /// So many messages were sent, and no more follow.
    Sent { count: u64 },
    /// Asks to check messages of a QP.
    Check { end: usize, first: u64, count: u64 },
    /// They are correct, except those that were lost.
    Checked { end: usize, lost: u64 },
}

/// What the threads of a session report to its main thread.
#[derive(Debug)]
pub(super) enum Event {
    /// The peer sent a message.
    Peer(Message),
    /// The control connection ended.
    Gone(String),
    /// A worker has a message for the peer's.
    Mail(usize, Mail),
    /// A worker is done.
    Ended(Result<Tally, Failure>),
    /// The user pressed Ctrl-C, or a signal asked to end.
    Interrupted,
}

/// The control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    pub(super) events: Receiver<Event>,
    pub(super) sender: Sender<Event>,
}

impl Control {
    /// Reads the connection in a thread of its own, which ends with the connection.
    pub(super) fn new(
        stream: TcpStream,
        sender: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Self, Failure> {
        let failure = |error| Failure::Other(format!("the control connection failed: {error}"));
        // Messages are short, and the other side waits for them.
        stream.set_nodelay(true).map_err(failure)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failure)?;
        let (reader, reports) = (stream.try_clone().map_err(failure)?, sender.clone());
        thread::Builder::new().spawn(move || read(reader, &reports)).map_err(failure)?;
        Ok(Self { stream, events, sender })
    }

    pub(super) fn send(&self, message: &Message) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message)
            .map_err(|error| Failure::Other(format!("cannot encode a message: {error}")))?;
        line.push(b'\n');
        (&self.stream).write_all(&line).map_err(|error| gone(&error.to_string()))
    }

    /// Waits for the next message of the set-up.
    pub(super) fn receive(&self) -> Result<Message, Failure> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Event::Peer(Message::Failed { why })) => return Err(Failure::Other(why)),
                Ok(Event::Peer(message)) => return Ok(message),
                Ok(Event::Gone(why)) => return Err(gone(&why)),
                Ok(Event::Interrupted) => return Err(Failure::Other("interrupted".into())),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::Timeout("the peer's message", TIMEOUT.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(gone("no thread reads it")),
            }
        }
    }

    /// The device that the connection uses, the index of its GID and the GID of the peer: RDMA takes the same route.
    pub(super) fn device(&self) -> Result<(Device, u8, Gid), Failure> {
        let failure = |error| Failure::Other(format!("the control connection failed: {error}"));
        let own = canonical(self.stream.local_addr().map_err(failure)?);
        let peer = canonical(self.stream.peer_addr().map_err(failure)?);
        let (device, index) = Device::with_address(own)?;
        Ok((device, index, Gid::from_ip(peer.ip())))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The reading thread holds the same socket.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A listener on `::` sees IPv4 addresses mapped into IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

/// The error when the control connection ends in the middle of a test.
pub(super) fn gone(why: &str) -> Failure {
    Failure::Other(format!(
        "the peer closed the control connection ({why}): it ended or was terminated"
    ))
}

fn read(stream: TcpStream, sender: &Sender<Event>) {
    let mut reader = BufReader::new(stream);
    loop {
        let event = match next(&mut reader) {
            Ok(Some(message)) => Event::Peer(message),
            Ok(None) => Event::Gone("end of stream".into()),
            Err(error) => Event::Gone(error.to_string()),
        };
        let last = matches!(event, Event::Gone(_));
        if sender.send(event).is_err() || last {
            return;
        }
    }
}

/// The next message; `None` at the end.
fn next(reader: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut line = Vec::new();
    if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(io::Error::other("a truncated message"));
    }
    serde_json::from_slice(&line).map(Some).map_err(|_| io::Error::other("not a message of perf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_refused() {
        let parse = |bytes: &[u8]| next(&mut &bytes[..]);
        assert!(matches!(parse(b"{\"type\":\"go\"}\n"), Ok(Some(Message::Go))));
        assert!(matches!(parse(b""), Ok(None)));
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"{}\n", b"\xff\n", b"{\"type\":\"go\"}"] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
        let endless = vec![b' '; 2 << 20];
        assert!(parse(&endless).is_err());
    }

    #[test]
    fn addresses_of_a_dual_stack_listener_are_ipv4() {
        let of = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(of("[::ffff:192.0.2.1]:5"), "192.0.2.1:5");
        assert_eq!(of("[fe80::1%3]:5"), "[fe80::1%3]:5");
    }
}

//! The transfer by TCP. The receiver acknowledges each chunk with one byte once it is in memory, as the completion of a
//! WRITE says of its chunk.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use ferroce::{Buffer, clock};
use ferroce_sys::tcp;

use super::control::{Control, Request, Response, is_timeout, lost};
use super::plan::Plan;
use super::transfer::Transfer;
use crate::session::end::COMPLETION_TIMEOUT;
use crate::session::failure::Failure;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Acknowledgements read at once.
const ACKS: usize = 256;

/// Connects, with a message about the server if there is none.
pub(super) fn connect(server: SocketAddr) -> Result<TcpStream, Failure> {
    TcpStream::connect_timeout(&server, CONNECT_TIMEOUT).map_err(|error| {
        let ip = server.ip();
        Failure::Other(match error.kind() {
            io::ErrorKind::ConnectionRefused => format!(
                "no server listens on TCP {server}: start `ferroce compare --server --listen \
                 {server}` there first"
            ),
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => format!(
                "{ip} does not respond: check that the host is up, and that firewalls on the path \
                 allow TCP port {} and UDP port 4791",
                server.port()
            ),
            _ => format!("cannot connect to TCP {server}: {error}"),
        })
    })
}

/// The sender's connection.
#[derive(Debug)]
pub(super) struct TcpSender {
    stream: TcpStream,
}

impl TcpSender {
    /// Connects to the session with this token.
    pub(super) fn open(server: SocketAddr, token: u64) -> Result<Self, Failure> {
        let mut control = Control::new(connect(server)?).map_err(lost)?;
        control.send(&Request::Data { token })?;
        match control.response("the server's answer", COMPLETION_TIMEOUT)? {
            Response::Go => {}
            _ => return Err(Failure::IncompatiblePeer),
        }
        let stream = control.into_stream();
        stream.set_write_timeout(Some(COMPLETION_TIMEOUT)).map_err(lost)?;
        stream.set_read_timeout(None).map_err(lost)?;
        Ok(Self { stream })
    }

    pub(super) fn local_address(&self) -> Result<SocketAddr, Failure> {
        self.stream.local_addr().map_err(lost)
    }

    /// Sends the buffer, and waits for all acknowledgements.
    pub(super) fn transfer(
        &self,
        plan: &Plan,
        buffer: &Buffer,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Transfer, Failure> {
        let before = tcp::info(self.stream.as_fd()).map_err(lost)?.retransmits;
        let chunks = plan.chunks();
        let mut starts = Vec::with_capacity(chunks as usize);
        let ends = thread::scope(|scope| {
            // A thread of its own, because the time of an acknowledgement would otherwise be that of the end of the
            // next send.
            let acks = scope.spawn(|| self.acknowledgements(chunks));
            let sent = (0..chunks).try_for_each(|chunk| {
                let range = plan.range(chunk);
                starts.push(clock::now());
                self.send(buffer, range.start as usize, (range.end - range.start) as usize)?;
                progress(range.end);
                Ok(())
            });
            if sent.is_err() {
                // Ends the other thread.
                let _ = self.stream.shutdown(std::net::Shutdown::Both);
            }
            let ends = acks.join();
            let panicked =
                |_| Err(Failure::Other("the thread for acknowledgements panicked".into()));
            sent.and(ends.unwrap_or_else(panicked))
        })?;
        let after = tcp::info(self.stream.as_fd()).map_err(lost)?.retransmits;
        Ok(Transfer::new(&starts, &ends, u64::from(after.saturating_sub(before))))
    }

    fn send(&self, buffer: &Buffer, start: usize, length: usize) -> Result<(), Failure> {
        let mut sent = 0;
        while sent < length {
            match buffer.send(self.stream.as_fd(), start + sent, length - sent) {
                Ok(more) => sent += more,
                Err(error) if is_timeout(&error) => return Err(stalled()),
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// The times of all acknowledgements.
    fn acknowledgements(&self, chunks: u64) -> Result<Vec<u64>, Failure> {
        let mut ends = Vec::with_capacity(chunks as usize);
        let mut bytes = [0; ACKS];
        while (ends.len() as u64) < chunks {
            let left = (chunks - ends.len() as u64).min(ACKS as u64) as usize;
            match (&self.stream).read(&mut bytes[..left]) {
                Ok(0) => return Err(Failure::Disconnected),
                Ok(count) => ends.extend(std::iter::repeat_n(clock::now(), count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(ends)
    }
}

fn stalled() -> Failure {
    Failure::Other(format!("TCP made no progress for {} s", COMPLETION_TIMEOUT.as_secs()))
}

/// Receives one transfer: into the buffer, or, without one, discarding it in the kernel.
pub(super) fn receive(
    stream: &TcpStream,
    plan: &Plan,
    buffer: Option<&Buffer>,
) -> Result<(), Failure> {
    for chunk in 0..plan.chunks() {
        let range = plan.range(chunk);
        let (mut at, end) = (range.start as usize, range.end as usize);
        while at < end {
            let received = match buffer {
                Some(buffer) => buffer.receive(stream.as_fd(), at, end - at),
                None => tcp::discard(stream.as_fd(), end - at),
            };
            match received {
                Ok(0) => return Err(Failure::Disconnected),
                Ok(count) => at += count,
                Err(error) if is_timeout(&error) => return Err(stalled()),
                Err(error) => return Err(lost(error)),
            }
        }
        (&*stream).write_all(&[0]).map_err(lost)?;
    }
    Ok(())
}

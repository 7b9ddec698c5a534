//! Sending and receiving.

use std::ffi::c_int;

use super::socket::{Phase, State, StreamSocket};
use crate::error::{Errno, Result};
use crate::sync::lock;

/// Vectors up to this total length are copied together, to need fewer messages.
const COALESCE_BYTES: usize = 1 << 16;

impl State {
    /// Why nothing can be sent or received without a connection: `Ok` if there is or was one, `None` while it is
    /// connecting.
    pub(super) fn check_connection(&mut self) -> Option<Result<()>> {
        match self.phase {
            Phase::Connecting => None,
            Phase::Connected { .. } | Phase::Disconnected => Some(Ok(())),
            Phase::Refused | Phase::Failed => Some(self.take_error().map_or(Ok(()), Err)),
            Phase::New | Phase::Bound | Phase::Listening => Some(Err(Errno(libc::ENOTCONN))),
        }
    }

    /// Receives the bytes there are. Returns `None` if there are none yet, and 0 at the end of the stream.
    fn receive(&mut self, out: &mut [u8], peek: bool) -> Option<Result<usize>> {
        // Bytes that arrived before the end or a failure come first.
        let connection = self.connection.as_mut();
        if let Some(connection) = connection.filter(|connection| connection.has_data()) {
            let received = connection.receive(out, peek);
            if self.phase.is_connected() {
                if let Some(failure) = connection.return_credits() {
                    // The CQ is not polled after a failure: take what arrived before it.
                    let (_, earlier) = connection.process_completions();
                    self.apply(earlier.or(Some(failure)));
                }
            }
            return Some(Ok(received));
        }
        if self.phase.is_readable() {
            return None;
        }
        Some(self.check_connection()?.map(|()| 0))
    }

    /// Sends some of the bytes. Returns `None` if none can be sent yet.
    fn send(&mut self, bytes: &[u8]) -> Option<Result<usize>> {
        if !self.phase.is_writable() {
            return Some(match self.check_connection()? {
                // Shut down by this side.
                Ok(()) if self.phase.is_connected() => Err(Errno(libc::EPIPE)),
                Ok(()) => Err(Errno(libc::ECONNRESET)),
                Err(error) => Err(error),
            });
        }
        let connection = self.connection.as_mut()?;
        if let Err(error) = connection.announce_maps()? {
            return Some(Err(error));
        }
        if bytes.is_empty() {
            return Some(Ok(0));
        }
        match connection.send(bytes) {
            Ok(0) => None,
            sent => Some(sent),
        }
    }
}

impl StreamSocket {
    /// Receives into a buffer, with flags of recv(2). Returns 0 at the end of the stream.
    pub fn receive(&self, out: &mut [u8], flags: c_int) -> Result<usize> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if out.is_empty() {
            return Ok(0);
        }
        let wait = self.waits(flags);
        let (peek, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
        let _turn = lock(&self.receiving);
        let mut done = 0;
        loop {
            let received =
                self.wait_until(wait, None, |state| state.receive(&mut out[done..], peek));
            match received.and_then(|received| received) {
                Ok(0) => return Ok(done),
                Ok(received) => done += received,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if !all || peek || done == out.len() {
                return Ok(done);
            }
        }
    }

    /// Receives into several buffers.
    pub fn receive_vectored(&self, list: &mut [&mut [u8]], flags: c_int) -> Result<usize> {
        let mut done = 0;
        for out in list {
            // The call waits for the first bytes only, unless all are wanted.
            let is_later = done > 0 && flags & libc::MSG_WAITALL == 0;
            let flags = if is_later { flags | libc::MSG_DONTWAIT } else { flags };
            let received = match self.receive(out, flags) {
                Ok(received) => received,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += received;
            // Peeking again would return the same bytes.
            if received < out.len() || flags & libc::MSG_PEEK != 0 && done > 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Sends all bytes, or as many as fit if the call does not wait, with flags of send(2).
    pub fn send(&self, bytes: &[u8], flags: c_int) -> Result<usize> {
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let wait = self.waits(flags);
        let _turn = lock(&self.sending);
        let mut done = 0;
        // An empty send reports errors, too.
        while done < bytes.len() || done == 0 {
            let sent = self.wait_until(wait, None, |state| state.send(&bytes[done..]));
            match sent.and_then(|sent| sent) {
                Ok(0) => break,
                Ok(sent) => done += sent,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Sends the bytes of several buffers.
    pub fn send_vectored(&self, list: &[&[u8]], flags: c_int) -> Result<usize> {
        let total = list.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
        if list.len() > 1 && total <= COALESCE_BYTES {
            return self.send(&list.concat(), flags);
        }
        let mut done = 0;
        for part in list {
            match self.send(part, flags) {
                Ok(sent) if sent < part.len() => return Ok(done + sent),
                Ok(sent) => done += sent,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

//! An interface whose RoCE frames are captured, whoever sends them.

use std::io;

use ferroce_sys::PacketSocket;

/// The kernel takes the time of a frame before it is in the socket's queue. A frame that is found later is not older than
/// the time of the search minus this.
const QUEUEING: u64 = 1_000_000;

/// The longest frame: segmentation offload makes datagrams of up to 64 KiB.
const MAX_FRAME: usize = 66 << 10;

/// An interface with its next frame.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) name: String,
    pub(super) socket: PacketSocket,
    /// Index into the collector's interfaces.
    pub(super) interface: usize,
    buffer: Vec<u8>,
    next: Option<NextFrame>,
    pub(super) watermark: u64,
    /// Frames that the kernel has dropped.
    pub(super) dropped: u64,
}

/// A received frame at the start of the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextFrame {
    pub(super) time: u64,
    pub(super) captured: usize,
    pub(super) length: usize,
    pub(super) outgoing: bool,
}

impl Wire {
    pub(super) fn open(name: &str, interface: usize) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            socket: PacketSocket::open(name)?,
            interface,
            buffer: vec![0; MAX_FRAME],
            next: None,
            watermark: 0,
            dropped: 0,
        })
    }

    /// Looks for the next frame. `now` is the time before this call.
    pub(super) fn look(&mut self, now: u64) -> io::Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        match self.socket.receive(&mut self.buffer)? {
            Some(frame) => {
                self.next = Some(NextFrame {
                    time: frame.time.unwrap_or(now),
                    captured: frame.captured,
                    length: frame.length,
                    outgoing: frame.outgoing,
                });
            }
            None => self.watermark = now.saturating_sub(QUEUEING),
        }
        Ok(())
    }

    pub(super) fn head(&self) -> Option<u64> {
        self.next.map(|next| next.time)
    }

    /// Takes the next frame.
    pub(super) fn take(&mut self) -> Option<(NextFrame, &[u8])> {
        let next = self.next.take()?;
        Some((next, &self.buffer[..next.captured]))
    }

    /// Asks the kernel how many frames it has dropped.
    pub(super) fn count_dropped(&mut self) {
        self.dropped += self.socket.take_dropped().unwrap_or(0);
    }
}

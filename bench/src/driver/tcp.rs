//! `tcp-server` and `tcp-client`: the same amount of memory and the same chunks as the WRITEs, over plain TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use clap::Args;

use super::control::Control;
use super::usage::cpu_seconds;
use crate::parse::sample;

/// What both ends have in common.
#[derive(Args, Clone, Debug)]
pub(crate) struct Transfer {
    /// TCP port of the control connection; the next one is that of the data
    #[arg(long, default_value_t = 7000)]
    port: u16,
    /// Bytes to transfer
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// Bytes of each write and read
    #[arg(long, default_value_t = 1 << 22)]
    chunk: usize,
    /// Bytes of memory of each end
    #[arg(long, default_value_t = 1 << 26)]
    footprint: usize,
}

impl Transfer {
    fn memory(&self) -> Vec<u8> {
        vec![1; self.footprint]
    }

    /// The part of the memory for the chunk that starts at a byte of the stream.
    fn part(&self, at: u64, total: u64) -> std::ops::Range<usize> {
        let chunks = (self.footprint / self.chunk).max(1) as u64;
        let start = (at / self.chunk as u64 % chunks) as usize * self.chunk;
        start..start + (self.chunk as u64).min(total - at) as usize
    }

    fn send(&self, stream: &mut TcpStream, memory: &[u8], total: u64) -> std::io::Result<()> {
        for at in (0..total).step_by(self.chunk) {
            stream.write_all(&memory[self.part(at, total)])?;
        }
        // The receiver has everything.
        stream.read_exact(&mut [0])
    }

    fn receive(
        &self,
        stream: &mut TcpStream,
        memory: &mut [u8],
        total: u64,
    ) -> std::io::Result<()> {
        for at in (0..total).step_by(self.chunk) {
            stream.read_exact(&mut memory[self.part(at, total)])?;
        }
        stream.write_all(&[0])
    }
}

/// Receives from one client.
pub(crate) fn serve(transfer: &Transfer) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut memory = transfer.memory();
    let data = TcpListener::bind((Ipv4Addr::LOCALHOST, transfer.port + 1)).map_err(text)?;
    let listener = Control::listen(transfer.port)?;
    let mut control = Control::accept(&listener)?;
    let (mut stream, _) = data.accept().map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    transfer.receive(&mut stream, &mut memory, transfer.footprint as u64).map_err(text)?;
    control.expect("begin")?;
    let before = cpu_seconds();
    control.send("begun")?;
    transfer.receive(&mut stream, &mut memory, transfer.bytes).map_err(text)?;
    control.expect("end")?;
    control.send(&(cpu_seconds() - before).to_string())?;
    control.expect("bye")
}

/// Sends, and prints the figures.
pub(crate) fn run(transfer: &Transfer) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let memory = transfer.memory();
    let mut control = Control::connect(transfer.port)?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, transfer.port + 1)).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    // All memory once, so that no page and no window is new.
    transfer.send(&mut stream, &memory, transfer.footprint as u64).map_err(text)?;
    control.send("begin")?;
    control.expect("begun")?;
    let (start, before) = (Instant::now(), cpu_seconds());
    transfer.send(&mut stream, &memory, transfer.bytes).map_err(text)?;
    let (seconds, ours) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
    control.send("end")?;
    let theirs = control.numbers::<f64>()?.first().copied().unwrap_or(0.0);
    control.send("bye")?;
    let gigabytes = transfer.bytes as f64 / 1e9;
    super::print(&sample([
        ("rate", gigabytes / seconds),
        ("seconds", seconds),
        ("cpu", (ours + theirs) / gigabytes),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_walk_through_the_memory() {
        let transfer = Transfer { port: 0, bytes: 100, chunk: 8, footprint: 24 };
        assert_eq!(transfer.part(0, 100), 0..8);
        assert_eq!(transfer.part(16, 100), 16..24);
        assert_eq!(transfer.part(24, 100), 0..8);
        assert_eq!(transfer.part(96, 100), 0..4);
    }
}

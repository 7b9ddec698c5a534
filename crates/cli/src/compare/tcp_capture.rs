//! The capture of a TCP connection: the frames on its interface, by AF_PACKET. Needs CAP_NET_RAW.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ferroce::clock;
use ferroce_sys::interface::{interface_of, interfaces};
use ferroce_sys::{Interest, PacketSocket, Poller};
use ferroce_trace::file::{Direction, LinkType, Packet, PcapngWriter, Timestamp, WriteError};

use crate::capture::create_private;

/// Longer than any frame: the kernel passes segments of up to 64 KiB through the loopback, or more with BIG TCP.
const LONGEST_FRAME: usize = 1 << 19;

/// How long the thread waits before it looks whether it is to stop.
const WAIT: u64 = 20_000_000;

/// What was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) packets: u64,
    pub(super) dropped: u64,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct TcpCapture {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Captured>>,
}

/// The interface that carries the packets between two addresses: the loopback, if both are of this host.
fn interface(local: IpAddr, server: SocketAddr) -> io::Result<String> {
    let all = interfaces().map_err(io::Error::other)?;
    if all.iter().any(|one| one.has(server.ip())) {
        let loopback = all.into_iter().find(|one| one.loopback && one.up);
        return loopback.map(|one| one.name).ok_or_else(|| io::ErrorKind::NotFound.into());
    }
    interface_of(SocketAddr::new(local, 0)).map(|one| one.name).map_err(io::Error::other)
}

impl TcpCapture {
    /// Starts to capture the TCP packets from and to the server's port, except those of the connections that exist
    /// already, which have these local addresses.
    pub(super) fn start(
        path: &Path,
        existing: &[SocketAddr],
        server: SocketAddr,
    ) -> io::Result<Self> {
        let local = existing.first().ok_or(io::ErrorKind::NotConnected)?;
        let name = interface(local.ip().to_canonical(), server)?;
        let others: Vec<_> = existing.iter().map(SocketAddr::port).collect();
        let socket = PacketSocket::open_tcp(&name, server.port())?;
        let mut writer = PcapngWriter::new(create_private(path)?).map_err(write_error)?;
        let interface =
            writer.add_interface(LinkType::ETHERNET, Some(&name)).map_err(write_error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("tcp-capture".into());
        let thread = thread.spawn(move || {
            let mut captured = Captured::default();
            let mut buffer = vec![0; LONGEST_FRAME];
            let mut poller = Poller::new();
            poller.watch(&socket, Interest::Read);
            loop {
                // Read before the last frames are taken: those that are sent before `finish` are all in the socket.
                let last = stopped.load(Ordering::Acquire);
                while let Some(frame) = socket.receive(&mut buffer)? {
                    let data = &buffer[..frame.captured];
                    if ports(data)
                        .is_some_and(|ports| ports.iter().any(|port| others.contains(port)))
                    {
                        continue;
                    }
                    let time = frame.time.and_then(|time| i64::try_from(time).ok()).unwrap_or(0);
                    let direction =
                        if frame.outgoing { Direction::Outbound } else { Direction::Inbound };
                    let original = u32::try_from(frame.length).unwrap_or(u32::MAX);
                    let packet = Packet::new(Timestamp::from_nanoseconds(time), data)
                        .on_interface(interface)
                        .cut_from(original)
                        .going(direction);
                    writer.write(&packet).map_err(write_error)?;
                    captured.packets += 1;
                }
                if last {
                    break;
                }
                poller.wait(Some(clock::now() + WAIT)).map_err(io::Error::other)?;
            }
            captured.dropped = socket.take_dropped()?;
            let now = Timestamp::from_nanoseconds(now());
            let received = captured.packets + captured.dropped;
            writer
                .write_statistics(interface, now, received, captured.dropped)
                .and_then(|()| writer.finish())
                .map_err(write_error)?;
            Ok(captured)
        })?;
        Ok(Self { stop, thread })
    }

    /// Writes what has come so far, and ends the file.
    pub(super) fn finish(self) -> io::Result<Captured> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    }
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

fn write_error(error: WriteError) -> io::Error {
    match error {
        WriteError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// The TCP ports of an Ethernet frame; `None` if it has none.
fn ports(frame: &[u8]) -> Option<[u16; 2]> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = 12;
    // VLAN tags.
    while matches!(half(at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let tcp = match half(at)? {
        0x0800 => ip + usize::from(frame.get(ip)? & 15) * 4,
        0x86dd => ip + 40,
        _ => return None,
    };
    Some([half(tcp)?, half(tcp + 2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_behind_tags_and_options() {
        let ipv4 = [&[0; 12][..], &[8, 0, 0x46], &[0; 23], &[0x1d, 0x2f, 0, 80]].concat();
        assert_eq!(ports(&ipv4), Some([7471, 80]));
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 1, 0x86, 0xdd], &[0; 40], &[0, 1, 0, 2]].concat();
        assert_eq!(ports(&tagged), Some([1, 2]));
        for short in 0..ipv4.len() {
            assert_eq!(ports(&ipv4[..short]), None, "{short}");
        }
        assert_eq!(ports(&[0; 60]), None);
    }

    #[test]
    fn the_packets_of_this_host_pass_the_loopback() {
        let own = "127.0.0.1:7471".parse().unwrap();
        assert_eq!(interface("127.0.0.1".parse().unwrap(), own).unwrap(), "lo");
    }
}

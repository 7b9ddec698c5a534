//! TCP: one connection to each peer, and one thread that serves all of them, as a program without RDMA would have it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ferroce::{Buffer, ProtectionDomain, clock};
use ferroce_sys::poll::{Interest, Poller};

use super::super::fault::{Fault, out_of_bounds};
use super::frame::{Frame, HEADER, Kind};
use super::{Endpoint, Event, Link, Request};
use crate::session::failure::Failure;

/// How long the ranks may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest message that a peer may SEND.
const MAX_MESSAGE: u64 = 1 << 20;

/// What of a message is still to be sent.
#[derive(Debug)]
struct Outgoing {
    header: [u8; HEADER],
    sent: usize,
    /// The payload in our memory.
    offset: usize,
    left: usize,
}

/// What of a message is still to be received.
#[derive(Debug)]
enum Incoming {
    Header { bytes: [u8; HEADER], filled: usize },
    Memory { frame: Frame, offset: usize, left: usize },
    Message { frame: Frame, bytes: Vec<u8>, filled: usize },
}

impl Incoming {
    const START: Self = Self::Header { bytes: [0; HEADER], filled: 0 };
}

/// The connection to a peer.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    outgoing: VecDeque<Outgoing>,
    incoming: Incoming,
}

/// The connections of a rank.
#[derive(Debug)]
pub(in super::super) struct TcpLink {
    rank: usize,
    token: u64,
    buffer: Arc<Buffer>,
    listener: TcpListener,
    /// By rank; `None` for this one.
    connections: Vec<Option<Connection>>,
    events: VecDeque<Event>,
    poller: Poller,
}

impl TcpLink {
    /// Listens at an address. The token keeps connections of others out.
    pub(in super::super) fn new(
        rank: usize,
        ip: IpAddr,
        buffer: &Arc<Buffer>,
        token: u64,
    ) -> Result<Self, Fault> {
        let failed = |error| Failure::Other(format!("cannot listen on TCP {ip}: {error}"));
        let listener = TcpListener::bind(SocketAddr::new(ip, 0)).map_err(failed)?;
        let (connections, events, poller) = (Vec::new(), VecDeque::new(), Poller::new());
        let buffer = Arc::clone(buffer);
        Ok(Self { rank, token, buffer, listener, connections, events, poller })
    }

    /// Accepts one connection of a rank above ours.
    fn accept(&self, deadline: Instant) -> io::Result<(usize, TcpStream)> {
        loop {
            let (mut stream, _) = self.listener.accept()?;
            let left = deadline.saturating_duration_since(Instant::now());
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut hello = [0; 16];
            // A stranger, or a port scanner.
            if stream.read_exact(&mut hello).is_err() || hello[..8] != self.token.to_le_bytes() {
                continue;
            }
            let mut rank = [0; 8];
            rank.copy_from_slice(&hello[8..]);
            return Ok((u64::from_le_bytes(rank) as usize, stream));
        }
    }

    fn connections(&self, peers: &[Endpoint]) -> io::Result<Vec<Option<Connection>>> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut found: Vec<_> = peers.iter().map(|_| None).collect();
        for (peer, endpoint) in peers.iter().enumerate().take(self.rank) {
            let Endpoint::Tcp { listen } = endpoint else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let mut stream = TcpStream::connect_timeout(listen, CONNECT_TIMEOUT)?;
            let rank = (self.rank as u64).to_le_bytes();
            stream.write_all(&[self.token.to_le_bytes(), rank].concat())?;
            found[peer] = Some(stream);
        }
        for _ in self.rank + 1..peers.len() {
            let (peer, stream) = self.accept(deadline)?;
            let place = found.get_mut(peer).filter(|place| place.is_none());
            *place.ok_or(io::ErrorKind::InvalidData)? = Some(stream);
        }
        let ready = |stream: TcpStream| {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let (outgoing, incoming) = (VecDeque::new(), Incoming::START);
            Ok(Connection { stream, outgoing, incoming })
        };
        found.into_iter().map(|stream| stream.map(ready).transpose()).collect()
    }

    /// Sends and receives whatever is possible now, for one peer.
    fn serve(&mut self, peer: usize) -> Result<(), Fault> {
        let Some(mut connection) = self.connections[peer].take() else { return Ok(()) };
        let served = self.receive(peer, &mut connection).and_then(|()| self.flush(&mut connection));
        self.connections[peer] = Some(connection);
        served.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => out_of_bounds(),
            _ => Fault::Peer { rank: peer, what: format!("the TCP connection failed: {error}") },
        })
    }

    fn flush(&self, connection: &mut Connection) -> io::Result<()> {
        while let Some(next) = connection.outgoing.front_mut() {
            let sent = match next.sent {
                HEADER => self.buffer.send(connection.stream.as_fd(), next.offset, next.left),
                sent => connection.stream.write(&next.header[sent..]),
            };
            match sent {
                Ok(count) if next.sent == HEADER => {
                    next.offset += count;
                    next.left -= count;
                }
                Ok(count) => next.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if next.sent == HEADER && next.left == 0 {
                connection.outgoing.pop_front();
            }
        }
        Ok(())
    }

    fn receive(&mut self, peer: usize, connection: &mut Connection) -> io::Result<()> {
        loop {
            let received = match &mut connection.incoming {
                Incoming::Header { bytes, filled } => {
                    connection.stream.read(&mut bytes[*filled..]).inspect(|count| *filled += count)
                }
                Incoming::Memory { offset, left, .. } => {
                    let received = self.buffer.receive(connection.stream.as_fd(), *offset, *left);
                    received.inspect(|count| {
                        *offset += count;
                        *left -= count;
                    })
                }
                Incoming::Message { bytes, filled, .. } => {
                    connection.stream.read(&mut bytes[*filled..]).inspect(|count| *filled += count)
                }
            };
            match received {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.advance(peer, connection)?;
        }
    }

    /// Handles what has been received completely.
    fn advance(&mut self, peer: usize, connection: &mut Connection) -> io::Result<()> {
        match &mut connection.incoming {
            Incoming::Header { bytes, filled: HEADER } => {
                let frame = Frame::parse(bytes).ok_or(io::ErrorKind::InvalidData)?;
                let left = usize::try_from(frame.payload()).unwrap_or(usize::MAX);
                connection.incoming = match frame.kind {
                    _ if left == 0 => return self.handle(peer, connection, frame, Vec::new()),
                    Kind::Send if frame.length > MAX_MESSAGE => {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    Kind::Send => Incoming::Message { frame, bytes: vec![0; left], filled: 0 },
                    Kind::ReadData => {
                        Incoming::Memory { frame, offset: frame.local as usize, left }
                    }
                    _ => Incoming::Memory { frame, offset: frame.remote as usize, left },
                };
                Ok(())
            }
            Incoming::Memory { frame, left: 0, .. } => {
                let frame = *frame;
                self.handle(peer, connection, frame, Vec::new())
            }
            Incoming::Message { frame, bytes, filled } if *filled == bytes.len() => {
                let (frame, bytes) = (*frame, std::mem::take(bytes));
                self.handle(peer, connection, frame, bytes)
            }
            _ => Ok(()),
        }
    }

    /// Executes a message of a peer.
    fn handle(
        &mut self,
        peer: usize,
        connection: &mut Connection,
        frame: Frame,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        connection.incoming = Incoming::START;
        let word = |offset: u64| {
            let words = self.buffer.words().get(offset as usize / 8);
            words.ok_or(io::Error::from(io::ErrorKind::InvalidInput))
        };
        let mut response = None;
        match frame.kind {
            Kind::Write => response = Some(Frame::new(Kind::Ack, frame.ticket)),
            Kind::WriteImmediate => {
                self.events.push_back(Event::Immediate { peer, value: frame.immediate });
                response = Some(Frame::new(Kind::Ack, frame.ticket));
            }
            Kind::Send => {
                self.events.push_back(Event::Message { peer, bytes });
                response = Some(Frame::new(Kind::Ack, frame.ticket));
            }
            Kind::Read => response = Some(Frame { kind: Kind::ReadData, ..frame }),
            Kind::CompareSwap => {
                let word = word(frame.remote)?;
                let (compare, swap) = (frame.first, frame.second);
                let swapped =
                    word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
                let (Ok(first) | Err(first)) = swapped;
                response = Some(Frame { kind: Kind::Value, first, ..frame });
            }
            Kind::FetchAdd => {
                let first = word(frame.remote)?.fetch_add(frame.first, Ordering::AcqRel);
                response = Some(Frame { kind: Kind::Value, first, ..frame });
            }
            Kind::Value => {
                word(frame.local)?.store(frame.first, Ordering::Release);
                self.events.push_back(Event::Done { ticket: frame.ticket });
            }
            Kind::Ack | Kind::ReadData => {
                self.events.push_back(Event::Done { ticket: frame.ticket });
            }
        }
        if let Some(response) = response {
            queue(connection, &response, response.remote as usize);
        }
        Ok(())
    }
}

/// Queues a message with the payload at `offset`.
fn queue(connection: &mut Connection, frame: &Frame, offset: usize) {
    let left = frame.payload() as usize;
    connection.outgoing.push_back(Outgoing { header: frame.emit(), sent: 0, offset, left });
}

impl Link for TcpLink {
    fn endpoint(&self) -> Result<Endpoint, Fault> {
        let listen = self.listener.local_addr();
        let failed = |error| Failure::Other(format!("cannot read the TCP address: {error}"));
        Ok(Endpoint::Tcp { listen: listen.map_err(failed)? })
    }

    fn connect(&mut self, peers: &[Endpoint]) -> Result<(), Fault> {
        let failed = |error| Failure::Other(format!("cannot connect the ranks by TCP: {error}"));
        self.connections = self.connections(peers).map_err(failed)?;
        for connection in self.connections.iter().flatten() {
            self.poller.watch(&connection.stream, Interest::Read);
        }
        Ok(())
    }

    fn shares_memory(&self) -> bool {
        false
    }

    fn post(&mut self, peer: usize, ticket: u64, request: Request) -> Result<(), Fault> {
        let (frame, offset) = match request {
            Request::Write { local, remote, length, immediate, .. } => {
                let kind = if immediate.is_some() { Kind::WriteImmediate } else { Kind::Write };
                let immediate = immediate.unwrap_or(0);
                let (remote, length) = (remote as u64, length as u64);
                (Frame { immediate, remote, length, ..Frame::new(kind, ticket) }, local)
            }
            Request::Read { local, remote, length } => {
                let (local, remote, length) = (local as u64, remote as u64, length as u64);
                (Frame { local, remote, length, ..Frame::new(Kind::Read, ticket) }, 0)
            }
            Request::Send { local, length } => {
                (Frame { length: length as u64, ..Frame::new(Kind::Send, ticket) }, local)
            }
            Request::CompareSwap { local, remote, compare, swap } => {
                let (local, remote) = (local as u64, remote as u64);
                let (first, second) = (compare, swap);
                let frame = Frame::new(Kind::CompareSwap, ticket);
                (Frame { local, remote, first, second, ..frame }, 0)
            }
            Request::FetchAdd { local, remote, add } => {
                let (local, remote) = (local as u64, remote as u64);
                (Frame { local, remote, first: add, ..Frame::new(Kind::FetchAdd, ticket) }, 0)
            }
        };
        if let Some(connection) = &mut self.connections[peer] {
            queue(connection, &frame, offset);
        }
        self.serve(peer)
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Event>, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            (0..self.connections.len()).try_for_each(|peer| self.serve(peer))?;
            if !self.events.is_empty() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            for (index, connection) in self.connections.iter().flatten().enumerate() {
                let both = !connection.outgoing.is_empty();
                self.poller.set(index, if both { Interest::Both } else { Interest::Read });
            }
            let until = clock::now() + left.as_nanos() as u64;
            let failed = |error| Failure::Other(format!("cannot wait for TCP: {error}"));
            self.poller.wait(Some(until)).map_err(failed)?;
        }
    }

    fn pd(&self) -> Option<&ProtectionDomain> {
        None
    }
}

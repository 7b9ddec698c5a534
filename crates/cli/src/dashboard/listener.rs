//! The listening socket: a bounded number of connections, and deadlines for requests and responses.
//!
//! Anyone on this machine can connect, before any token is checked. When all places are taken, a new connection closes
//! another: one that has not sent a complete request yet, or else the one whose last request is the oldest. So connections
//! that send nothing, or drip, keep nobody out.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at a time. Each takes a file descriptor.
    connections: usize,
    /// The time from the first byte of a request to the first byte of its response. The handlers take no time.
    request: Duration,
    /// The time from the first byte of a response to the first byte of the next request. The page asks every second.
    response: Duration,
}

const LIMITS: Limits = Limits {
    connections: 128,
    request: Duration::from_secs(10),
    response: Duration::from_secs(30),
};

/// How far a connection is. The first to close has the smallest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Progress {
    /// It has sent a complete request.
    answered: bool,
    /// When its last response began; before it, when it was accepted.
    since: Instant,
}

/// An open connection.
#[derive(Debug)]
struct Connection {
    progress: Arc<Mutex<Progress>>,
    close: oneshot::Sender<()>,
}

/// Listens with these limits.
#[derive(Debug)]
pub(super) struct LimitedListener {
    listener: TcpListener,
    limits: Limits,
    open: Vec<Connection>,
}

impl LimitedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, limits: LIMITS, open: Vec::new() }
    }

    /// Closes a connection if there is no place for another.
    fn make_room(&mut self) {
        self.open.retain(|connection| !connection.close.is_closed());
        if self.open.len() < self.limits.connections {
            return;
        }
        let places = self.open.iter().enumerate();
        let first = places.min_by_key(|(_, connection)| *lock(&connection.progress));
        if let Some(index) = first.map(|(index, _)| index) {
            // It fails if the connection has ended meanwhile.
            let _ = self.open.swap_remove(index).close.send(());
        }
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        self.make_room();
        let (close, closed) = oneshot::channel();
        let since = Instant::now();
        let progress = Arc::new(Mutex::new(Progress { answered: false, since }));
        self.open.push(Connection { progress: Arc::clone(&progress), close });
        let limits = self.limits;
        let phase = Phase::Waiting;
        let deadline = Box::pin(sleep(limits.request));
        (LimitedStream { stream, limits, phase, deadline, progress, closed }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of a request has arrived since the last response, which may not be written in full.
    Waiting,
    /// A request is arriving.
    Receiving,
    /// The response waits for the client to read.
    Blocked,
}

/// A connection that ends at its deadline, or to make room for another.
#[derive(Debug)]
pub(super) struct LimitedStream {
    stream: TcpStream,
    limits: Limits,
    phase: Phase,
    deadline: Pin<Box<Sleep>>,
    progress: Arc<Mutex<Progress>>,
    closed: oneshot::Receiver<()>,
}

impl LimitedStream {
    fn restart(&mut self, limit: Duration) {
        self.deadline.as_mut().reset(Instant::now() + limit);
    }

    /// Ready, with an error, if the connection is to end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if Pin::new(&mut self.closed).poll(cx).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        self.deadline.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    /// Writes, within the deadline of the response.
    fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.phase == Phase::Receiving {
            self.restart(self.limits.response);
            *lock(&self.progress) = Progress { answered: true, since: Instant::now() };
        }
        let written = write(Pin::new(&mut self.stream), cx);
        self.phase = if written.is_pending() { Phase::Blocked } else { Phase::Waiting };
        match written {
            Poll::Pending => self.poll_end(cx).map(Err),
            Poll::Ready(result) => Poll::Ready(result),
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Even if bytes have arrived: the deadline does not depend on how they come.
        if let Poll::Ready(error) = self.poll_end(cx) {
            return Poll::Ready(Err(error));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        // The next request, unless the client does not even read the response.
        if self.phase == Phase::Waiting && buffer.filled().len() > before {
            self.phase = Phase::Receiving;
            let limit = self.limits.request;
            self.restart(limit);
        }
        read
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_response(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_response(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn lock(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Bytes;
    use axum::routing::get;
    use std::io::{Read, Write};
    use std::net::TcpStream as Client;
    use std::sync::mpsc;
    use std::thread;

    /// A response that no socket holds. The sender is dropped with it.
    #[derive(Default)]
    struct Large {
        bytes: Vec<u8>,
        _alive: Option<mpsc::Sender<()>>,
    }

    const LARGE: usize = 64 << 20;

    impl AsRef<[u8]> for Large {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// A server with these limits in a thread of its own, which ends with the test.
    fn serve(limits: Limits, large: Large) -> SocketAddr {
        let (sender, address) = mpsc::channel();
        let large = Arc::new(Mutex::new(large));
        let take = move || std::mem::take(&mut *large.lock().unwrap());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut listener = LimitedListener::new(listener);
                listener.limits = limits;
                sender.send(listener.local_addr().unwrap()).unwrap();
                let router = Router::new()
                    .route("/", get(|| async { "here" }))
                    .route("/large", get(|| async move { Bytes::from_owner(take()) }));
                axum::serve(listener, router).await.unwrap();
            });
        });
        address.recv().unwrap()
    }

    /// Sends a request on a connection that stays open, and returns the first bytes of the response.
    fn ask(client: &mut Client) -> io::Result<String> {
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut bytes = [0; 4096];
        let length = client.read(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn is_answered(client: &mut Client) -> bool {
        ask(client).is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
    }

    /// Whether the server has closed it; waits until it has.
    fn is_closed(client: &mut Client) -> bool {
        matches!(client.read(&mut [0; 64]), Ok(0) | Err(_))
    }

    #[test]
    fn connections_that_drip_keep_nobody_out() {
        let address = serve(LIMITS, Large::default());
        let mut owner = Client::connect(address).unwrap();
        assert!(is_answered(&mut owner));
        let drip = |_| {
            let mut client = Client::connect(address).unwrap();
            // It fails if the connection is closed already.
            let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: ");
            client
        };
        let mut dripping: Vec<_> = (0..LIMITS.connections + 12).map(drip).collect();
        assert!(is_answered(&mut Client::connect(address).unwrap()), "a new connection");
        assert!(is_answered(&mut owner), "and the one that was there before");
        // The oldest had to go.
        for client in &mut dripping[..13] {
            assert!(is_closed(client));
        }
        dripping.truncate(0);
    }

    #[test]
    fn the_connection_with_the_oldest_request_goes_if_all_have_sent_one() {
        let address = serve(Limits { connections: 3, ..LIMITS }, Large::default());
        let mut clients: Vec<_> = (0..3).map(|_| Client::connect(address).unwrap()).collect();
        clients.iter_mut().for_each(|client| assert!(is_answered(client)));
        assert!(is_answered(&mut clients[0]), "the second is the oldest now");
        assert!(is_answered(&mut Client::connect(address).unwrap()));
        assert!(is_closed(&mut clients[1]));
        assert!(is_answered(&mut clients[2]) && is_answered(&mut clients[0]));
    }

    /// Each byte comes in time, the request does not.
    #[test]
    fn a_request_that_drips_ends_at_its_deadline() {
        let request = Duration::from_millis(50);
        let mut client =
            Client::connect(serve(Limits { request, ..LIMITS }, Large::default())).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
        client.set_read_timeout(Some(request / 10)).unwrap();
        let is_open = |client: &mut Client| {
            let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            client.write_all(b"x").is_ok() && client.read(&mut [0; 64]).is_err_and(waits)
        };
        assert!((0..5_000).any(|_| !is_open(&mut client)), "never closed");
    }

    #[test]
    fn a_response_that_nobody_reads_ends_at_its_deadline() {
        let limits = Limits { response: Duration::from_millis(50), ..LIMITS };
        let (sender, dropped) = mpsc::channel();
        let large = Large { bytes: vec![0; LARGE], _alive: Some(sender) };
        let mut client = Client::connect(serve(limits, large)).unwrap();
        client.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // The response is gone, and nobody has read a byte of it.
        dropped.recv().unwrap_err();
        let mut received = Vec::new();
        let _ = client.read_to_end(&mut received);
        assert!(received.len() < LARGE, "{}", received.len());
    }
}

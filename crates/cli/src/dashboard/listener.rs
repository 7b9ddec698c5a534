//! The listening socket: a bounded number of connections, and none that stays idle.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at a time. Anyone on this machine can open one, and each takes a file descriptor.
const MAX_CONNECTIONS: usize = 128;

/// How long a connection may stay without a byte from the client. The page asks every second.
const IDLE: Duration = Duration::from_secs(30);

/// Listens with these limits.
#[derive(Debug)]
pub(super) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle: Duration,
}

impl LimitedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)), idle: IDLE }
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedStream, SocketAddr) {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { continue };
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            let idle = self.idle;
            return (
                LimitedStream { stream, idle, timer: Box::pin(sleep(idle)), _permit: permit },
                peer,
            );
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed when it is idle.
#[derive(Debug)]
pub(super) struct LimitedStream {
    stream: TcpStream,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(result) => {
                let next = Instant::now() + self.idle;
                self.timer.as_mut().reset(next);
                Poll::Ready(result)
            }
            Poll::Pending => {
                self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn an_idle_connection_is_closed_and_its_permit_returned() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut listener = LimitedListener::new(listener);
            listener.idle = Duration::from_millis(10);
            let address = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(address).unwrap();
            let (mut stream, _) = listener.accept().await;
            assert_eq!(listener.permits.available_permits(), MAX_CONNECTIONS - 1);
            let mut bytes = [0; 8];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read =
                std::future::poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer)).await;
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
            drop(stream);
            assert_eq!(listener.permits.available_permits(), MAX_CONNECTIONS);
            assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "closed");
        });
    }
}

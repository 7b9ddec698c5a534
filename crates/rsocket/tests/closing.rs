//! Closing streams: what was written arrives, and closing does not wait for the peer's program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ferroce_rsocket::{Errno, Socket, StreamSocket, table};
use ferroce_test_support as _;

const LONG: usize = 8 << 20;
/// A call that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(60);
/// The service thread posts the receives of a program that makes no call only after this time.
const UNATTENDED: Duration = Duration::from_millis(2500);

/// Two connected streams.
fn pair() -> (Arc<StreamSocket>, Arc<StreamSocket>) {
    connect(StreamSocket::new(libc::AF_INET, false).unwrap())
}

/// Two connected streams, of which the second has so few receives that the first uses all its credits.
fn pair_with_few_receives() -> (Arc<StreamSocket>, Arc<StreamSocket>) {
    const SOL_RDMA: i32 = 0x10000;
    const RDMA_RQSIZE: i32 = 1;
    let listener = StreamSocket::new(libc::AF_INET, false).unwrap();
    listener.set_option(SOL_RDMA, RDMA_RQSIZE, &16i32.to_ne_bytes()).unwrap();
    connect(listener)
}

fn connect(listener: Arc<StreamSocket>) -> (Arc<StreamSocket>, Arc<StreamSocket>) {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    listener.bind(any).unwrap();
    listener.listen(1).unwrap();
    let client = StreamSocket::new(libc::AF_INET, false).unwrap();
    client.connect(listener.local_address().unwrap()).unwrap();
    (client, listener.accept().unwrap())
}

/// Closes a stream as `rclose` does.
fn close(socket: Arc<StreamSocket>) {
    let fd = table::insert(Socket::Stream(socket)).unwrap();
    table::close(fd).unwrap();
}

/// Runs `call` in another thread, and fails if it hangs.
fn without_hanging<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(call()));
    result.recv_timeout(HANGS).expect("the call hangs")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|value| (value.wrapping_mul(31) % 251) as u8).collect()
}

/// Receives to the end of the stream, by reads of this length.
fn receive_all(socket: &StreamSocket, length: usize) -> Result<Vec<u8>, Errno> {
    let (mut all, mut out) = (Vec::new(), vec![0; length]);
    loop {
        match socket.receive(&mut out, 0)? {
            0 => return Ok(all),
            received => all.extend_from_slice(&out[..received]),
        }
    }
}

/// Sends until the stream takes no more, and returns the number of bytes.
fn fill(socket: &StreamSocket, message: &[u8]) -> usize {
    let mut sent = 0;
    loop {
        match socket.send(message, libc::MSG_DONTWAIT) {
            Ok(bytes) => sent += bytes,
            Err(error) => {
                assert_eq!(error, Errno(libc::EAGAIN));
                return sent;
            }
        }
    }
}

#[test]
fn a_stream_that_is_closed_at_once_delivers_everything_written() {
    for length in [1000, 65_536, 1 << 20] {
        let (client, server) = pair();
        let sender = std::thread::spawn(move || {
            assert_eq!(client.send(&pattern(LONG), 0), Ok(LONG));
            close(client);
        });
        let received = without_hanging(move || receive_all(&server, length)).unwrap();
        assert!(received == pattern(LONG), "{} of {LONG} bytes", received.len());
        sender.join().unwrap();
    }
}

/// The reader has closed its own direction, so that the other side's close ends the connection at once.
#[test]
fn a_stream_that_the_peer_shut_down_first_delivers_everything_written() {
    let (client, server) = pair();
    server.shutdown(libc::SHUT_WR).unwrap();
    let sender = std::thread::spawn(move || {
        assert_eq!(receive_all(&client, 10), Ok(vec![]));
        assert_eq!(client.send(&pattern(LONG), 0), Ok(LONG));
        close(client);
    });
    let received = without_hanging(move || receive_all(&server, 30_000)).unwrap();
    assert!(received == pattern(LONG), "{} of {LONG} bytes", received.len());
    sender.join().unwrap();
}

/// Both sides write as much as the buffers hold, and close before either reads: neither close may wait for the other.
#[test]
fn streams_that_both_sides_close_without_reading_do_not_hang() {
    for message in [&[1; 1][..], &[2; 3000], &[3; 100_000]] {
        let (client, server) = pair();
        assert!(fill(&client, message) > 0 && fill(&server, message) > 0);
        let other = std::thread::spawn(move || without_hanging(move || close(server)));
        without_hanging(move || close(client));
        other.join().unwrap();
    }
}

/// The program of the peer makes no call meanwhile, so it posts no receives. A close that waits for the peer's service thread
/// takes [`UNATTENDED`] every time; a busy machine delays one now and then, so the fastest of three counts.
#[test]
fn closing_does_not_wait_for_a_peer_that_does_not_read() {
    for pair in [pair, pair_with_few_receives] {
        for length in [1, 2000, 100_000] {
            let close_once = |_| {
                let (client, server) = pair();
                let sent = fill(&client, &vec![7; length]);
                let start = Instant::now();
                without_hanging(move || close(client));
                let elapsed = start.elapsed();
                let received = without_hanging(move || receive_all(&server, 4096)).unwrap();
                let all = received.iter().all(|&byte| byte == 7);
                assert!(received.len() == sent && all, "{length}");
                elapsed
            };
            let fast = (0..3).map(close_once).any(|elapsed| elapsed < UNATTENDED);
            assert!(fast, "it waited for the peer's service thread");
        }
    }
}

#[test]
fn a_sender_whose_peer_closes_first_is_reset_and_closes() {
    let (client, server) = pair();
    let sender = std::thread::spawn(move || {
        let sent = without_hanging({
            let client = Arc::clone(&client);
            move || client.send(&pattern(LONG), 0)
        });
        assert!(sent.is_err() || sent.is_ok_and(|sent| sent < LONG), "{sent:?}");
        assert_eq!(client.send(b"x", 0), Err(Errno(libc::ECONNRESET)));
        without_hanging(move || close(client));
    });
    let mut out = [0; 100_000];
    assert!(server.receive(&mut out, 0).unwrap() > 0);
    without_hanging(move || close(server));
    sender.join().unwrap();
}

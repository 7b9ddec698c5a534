//! Streams and datagrams between two sockets of this process, over the loopback device.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferroce_rsocket::{
    DatagramSocket, EpollEvent, Errno, PollEntry, Socket, StreamSocket, epoll, poll, table,
};
use ferroce_test_support as _;

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// A listener, and its address.
fn listener() -> (Arc<StreamSocket>, SocketAddr) {
    let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
    socket.bind(LOOPBACK.into()).unwrap();
    socket.listen(1).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

/// Two connected streams.
fn pair() -> (Arc<StreamSocket>, Arc<StreamSocket>) {
    let (listener, address) = listener();
    let client = StreamSocket::new(libc::AF_INET, false).unwrap();
    client.connect(address).unwrap();
    (client, listener.accept().unwrap())
}

fn receive(socket: &StreamSocket, length: usize, flags: i32) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; length];
    let received = socket.receive(&mut out, flags)?;
    out.truncate(received);
    Ok(out)
}

#[test]
fn a_connection_has_the_addresses_of_both_ends() {
    let (client, server) = pair();
    assert_eq!(client.local_address(), server.peer_address());
    assert_eq!(client.peer_address(), server.local_address());
}

#[test]
fn bytes_arrive_in_both_directions() {
    let (client, server) = pair();
    assert_eq!(client.send(b"request", 0), Ok(7));
    assert_eq!(receive(&server, 100, 0), Ok(b"request".to_vec()));
    assert_eq!(server.send(b"response", 0), Ok(8));
    assert_eq!(receive(&client, 3, 0), Ok(b"res".to_vec()));
    assert_eq!(receive(&client, 100, 0), Ok(b"ponse".to_vec()));
}

/// Much more than the buffers hold: both rings wrap many times.
#[test]
fn a_long_stream_wraps_the_buffers_and_arrives_in_order() {
    let (client, server) = pair();
    let data: Vec<u8> = (0..3_000_000u32).map(|value| (value * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| client.send(&data, 0));
        let received = receive(&server, data.len(), libc::MSG_WAITALL).unwrap();
        assert!(received == data, "the bytes differ");
        assert_eq!(sender.join().unwrap(), Ok(data.len()));
    });
}

#[test]
fn vectors_are_gathered_and_scattered() {
    let (client, server) = pair();
    assert_eq!(client.send_vectored(&[b"ab", b"", b"cdef"], 0), Ok(6));
    let (mut one, mut two, mut three) = ([0; 1], [0; 3], [0; 9]);
    let mut parts = [&mut one[..], &mut two[..], &mut three[..]];
    assert_eq!(server.receive_vectored(&mut parts, 0), Ok(6));
    assert_eq!((&one, &two, &three[..2]), (b"a", b"bcd", &b"ef"[..]));
}

#[test]
fn peeking_leaves_the_bytes() {
    let (client, server) = pair();
    client.send(b"peek", 0).unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&server, 10, libc::MSG_PEEK), Ok(b"peek".to_vec()));
    }
    assert_eq!(receive(&server, 10, 0), Ok(b"peek".to_vec()));
    assert_eq!(receive(&server, 10, libc::MSG_DONTWAIT), Err(Errno(libc::EAGAIN)));
}

#[test]
fn a_sender_that_may_not_wait_stops_when_the_receiver_does_not_read() {
    let (client, server) = pair();
    let chunk = [7; 10_000];
    let mut sent = 0;
    let error = loop {
        match client.send(&chunk, libc::MSG_DONTWAIT) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error,
        }
        assert!(sent < 10_000_000, "no flow control");
    };
    assert_eq!(error, Errno(libc::EAGAIN));
    let received = receive(&server, sent, libc::MSG_WAITALL).unwrap();
    assert!(received.len() == sent && received.iter().all(|&byte| byte == 7));
    // The credits come back.
    assert_eq!(client.send(b"x", 0), Ok(1));
}

#[test]
fn shutdown_ends_one_direction_only() {
    let (client, server) = pair();
    client.send(b"last", 0).unwrap();
    client.shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(receive(&server, 10, 0), Ok(b"last".to_vec()));
    assert_eq!(receive(&server, 10, 0), Ok(vec![]));
    assert_eq!(client.send(b"x", 0), Err(Errno(libc::EPIPE)));
    assert_eq!(server.send(b"still", 0), Ok(5));
    assert_eq!(receive(&client, 10, 0), Ok(b"still".to_vec()));
}

#[test]
fn a_closed_peer_is_the_end_of_the_stream_and_resets_sends() {
    let (client, server) = pair();
    let fd = table::insert(Socket::Stream(server)).unwrap();
    table::close(fd).unwrap();
    assert_eq!(table::close(fd), Err(Errno(libc::EBADF)));
    assert_eq!(receive(&client, 10, 0), Ok(vec![]));
    assert_eq!(client.send(b"x", 0), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn connecting_without_a_listener_is_refused() {
    let (listener, address) = listener();
    let fd = table::insert(Socket::Stream(listener)).unwrap();
    table::close(fd).unwrap();
    let client = StreamSocket::new(libc::AF_INET, false).unwrap();
    assert_eq!(client.connect(address), Err(Errno(libc::ECONNREFUSED)));
    // A socket serves one connection.
    assert_eq!(client.connect(address), Err(Errno(libc::EINVAL)));
}

#[test]
fn calls_in_the_wrong_phase_fail_as_those_of_tcp() {
    let socket = StreamSocket::new(libc::AF_INET, true).unwrap();
    assert_eq!(socket.send(b"x", 0), Err(Errno(libc::ENOTCONN)));
    assert_eq!(receive(&socket, 1, 0), Err(Errno(libc::ENOTCONN)));
    assert_eq!(socket.shutdown(libc::SHUT_RDWR), Err(Errno(libc::ENOTCONN)));
    assert_eq!(socket.accept().err(), Some(Errno(libc::EINVAL)));
    let (listener, address) = listener();
    assert_eq!(listener.connect(address), Err(Errno(libc::EOPNOTSUPP)));
    let (client, _server) = pair();
    assert_eq!(client.connect(address), Err(Errno(libc::EISCONN)));
    assert_eq!(client.listen(1), Err(Errno(libc::EINVAL)));
    assert_eq!(client.shutdown(99), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_nonblocking_connect_completes_in_the_background() {
    let (listener, address) = listener();
    let client = StreamSocket::new(libc::AF_INET, true).unwrap();
    assert_eq!(client.connect(address), Err(Errno(libc::EINPROGRESS)));
    let fd = table::insert(Socket::Stream(Arc::clone(&client))).unwrap();
    let mut list = [PollEntry { fd, events: libc::POLLOUT, revents: 0 }];
    assert_eq!(poll(&mut list, Some(Duration::from_secs(20))), Ok(1));
    assert_eq!(list[0].revents, libc::POLLOUT);
    assert!(listener.accept().is_ok());
    table::close(fd).unwrap();
}

#[test]
fn epoll_reports_a_stream_when_bytes_arrive() {
    let (client, server) = pair();
    let (set, fd) = (epoll::create(0).unwrap(), table::insert(Socket::Stream(server)).unwrap());
    let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
    epoll::control(set, libc::EPOLL_CTL_ADD, fd, Some((events, 5))).unwrap();
    let mut out = [EpollEvent { events: 0, u64: 0 }; 2];
    let start = Instant::now();
    assert_eq!(epoll::wait(set, &mut out, Some(Duration::from_millis(5))), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(5));
    std::thread::scope(|scope| {
        scope.spawn(|| client.send(b"edge", 0));
        assert_eq!(epoll::wait(set, &mut out, Some(Duration::from_secs(20))), Ok(1));
    });
    assert_eq!((out[0].events, out[0].u64), (libc::EPOLLIN as u32, 5));
    assert!(epoll::close(set));
    table::close(fd).unwrap();
}

/// The bytes of a `struct sockaddr_in`.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("an IPv4 address") };
    let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    bytes.extend(v4.port().to_be_bytes());
    bytes.extend(v4.ip().octets());
    bytes.extend([0; 8]);
    bytes
}

fn datagram_socket() -> (Arc<DatagramSocket>, SocketAddr) {
    let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
    socket.bind(&sockaddr(LOOPBACK.into())).unwrap();
    let address = socket.local_address().unwrap();
    (socket, address)
}

/// The first is sent by UDP, later ones from QP to QP: all arrive whole, with their sender.
#[test]
fn datagrams_arrive_whole_with_their_sender() {
    let ((one, one_address), (two, two_address)) = (datagram_socket(), datagram_socket());
    for round in 0..20u8 {
        let parts: [&[u8]; 2] = [&[round; 3], b"payload"];
        assert_eq!(one.send(&parts, Some(two_address), 0), Ok(10));
        let mut out = [0; 64];
        let received = two.receive(&mut [&mut out], 0).unwrap();
        assert_eq!((received.bytes, received.truncated), (10, false));
        assert_eq!(received.from, Some(one_address));
        assert_eq!(out[..10], [&[round; 3][..], b"payload"].concat());
    }
}

#[test]
fn a_datagram_that_is_too_long_is_refused() {
    let ((one, _), (_two, address)) = (datagram_socket(), datagram_socket());
    let sent = one.send(&[&[0; 4000]], Some(address), 0);
    assert_eq!(sent, Err(Errno(libc::EMSGSIZE)));
}

#[test]
fn a_connected_datagram_socket_receives_from_its_peer_only() {
    let ((one, one_address), (two, two_address)) = (datagram_socket(), datagram_socket());
    let (other, _) = datagram_socket();
    two.connect(&sockaddr(one_address)).unwrap();
    assert_eq!(two.peer_address(), Ok(one_address));
    other.send(&[b"other"], Some(two_address), 0).unwrap();
    one.send(&[b"one"], Some(two_address), 0).unwrap();
    let mut out = [0; 16];
    assert_eq!(two.receive(&mut [&mut out], 0).unwrap().bytes, 3);
    assert_eq!(two.send(&[b"reply"], None, 0), Ok(5));
    assert_eq!(one.receive(&mut [&mut out], 0).unwrap().bytes, 5);
    two.shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(two.send(&[b"x"], None, 0), Err(Errno(libc::EPIPE)));
    two.shutdown(libc::SHUT_RD).unwrap();
    assert_eq!(two.receive(&mut [&mut out], 0).unwrap().from, None);
}

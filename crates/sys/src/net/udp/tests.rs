use super::*;

fn bound(address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = UdpSocket::open(address.is_ipv6()).unwrap();
    socket.bind(address).unwrap();
    socket
}

#[test]
fn datagrams_arrive_whole_with_their_sender() {
    let (one, other) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    let parts = [IoSlice::new(b"data"), IoSlice::new(b""), IoSlice::new(b"gram")];
    one.send(&parts, other.local().unwrap()).unwrap();
    let mut out = [0; 6];
    // The datagram is longer than the buffer.
    assert_eq!(other.receive(&mut out).unwrap(), (8, one.local().unwrap()));
    assert_eq!(&out, b"datagr");
    let empty = other.receive(&mut out).unwrap_err();
    assert_eq!(empty.raw_os_error(), Some(libc::EAGAIN));
}

#[test]
fn a_peer_is_set_and_removed() {
    let (one, other) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    assert_eq!(one.peer().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    one.connect(other.local().unwrap()).unwrap();
    assert_eq!(one.peer().unwrap(), other.local().unwrap());
    one.disconnect().unwrap();
    assert_eq!(one.peer().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn the_kernel_checks_what_a_program_passes() {
    let socket = UdpSocket::open(false).unwrap();
    let number = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(number(socket.bind_sockaddr(&[0; 3])), Some(libc::EINVAL));
    // connect(2) binds the socket even if it fails.
    let other = UdpSocket::open(false).unwrap();
    assert_eq!(number(other.connect_sockaddr(&[0xff; 16])), Some(libc::EAFNOSUPPORT));
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    socket.bind_sockaddr(&address).unwrap();
    assert_eq!(socket.local().unwrap().ip().to_string(), "127.0.0.1");
    socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUF, &8192_i32.to_ne_bytes()).unwrap();
    let mut value = [0; 8];
    assert_eq!(socket.option(libc::SOL_SOCKET, libc::SO_RCVBUF, &mut value).unwrap(), 4);
    assert_eq!(i32::from_ne_bytes(*value.first_chunk().unwrap()), 16384);
    assert_eq!(number(socket.set_option(-1, 0, &[])), Some(libc::ENOPROTOOPT));
}

use super::*;

fn sender() -> SocketAddr {
    "10.0.0.1:7".parse().unwrap()
}

fn read(state: &mut State, lengths: &[usize], peek: bool) -> Option<(usize, Vec<Vec<u8>>)> {
    let mut parts: Vec<_> = lengths.iter().map(|&length| vec![0; length]).collect();
    let mut out: Vec<_> = parts.iter_mut().map(Vec::as_mut_slice).collect();
    let (length, from) = state.read(&mut out, peek)?;
    assert_eq!(from, sender());
    Some((length, parts))
}

#[test]
fn a_datagram_is_scattered_over_the_buffers() {
    let mut state = State::new(false);
    state.keep_copy(sender(), b"datagram");
    let (length, parts) = read(&mut state, &[3, 0, 10], false).unwrap();
    assert_eq!(length, 8);
    assert_eq!(parts, [b"dat".to_vec(), vec![], b"agram\0\0\0\0\0".to_vec()]);
    assert!(read(&mut state, &[9], false).is_none());
}

#[test]
fn a_datagram_longer_than_the_buffer_is_cut_and_its_length_reported() {
    let mut state = State::new(false);
    state.keep_copy(sender(), b"datagram");
    state.keep_copy(sender(), b"next");
    assert_eq!(read(&mut state, &[4], false), Some((8, vec![b"data".to_vec()])));
    assert_eq!(read(&mut state, &[4], false), Some((4, vec![b"next".to_vec()])));
}

#[test]
fn peeking_leaves_the_datagram() {
    let mut state = State::new(false);
    state.keep_copy(sender(), b"one");
    for _ in 0..3 {
        assert_eq!(read(&mut state, &[3], true), Some((3, vec![b"one".to_vec()])));
    }
    assert!(read(&mut state, &[3], false).is_some());
    assert!(read(&mut state, &[3], true).is_none());
}

#[test]
fn datagrams_beyond_the_receive_queue_are_dropped() {
    let mut state = State::new(false);
    let (_, capacity) = state.settings.datagram_queues(SLOT_BYTES as u32);
    for _ in 0..capacity + 5 {
        state.keep_copy(sender(), b"x");
    }
    assert_eq!(state.unread.len(), usize::from(capacity));
    read(&mut state, &[1], false).unwrap();
    state.keep_copy(sender(), b"y");
    assert_eq!(state.unread.len(), usize::from(capacity));
}

#[test]
fn readiness_follows_datagrams_shutdown_and_errors() {
    let mut state = State::new(false);
    assert_eq!(state.readiness(), libc::POLLOUT);
    state.keep_copy(sender(), b"x");
    assert_eq!(state.readiness(), libc::POLLIN | libc::POLLOUT);
    read(&mut state, &[1], false).unwrap();
    state.readable = false;
    assert_eq!(state.readiness(), libc::POLLIN | libc::POLLOUT);
    state.readable = true;
    state.error = libc::ECONNREFUSED;
    assert_eq!(state.readiness(), libc::POLLIN | libc::POLLOUT | libc::POLLERR);
    assert_eq!(state.take_error(), Some(Errno(libc::ECONNREFUSED)));
    assert_eq!(state.readiness(), libc::POLLOUT);
}

#[test]
fn a_received_datagram_is_counted_as_a_change() {
    let mut state = State::new(false);
    let before = state.change_count();
    state.keep_copy(sender(), b"x");
    assert_eq!(state.change_count(), before + 1);
}

#[test]
fn a_scope_id_does_not_distinguish_peers() {
    let scoped = SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 3));
    let plain: SocketAddr = "[fe80::1]:7".parse().unwrap();
    assert!(is_from(scoped, plain) && is_from(plain, scoped));
    assert!(!is_from(scoped, "[fe80::1]:8".parse().unwrap()));
    assert!(!is_from(scoped, "[fe80::2]:7".parse().unwrap()));
}

#[test]
fn a_closed_socket_has_an_error_and_no_datagrams() {
    let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
    socket.state().keep_copy(sender(), b"x");
    socket.close(None);
    let mut state = socket.state();
    assert_eq!(state.check_open(), Err(Errno(libc::EBADF)));
    assert_eq!(state.readiness() & libc::POLLERR, libc::POLLERR);
    assert!(state.read(&mut [], false).is_none());
}

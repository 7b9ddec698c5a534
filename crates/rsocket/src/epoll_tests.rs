use super::*;
use crate::datagram::DatagramSocket;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const NONE: EpollEvent = EpollEvent { events: 0, u64: 0 };

fn events(found: Option<EpollEvent>) -> Option<(u32, u64)> {
    found.map(|event| (event.events, event.u64))
}

fn ready(set: RawFd, timeout: Duration) -> Result<Vec<(u32, u64)>> {
    let mut out = [NONE; 4];
    let count = wait(set, &mut out, Some(timeout))?;
    Ok(out[..count].iter().map(|event| (event.events, event.u64)).collect())
}

/// A datagram rsocket, which is writable from the start.
fn rsocket() -> RawFd {
    let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
    table::insert(Socket::Datagram(socket)).unwrap()
}

#[test]
fn level_triggered_interest_is_reported_while_ready() {
    let mut interest = Interest::new(IN, 7);
    assert_eq!(events(interest.take_event(0, 1)), None);
    assert_eq!(events(interest.take_event(libc::POLLOUT, 1)), None);
    for _ in 0..2 {
        assert_eq!(events(interest.take_event(libc::POLLIN | libc::POLLOUT, 1)), Some((IN, 7)));
    }
}

#[test]
fn edge_triggered_interest_is_reported_once_per_change() {
    let mut interest = Interest::new(IN | libc::EPOLLET as u32, 7);
    assert!(interest.take_event(libc::POLLIN, 5).is_some());
    assert!(interest.take_event(libc::POLLIN, 5).is_none());
    assert!(interest.take_event(libc::POLLIN, 6).is_some());
    assert!(interest.take_event(0, 7).is_none());
    // The change came while it was not ready: it is an edge once it is.
    assert!(interest.take_event(libc::POLLIN, 7).is_some());
}

#[test]
fn one_shot_interest_is_reported_once() {
    let mut interest = Interest::new(IN | libc::EPOLLONESHOT as u32, 7);
    assert!(interest.take_event(libc::POLLIN, 1).is_some());
    assert!(interest.take_event(libc::POLLIN, 2).is_none());
}

#[test]
fn errors_and_hangups_are_always_reported() {
    let mut interest = Interest::new(0, 7);
    assert_eq!(events(interest.take_event(libc::POLLIN, 1)), None);
    let expected = (libc::EPOLLHUP as u32, 7);
    assert_eq!(events(interest.take_event(libc::POLLIN | libc::POLLHUP, 1)), Some(expected));
}

#[test]
fn the_check_continues_after_the_last_reported_socket() {
    let map: BTreeMap<RawFd, ()> = [3, 5, 9].into_iter().map(|fd| (fd, ())).collect();
    assert_eq!(round_robin(&map, 0), [3, 5, 9]);
    assert_eq!(round_robin(&map, 3), [5, 9, 3]);
    assert_eq!(round_robin(&map, 9), [3, 5, 9]);
    assert_eq!(round_robin(&map, 6), [9, 3, 5]);
}

#[test]
fn busy_sockets_do_not_starve_the_others() {
    let set = create(0).unwrap();
    let sockets = [rsocket(), rsocket(), rsocket()];
    for &fd in &sockets {
        control(set, libc::EPOLL_CTL_ADD, fd, Some((OUT, fd as u64))).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut out = [NONE; 1];
        assert_eq!(wait(set, &mut out, None), Ok(1));
        seen.push(out[0].u64 as RawFd);
    }
    seen.sort_unstable();
    assert_eq!(seen, sockets);
    assert!(close(set));
}

#[test]
fn rsockets_and_other_descriptors_share_a_set() {
    let (set, event) = (create(libc::EPOLL_CLOEXEC).unwrap(), ferroce_sys::Event::new().unwrap());
    let socket = rsocket();
    control(set, libc::EPOLL_CTL_ADD, event.as_raw_fd(), Some((IN, 1))).unwrap();
    assert_eq!(ready(set, Duration::from_millis(2)), Ok(vec![]));
    control(set, libc::EPOLL_CTL_ADD, socket, Some((OUT, 2))).unwrap();
    assert_eq!(ready(set, Duration::ZERO), Ok(vec![(OUT, 2)]));
    event.signal().unwrap();
    let mut both = ready(set, Duration::ZERO).unwrap();
    both.sort_unstable();
    assert_eq!(both, [(IN, 1), (OUT, 2)]);
    control(set, libc::EPOLL_CTL_MOD, socket, Some((IN, 2))).unwrap();
    control(set, libc::EPOLL_CTL_DEL, event.as_raw_fd(), None).unwrap();
    assert_eq!(ready(set, Duration::ZERO), Ok(vec![]));
    close(set);
}

#[test]
fn errors_are_those_of_epoll() {
    let (set, socket) = (create(0).unwrap(), rsocket());
    let call = |operation, event| control(set, operation, socket, event).map_err(|error| error.0);
    assert_eq!(call(libc::EPOLL_CTL_MOD, Some((IN, 0))), Err(libc::ENOENT));
    assert_eq!(call(libc::EPOLL_CTL_DEL, None), Err(libc::ENOENT));
    assert_eq!(call(libc::EPOLL_CTL_ADD, None), Err(libc::EFAULT));
    assert_eq!(call(99, Some((IN, 0))), Err(libc::EINVAL));
    assert_eq!(call(libc::EPOLL_CTL_ADD, Some((IN, 0))), Ok(()));
    assert_eq!(call(libc::EPOLL_CTL_ADD, Some((IN, 0))), Err(libc::EEXIST));
    let other = |operation, event| control(set, operation, -1, event).map_err(|error| error.0);
    assert_eq!(other(libc::EPOLL_CTL_ADD, Some((IN, 0))), Err(libc::EBADF));
    assert_eq!(other(libc::EPOLL_CTL_ADD, None), Err(libc::EFAULT));
    assert_eq!(create(libc::O_APPEND), Err(Errno(libc::EINVAL)));
    close(set);
    assert_eq!(wait(set, &mut [NONE], None), Err(Errno(libc::EINVAL)));
    assert!(!close(set));
}

#[test]
fn a_closed_socket_leaves_its_sets() {
    let (set, socket) = (create(0).unwrap(), rsocket());
    control(set, libc::EPOLL_CTL_ADD, socket, Some((OUT, 2))).unwrap();
    table::close(socket).unwrap();
    assert_eq!(ready(set, Duration::ZERO), Ok(vec![]));
    close(set);
}

#[test]
fn closing_a_set_ends_a_wait_with_ebadf() {
    let fd = create(0).unwrap();
    let known = set(fd).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| known.wait(&mut [NONE], None));
        while known.members().waiters.wakeups() == 0 {
            close(fd);
            known.members().waiters.wake();
            std::thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), Err(Errno(libc::EBADF)));
    });
}

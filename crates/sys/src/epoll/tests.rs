use super::*;
use crate::Event;

const NONE: EpollEvent = EpollEvent { events: 0, u64: 0 };

fn found(set: &Epoll) -> Vec<(u32, u64)> {
    let mut events = [NONE; 4];
    let count = set.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events[..count].iter().map(|event| (event.events, event.u64)).collect()
}

#[test]
fn reports_ready_descriptors_with_their_data() {
    let (set, event) = (Epoll::new(true).unwrap(), Event::new().unwrap());
    set.add(event.as_raw_fd(), libc::EPOLLIN as u32, u64::MAX - 7).unwrap();
    assert_eq!(found(&set), []);
    event.signal().unwrap();
    assert_eq!(found(&set), [(libc::EPOLLIN as u32, u64::MAX - 7)]);
    set.modify(event.as_raw_fd(), libc::EPOLLOUT as u32, 3).unwrap();
    assert_eq!(found(&set), [(libc::EPOLLOUT as u32, 3)]);
    set.remove(event.as_raw_fd()).unwrap();
    assert_eq!(found(&set), []);
}

#[test]
fn refuses_what_the_kernel_refuses() {
    let (set, event) = (Epoll::new(true).unwrap(), Event::new().unwrap());
    let number = |result: io::Result<()>| result.unwrap_err().raw_os_error();
    let fd = event.as_raw_fd();
    assert_eq!(number(set.modify(fd, 0, 0)), Some(libc::ENOENT));
    assert_eq!(number(set.remove(fd)), Some(libc::ENOENT));
    set.add(fd, 0, 0).unwrap();
    assert_eq!(number(set.add(fd, 0, 0)), Some(libc::EEXIST));
    assert_eq!(number(set.add(-1, 0, 0)), Some(libc::EBADF));
    assert_eq!(number(set.add(i32::MAX, 0, 0)), Some(libc::EBADF));
    assert_eq!(number(set.wait(&mut [], None).map(drop)), Some(libc::EINVAL));
}

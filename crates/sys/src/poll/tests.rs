use super::*;
use crate::Event;

fn entry(fd: i32, events: i16) -> PollEntry {
    PollEntry { fd, events, revents: 0x55 }
}

#[test]
fn numbers_are_polled_as_the_kernel_does() {
    let event = Event::new().unwrap();
    event.signal().unwrap();
    let mut list = [
        entry(-1, libc::POLLIN),
        entry(event.as_raw_fd(), libc::POLLIN | libc::POLLPRI),
        entry(i32::MAX, libc::POLLIN),
        entry(-7, libc::POLLIN),
        entry(event.as_raw_fd(), 0),
    ];
    assert_eq!(poll_numbers(&mut list, None).unwrap(), 2);
    assert_eq!(list.map(|entry| entry.revents), [0, libc::POLLIN, libc::POLLNVAL, 0, 0]);
    event.take().unwrap();
    let mut list = [entry(event.as_raw_fd(), libc::POLLIN)];
    assert_eq!(poll_numbers(&mut list, Some(Duration::from_micros(200))).unwrap(), 0);
    assert_eq!(list[0].revents, 0);
}

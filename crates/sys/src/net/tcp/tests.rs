use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn discarded_bytes_are_consumed() {
    let (mut sender, mut receiver) = pair();
    sender.write_all(b"discarded, kept").unwrap();
    let mut left = b"discarded, ".len();
    while left > 0 {
        left -= discard(receiver.as_fd(), left).unwrap();
    }
    let mut kept = [0; 4];
    receiver.read_exact(&mut kept).unwrap();
    assert_eq!(&kept, b"kept");
    drop(sender);
    assert_eq!(discard(receiver.as_fd(), 100).unwrap(), 0);
}

#[test]
fn raw_transfers_move_bytes() {
    let (sender, receiver) = pair();
    let (data, mut found) = (*b"bytes", [0; 8]);
    // SAFETY: both ranges are locals.
    unsafe {
        assert_eq!(send(sender.as_fd(), data.as_ptr(), data.len()).unwrap(), 5);
        assert_eq!(receive(receiver.as_fd(), found.as_mut_ptr(), found.len()).unwrap(), 5);
    }
    assert_eq!(&found[..5], &data);
}

#[test]
fn a_connection_has_figures() {
    let (sender, _receiver) = pair();
    let found = info(sender.as_fd()).unwrap();
    assert_eq!(found.retransmits, 0);
    assert!(found.mss >= 500, "{found:?}");
    set_keepalive(sender.as_fd(), Duration::from_secs(30)).unwrap();
}

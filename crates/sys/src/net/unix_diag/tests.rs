use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use super::*;

fn bind(name: &str) -> UnixDatagram {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

fn inode(socket: &UnixDatagram) -> u32 {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
    let text = link.to_str().unwrap().trim_start_matches("socket:[").trim_end_matches(']');
    text.parse().unwrap()
}

#[test]
fn sockets_are_found_by_name_with_their_owner() {
    let prefix = format!("ferroce-diag-{}", std::process::id());
    let sockets = ["/1", "/2", "x"].map(|end| bind(&format!("{prefix}{end}")));
    let mut found = named(&format!("{prefix}/")).unwrap();
    found.sort_by(|left, right| left.name.cmp(&right.name));
    let user = rustix::process::geteuid().as_raw();
    let expected = [0, 1].map(|at| Named {
        name: format!("{prefix}/{}", at + 1),
        inode: inode(&sockets[at]),
        user: Some(user),
    });
    assert_eq!(found, expected);
    // The textual table has the same entries without the owner.
    let table = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap();
    let mut listed = listed(&table, &format!("{prefix}/"));
    listed.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!(listed, expected.map(|socket| Named { user: None, ..socket }));
}

#[test]
fn returns_the_peer_of_a_connected_socket() {
    let name = format!("ferroce-diag-peer-{}", std::process::id());
    let owner = bind(&name);
    let sender = UnixDatagram::unbound().unwrap();
    assert_eq!(peer(sender.as_fd()).unwrap(), None);
    sender.connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    assert_eq!(peer(sender.as_fd()).unwrap(), Some(inode(&owner)));
}

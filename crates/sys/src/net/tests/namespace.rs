//! A network namespace for one test, with a cable to a second interface that only captures.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use super::{forking, is_readable, skipped};
use crate::syscall::{check, check_length, socket};
use crate::{clock, interface};

/// Our end of the cable, with the addresses 10.9.0.1/24 and fd09::1/64. Packets leave it as they would on a wire.
pub(super) const NEAR: &str = "near";
/// The other end, without addresses. 10.9.0.2 and fd09::2 are said to be there.
pub(super) const FAR: &str = "far";

/// Runs a test in a namespace of its own, or says that it cannot.
pub(super) fn run(test: &str, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        // A thread of its own: what it leaves is left by it alone.
        let thread = scope.spawn(|| {
            // SAFETY: the call takes no pointers, and this thread has no sockets yet.
            match check(unsafe { libc::unshare(libc::CLONE_NEWNET) }) {
                Err(error) => skipped(test, &format!("no network namespace: {error}")),
                Ok(_) if !cable() => skipped(test, "`ip` could not make a cable"),
                Ok(_) => body(),
            }
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn cable() -> bool {
    let far = "02:00:00:00:00:02";
    [
        "link set lo up",
        "link add near address 02:00:00:00:00:01 type veth peer name far address 02:00:00:00:00:02",
        // With this the kernel segments in software, as for a device that cannot.
        "link set near gso_max_segs 1",
        "link set far up",
        "link set near up",
        "address add 10.9.0.1/24 dev near",
        "address add fd09::1/64 dev near nodad",
        &format!("neighbour replace 10.9.0.2 lladdr {far} dev near nud permanent"),
        &format!("neighbour replace fd09::2 lladdr {far} dev near nud permanent"),
    ]
    .iter()
    .all(|arguments| ip(arguments))
}

/// Runs the command `ip`, and says whether it did what it was told.
pub(super) fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    let started = forking(|| command.args(arguments.split(' ')).spawn());
    started.and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
}

/// Waits until an IPv6 address just added is one that packets are delivered to. The kernel sees to that a little later,
/// and until then sends them out instead.
pub(super) fn route_to_ourselves(address: &str) {
    let deadline = clock::now() + super::PATIENCE;
    let wanted = format!("local {address} ");
    loop {
        let mut command = Command::new("ip");
        command.args(["-6", "route", "show", "table", "local"]).stdout(Stdio::piped());
        let child = forking(|| command.spawn()).unwrap();
        let routes = child.wait_with_output().unwrap().stdout;
        if String::from_utf8_lossy(&routes).contains(&wanted) {
            return;
        }
        assert!(clock::now() < deadline, "the address has no route");
    }
}

/// Captures frames as they come out of an interface.
pub(super) struct Tap {
    fd: OwnedFd,
}

impl Tap {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(all))?;
        // SAFETY: a sockaddr_ll is numbers.
        let mut place: libc::sockaddr_ll = unsafe { crate::syscall::zeroed() };
        place.sll_family = libc::AF_PACKET as u16;
        place.sll_protocol = all;
        place.sll_ifindex = interface::index_of(name).unwrap() as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is a local, as long as said.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const place).cast(), length) })?;
        Ok(Self { fd })
    }

    /// The next frame that is wanted.
    pub(super) fn next(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let deadline = clock::now() + super::PATIENCE;
        let mut buffer = vec![0; 70_000];
        loop {
            assert!(is_readable(&self.fd.as_fd(), deadline), "no such frame was sent");
            // SAFETY: the buffer is a local, as long as said.
            let length = check_length(unsafe {
                libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            })
            .unwrap();
            if wanted(&buffer[..length]) {
                buffer.truncate(length);
                return buffer;
            }
        }
    }
}

//! A network namespace for one test, with a veth pair whose second end captures frames.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketType, recv};

use std::process::{Command, Stdio};

use super::{forking, is_readable, skipped};
use crate::syscall::check;
use crate::{clock, interface};

/// The local end of the veth pair, with the addresses 10.9.0.1/24 and fd09::1/64.
pub(super) const NEAR: &str = "near";
/// The other end, without addresses. The neighbour entries of 10.9.0.2 and fd09::2 point to it.
pub(super) const FAR: &str = "far";

/// Runs a test in its own namespace, or skips it.
pub(super) fn run(test: &str, body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        // A separate thread: only the calling thread changes its namespace.
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
        // Makes the kernel segment in software, as for a device without the offload.
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

/// Runs the command `ip`, and returns whether it succeeded.
pub(super) fn ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    let started = forking(|| command.args(arguments.split(' ')).spawn());
    started.and_then(|mut child| child.wait()).is_ok_and(|status| status.success())
}

/// Waits until the kernel delivers packets to an IPv6 address that was just added. It adds the route a little later, and
/// sends the packets out until then.
pub(super) fn wait_for_local_route(address: &str) {
    let deadline = clock::now() + super::TEST_TIMEOUT;
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

/// Captures the frames that arrive at an interface.
pub(super) struct Tap {
    fd: OwnedFd,
}

impl Tap {
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        // Without a protocol it captures nothing until it is bound.
        let fd = crate::syscall::socket(AddressFamily::PACKET, SocketType::RAW, None)?;
        // SAFETY: a sockaddr_ll is numbers.
        let mut address: libc::sockaddr_ll = unsafe { crate::syscall::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = interface::index_of(name).unwrap() as i32;
        let length = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is a local, of the given length.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Self { fd })
    }

    /// The next frame that matches.
    pub(super) fn next(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let deadline = clock::now() + super::TEST_TIMEOUT;
        let mut buffer = vec![0; 70_000];
        loop {
            assert!(is_readable(&self.fd.as_fd(), deadline), "no such frame was sent");
            let (length, _) = recv(&self.fd, &mut buffer, RecvFlags::empty()).unwrap();
            if wanted(&buffer[..length]) {
                buffer.truncate(length);
                return buffer;
            }
        }
    }
}

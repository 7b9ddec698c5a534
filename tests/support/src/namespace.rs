//! A network namespace for this process and its children, created before `main`.
//!
//! nextest runs every test in its own process, so every test has its own ports, abstract socket names, interfaces and
//! multicast groups. With `cargo test`, the tests of one binary share a namespace, which is still separate from the
//! machine's.
//!
//! As root, the process unshares its network and mount namespaces; without root, it first creates a user namespace in
//! which it is root. The mount namespace keeps the names of `ip netns` private to this test, and makes `/sys/class/net`
//! show the namespace's interfaces. Where none of this is permitted, the test runs in the machine's namespace: it
//! reports that on standard error, and `scripts/test` counts it.
//!
//! A child process inherits the namespace and [`VARIABLE`], so a test binary that starts itself stays in the namespace
//! of its parent.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::{env, fs, mem, ptr};

use crate::notes;

/// The environment variable that records how this process got its network namespace. If it is set to `machine` from
/// outside, tests stay in the namespace that they are started in.
pub const VARIABLE: &str = "FERROCE_TEST_NETWORK";

/// Whether this process, or a parent, created a namespace for it.
pub fn is_own() -> bool {
    env::var(VARIABLE).is_ok_and(|value| value == "own")
}

/// Called by the dynamic linker before `main`, while the process has a single thread, which CLONE_NEWUSER requires.
#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = {
    extern "C" fn enter() {
        // Listing tests opens no socket.
        if env::var_os(VARIABLE).is_some() || env::args().any(|argument| argument == "--list") {
            return;
        }
        let entered = unshare();
        let value = if entered.is_ok() { "own" } else { "machine" };
        // SAFETY: there is one thread.
        unsafe { env::set_var(VARIABLE, value) };
        if let Err(error) = entered {
            let reason = format!("cannot create a network namespace here: {error}");
            eprintln!("NOT ISOLATED: {reason}: this test shares the machine's network");
            notes::add(notes::Kind::Shared, &reason);
        }
    }
    enter
};

fn unshare() -> io::Result<()> {
    const OWN: libc::c_int = libc::CLONE_NEWNET | libc::CLONE_NEWNS;
    // SAFETY: these have no conditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: as above; there is one thread, as CLONE_NEWUSER requires.
    if unsafe { libc::unshare(OWN) } != 0 {
        // SAFETY: as above.
        check(unsafe { libc::unshare(OWN | libc::CLONE_NEWUSER) })?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    }
    loopback_up()?;
    private_mounts();
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the loopback's `IFF_UP`: netdevice(7).
fn loopback_up() -> io::Result<()> {
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: no pointers are passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(if socket < 0 { -1 } else { 0 })?;
    // SAFETY: the request is an `ifreq` with a NUL-terminated name; the kernel only reads it.
    let up = check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const request) });
    // SAFETY: it is ours, and not used after this.
    unsafe { libc::close(socket) };
    up
}

/// Mounts the file systems of the network namespace. If that fails, the machine's stay mounted, which affects only `ip
/// netns` and programs that read `/sys/class/net`.
fn private_mounts() {
    let mount = |kind: Option<&CStr>, at: &CStr, flags: libc::c_ulong| {
        let kind = kind.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: all are NUL-terminated strings, or null where mount(2) allows it.
        let done = unsafe { libc::mount(c"none".as_ptr(), at.as_ptr(), kind, flags, ptr::null()) };
        done == 0
    };
    // Mounts made here are not visible outside.
    if !mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE) {
        return;
    }
    mount(Some(c"sysfs"), c"/sys", 0);
    let _ = fs::create_dir("/run/netns");
    if !mount(Some(c"tmpfs"), c"/run/netns", 0) && mount(Some(c"tmpfs"), c"/run", 0) {
        let _ = fs::create_dir("/run/netns");
    }
}

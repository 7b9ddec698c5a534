//! Name resolution: `rdma_getaddrinfo`.

use std::ffi::{c_char, c_int};
use std::ptr;

use libc::{addrinfo, sockaddr, socklen_t};

use crate::abi::Abi;
use crate::abi::constants::qp_type;
use crate::abi::rdmacm::{port_space, rai, rdma_addrinfo};
use crate::entry::{self, Errno, Result};

/// The hints for the C library's resolver.
fn hints_out(hints: &rdma_addrinfo) -> addrinfo {
    let has = |flag: c_int| hints.ai_flags & flag != 0;
    let passive = if has(rai::PASSIVE) { libc::AI_PASSIVE } else { 0 };
    let numeric = if has(rai::NUMERICHOST) { libc::AI_NUMERICHOST } else { 0 };
    let socktype = match hints.ai_qp_type as u32 {
        0 => 0,
        qp_type::UD => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    let protocol = match (hints.ai_port_space as u32, socktype) {
        (port_space::TCP, _) | (port_space::IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (port_space::UDP | port_space::IPOIB, _) | (port_space::IB, libc::SOCK_DGRAM) => {
            libc::IPPROTO_UDP
        }
        _ => 0,
    };
    addrinfo {
        ai_flags: passive | numeric,
        ai_family: hints.ai_family,
        ai_socktype: socktype,
        ai_protocol: protocol,
        ai_addrlen: 0,
        ai_addr: ptr::null_mut(),
        ai_canonname: ptr::null_mut(),
        ai_next: ptr::null_mut(),
    }
}

/// Copies an address into memory of the C library's allocator.
///
/// # Safety
/// The value has this length.
unsafe fn copy(from: *const sockaddr, length: socklen_t) -> Result<(*mut sockaddr, socklen_t)> {
    if from.is_null() || length == 0 {
        return Ok((ptr::null_mut(), 0));
    }
    // SAFETY: the call takes no pointers.
    let to = unsafe { libc::malloc(length as usize) }.cast::<sockaddr>();
    if to.is_null() {
        return Err(Errno::NO_MEMORY);
    }
    // SAFETY: as the caller promises, and this length was allocated.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), length as usize) };
    Ok((to, length))
}

/// A failure of the resolution.
pub(super) enum Failure {
    Errno(Errno),
    /// A number of the resolver (`EAI_NONAME` and so on).
    Resolver(c_int),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::Errno(error)
    }
}

/// Resolves a name, and fills in the fields that the hints leave open.
///
/// # Safety
/// The program's strings, or null.
unsafe fn ask(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    out: &mut rdma_addrinfo,
) -> std::result::Result<(), Failure> {
    let wanted = hints.map(hints_out);
    let wanted = wanted.as_ref().map_or(ptr::null(), ptr::from_ref);
    let mut found = ptr::null_mut();
    // SAFETY: as the caller promises, and local variables.
    let failed = unsafe { libc::getaddrinfo(node, service, wanted, &raw mut found) };
    if failed != 0 {
        return Err(Failure::Resolver(failed));
    }
    // SAFETY: the resolver's list, which has an entry.
    let first = unsafe { &*found };
    let datagrams = first.ai_socktype == libc::SOCK_DGRAM || first.ai_protocol == libc::IPPROTO_UDP;
    let given = |of: fn(&rdma_addrinfo) -> c_int| hints.map(of).filter(|&value| value != 0);
    let kind = if datagrams { qp_type::UD } else { qp_type::RC };
    let space = if datagrams { port_space::UDP } else { port_space::TCP };
    out.ai_qp_type = given(|hints| hints.ai_qp_type).unwrap_or(kind as c_int);
    out.ai_port_space = given(|hints| hints.ai_port_space).unwrap_or(space as c_int);
    out.ai_family = first.ai_family;
    // SAFETY: the resolver's.
    let copied = unsafe { copy(first.ai_addr, first.ai_addrlen) }.map(|address| {
        if hints.is_some_and(|hints| hints.ai_flags & rai::PASSIVE != 0) {
            out.ai_flags = rai::PASSIVE;
            (out.ai_src_addr, out.ai_src_len) = address;
        } else {
            (out.ai_dst_addr, out.ai_dst_len) = address;
        }
    });
    // SAFETY: the resolver's, which is not used again.
    unsafe { libc::freeaddrinfo(found) };
    Ok(copied?)
}

/// # Safety
/// The program's strings and hints.
unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    out: &mut rdma_addrinfo,
) -> std::result::Result<(), Failure> {
    if node.is_null() && service.is_null() {
        let hints = hints.ok_or(Errno::INVALID)?;
        out.ai_flags = hints.ai_flags;
        out.ai_family = hints.ai_family;
        out.ai_qp_type = hints.ai_qp_type;
        out.ai_port_space = hints.ai_port_space;
        // SAFETY: the program's address.
        (out.ai_dst_addr, out.ai_dst_len) = unsafe { copy(hints.ai_dst_addr, hints.ai_dst_len) }?;
    } else {
        // SAFETY: as the caller promises.
        unsafe { ask(node, service, hints, out) }?;
    }
    if let (Some(hints), 0) = (hints, out.ai_src_len) {
        // SAFETY: the program's address.
        (out.ai_src_addr, out.ai_src_len) = unsafe { copy(hints.ai_src_addr, hints.ai_src_len) }?;
    }
    Ok(())
}

/// Resolves a name. The caller frees the list by [`freeaddrinfo`].
///
/// # Safety
/// The program's strings and hints, or null.
pub(super) unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> std::result::Result<*mut rdma_addrinfo, Failure> {
    // SAFETY: the program's structure.
    let hints = unsafe { hints.as_ref() };
    if hints.is_some_and(|hints| hints.ai_flags & rai::SA != 0) {
        // Services are resolved by the subnet administrator through InfiniBand ports, of which there are none.
        let both = hints.is_some_and(|hints| hints.ai_flags & rai::DNS != 0);
        return Err(match service.is_null() {
            _ if both || !node.is_null() => Errno::UNSUPPORTED,
            true => Errno::INVALID,
            false => Errno(libc::ENOENT),
        }
        .into());
    }
    // SAFETY: the call takes no pointers.
    let made = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) }.cast::<rdma_addrinfo>();
    if made.is_null() {
        return Err(Errno::NO_MEMORY.into());
    }
    let mut about = rdma_addrinfo::zeroed();
    // SAFETY: the program's strings.
    let found = unsafe { find(node, service, hints, &mut about) };
    // SAFETY: allocated with this size.
    unsafe { made.write(about) };
    found.map(|()| made).inspect_err(|_| {
        // SAFETY: the program does not have it.
        unsafe { freeaddrinfo(made) };
    })
}

/// rdma_getaddrinfo(3): 0, −1 with `errno`, or the resolver's own number.
pub(crate) unsafe extern "C" fn getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    out: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut of_resolver = None;
    let returned = entry::count(|| {
        // SAFETY: the program's pointer.
        let out = unsafe { entry::write(out) }?;
        // SAFETY: the program's strings and hints.
        match unsafe { look_up(node, service, hints) } {
            Ok(found) => *out = found,
            Err(Failure::Errno(error)) => return Err(error),
            Err(Failure::Resolver(number)) => of_resolver = Some(number),
        }
        Ok(0)
    });
    of_resolver.unwrap_or(returned)
}

pub(crate) unsafe extern "C" fn freeaddrinfo(mut list: *mut rdma_addrinfo) {
    while !list.is_null() {
        // SAFETY: the program's list, allocated by the C library's allocator.
        unsafe {
            let one = list.read();
            for part in
                [one.ai_src_addr.cast(), one.ai_dst_addr.cast(), one.ai_route, one.ai_connect]
            {
                libc::free(part);
            }
            libc::free(one.ai_src_canonname.cast());
            libc::free(one.ai_dst_canonname.cast());
            libc::free(list.cast());
            list = one.ai_next;
        }
    }
}

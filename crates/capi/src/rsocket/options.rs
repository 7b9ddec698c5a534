//! `rsetsockopt`, `rgetsockopt`, `rfcntl`.

use std::ffi::{c_int, c_long, c_void};
use std::time::Duration;

use libc::socklen_t;

use super::socket::{Phase, Socket, State};
use super::table::{self, Any};
use super::wait::Progress;
use crate::entry::{self, Errno, Result};

/// `SOL_RDMA`, and the options of this level.
pub(super) const RDMA: c_int = 0x10000;
pub(super) const SEND_QUEUE: c_int = 0;
pub(super) const RECEIVE_QUEUE: c_int = 1;
pub(super) const INLINE: c_int = 2;
const MAPS: c_int = 3;

/// What is noted of options, most of them to be told again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    reuse_address: bool,
    keep_alive: bool,
    out_of_band_inline: bool,
    no_delay: bool,
    one_family: bool,
    /// Switched off by the program.
    no_linger: bool,
    linger: c_int,
    type_of_service: c_int,
    /// Seconds.
    idle: u32,
    flags: c_int,
    fd_flags: c_int,
}

/// Linux's default (tcp(7)).
const IDLE: u32 = 7200;

impl Options {
    /// How long a peer may be silent: what the program says if that is less.
    pub(super) fn silence(&self, most: Duration) -> Duration {
        match (self.keep_alive, self.idle) {
            (true, seconds @ 1..) => most.min(Duration::from_secs(seconds.into())),
            _ => most,
        }
    }
}

/// # Safety
/// There are so many bytes.
pub(super) unsafe fn value(data: *const c_void, length: socklen_t) -> Result<c_int> {
    if data.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    match length as usize {
        0 => Err(Errno::INVALID),
        // A byte will do for those that have one.
        // SAFETY: as the caller says.
        1..4 => Ok(unsafe { data.cast::<u8>().read() }.into()),
        // SAFETY: as the caller says; programs need not align it.
        _ => Ok(unsafe { data.cast::<c_int>().read_unaligned() }),
    }
}

fn set_socket(socket: &Socket, state: &mut State, name: c_int, value: c_int) -> Result<()> {
    let on = value != 0;
    match name {
        libc::SO_REUSEADDR | libc::SO_REUSEPORT => {
            // What is bound already stays as it is.
            if state.phase == Phase::New {
                socket.id.set_port_sharing(on);
            }
            state.options.reuse_address = on;
        }
        // Buffers of a connection stay as they are.
        libc::SO_RCVBUF if state.link.is_none() => {
            state.settings.set_receive_bytes(value.unsigned_abs());
        }
        libc::SO_SNDBUF if state.link.is_none() => {
            state.settings.set_send_bytes(value.unsigned_abs());
        }
        libc::SO_RCVBUF | libc::SO_SNDBUF => {}
        libc::SO_LINGER => state.options.no_linger = !on,
        libc::SO_KEEPALIVE => {
            state.options.keep_alive = on;
            if state.options.idle == 0 {
                state.options.idle = IDLE;
            }
        }
        libc::SO_OOBINLINE => state.options.out_of_band_inline = on,
        _ => return Err(Errno(libc::ENOTSUP)),
    }
    Ok(())
}

fn set_rdma(state: &mut State, name: c_int, value: c_int) -> Result<()> {
    if !matches!(state.phase, Phase::New | Phase::Bound | Phase::Listening) {
        return Err(Errno::INVALID);
    }
    let value = value.unsigned_abs();
    match name {
        SEND_QUEUE => state.settings.set_sends(value),
        RECEIVE_QUEUE => state.settings.set_receives(value),
        INLINE => state.settings.set_inline(value),
        MAPS => state.settings.set_maps(value),
        // Paths are the system's to choose.
        _ => return Err(Errno(libc::ENOTSUP)),
    }
    Ok(())
}

fn set_tcp(state: &mut State, name: c_int, value: c_int) -> Result<()> {
    match name {
        libc::TCP_NODELAY => state.options.no_delay = value != 0,
        libc::TCP_KEEPIDLE => match u32::try_from(value) {
            Ok(seconds @ 1..) => state.options.idle = seconds,
            _ => return Err(Errno::INVALID),
        },
        // Nothing of this is a reliable connection's.
        libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION => {}
        _ => return Err(Errno(libc::ENOTSUP)),
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rsetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    data: *const c_void,
    length: socklen_t,
) -> c_int {
    entry::count(|| {
        let socket = match table::of(number)? {
            Any::Stream(socket) => socket,
            Any::Datagram(socket) => {
                // SAFETY: the program's value.
                unsafe { socket.set(level, name, data, length) }?;
                return Ok(0);
            }
        };
        // SAFETY: the program's value.
        let value = unsafe { value(data, length) }?;
        let state = &mut *socket.state();
        match (level, name) {
            (libc::SOL_SOCKET, name) => set_socket(&socket, state, name, value)?,
            (libc::IPPROTO_TCP, name) => set_tcp(state, name, value)?,
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                state.options.type_of_service = value;
                socket.id.set_type_of_service(value as u8);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                if state.phase != Phase::New {
                    return Err(Errno::INVALID);
                }
                state.options.one_family = value != 0;
                socket.id.set_one_family(value != 0);
            }
            (RDMA, name) => set_rdma(state, name, value)?,
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(0)
    })
}

/// What a number of an option is.
fn get(socket: &Socket, state: &mut State, level: c_int, name: c_int) -> Result<c_int> {
    let options = &state.options;
    let settings = state.link.as_ref().map_or(state.settings, |link| *link.settings());
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => options.reuse_address.into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keep_alive.into(),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.out_of_band_inline.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_bytes as c_int,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_bytes as c_int,
        (libc::SOL_SOCKET, libc::SO_ERROR) => state.take_error().map_or(0, |error| error.0),
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.family,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (state.phase == Phase::Listening).into(),
        (libc::IPPROTO_IP, libc::IP_TOS) => options.type_of_service,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.idle as c_int,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => 1,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
            socket.id.path_mtu().bytes().map_or(0, |bytes| bytes as c_int)
        }
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.one_family.into(),
        (RDMA, SEND_QUEUE) => settings.sends.into(),
        (RDMA, RECEIVE_QUEUE) => settings.receives.into(),
        (RDMA, INLINE) => settings.inline.into(),
        (RDMA, MAPS) => settings.maps.into(),
        _ => return Err(Errno(libc::ENOTSUP)),
    })
}

/// Gives the program bytes, as many as it has room for.
///
/// # Safety
/// The program's room, of this length.
pub(super) unsafe fn give(bytes: &[u8], to: *mut c_void, length: &mut socklen_t) -> Result<()> {
    let room = bytes.len().min(*length as usize);
    if room > 0 && to.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), room) };
    *length = room as socklen_t;
    Ok(())
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    number: c_int,
    level: c_int,
    name: c_int,
    data: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    entry::count(|| {
        // SAFETY: the program's length.
        let length = unsafe { entry::write(length) }?;
        let socket = match table::of(number)? {
            Any::Stream(socket) => socket,
            Any::Datagram(socket) => {
                // SAFETY: the program's room.
                unsafe { socket.get(level, name, data, length) }?;
                return Ok(0);
            }
        };
        let state = &mut *socket.state();
        state.progress();
        let mut bytes = [0; size_of::<libc::tcp_info>()];
        let used = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let on = c_int::from(!state.options.no_linger);
                bytes[..4].copy_from_slice(&on.to_ne_bytes());
                bytes[4..8].copy_from_slice(&state.options.linger.to_ne_bytes());
                8
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                /// `TCP_ESTABLISHED` and `TCP_CLOSE` of the first byte; the rest is 0.
                const STATES: [u8; 2] = [7, 1];
                bytes[0] = STATES[usize::from(state.phase.is_connected())];
                bytes.len()
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                // There is no name to tell that others would know.
                bytes[..5].copy_from_slice(b"rdma\0");
                16
            }
            _ => {
                let value = get(&socket, state, level, name)?;
                bytes[..4].copy_from_slice(&value.to_ne_bytes());
                4
            }
        };
        // SAFETY: the program's room.
        unsafe { give(&bytes[..used], data, length) }?;
        Ok(0)
    })
}

/// Does what fcntl(2) does with the flags of either kind of socket.
fn control(
    nonblocking: &mut bool,
    options: &mut Options,
    command: c_int,
    argument: c_int,
) -> Result<c_int> {
    Ok(match command {
        libc::F_GETFL => {
            let nonblocking = if *nonblocking { libc::O_NONBLOCK } else { 0 };
            options.flags | nonblocking | libc::O_RDWR
        }
        libc::F_SETFL => {
            *nonblocking = argument & libc::O_NONBLOCK != 0;
            options.flags = argument & !(libc::O_NONBLOCK | libc::O_ACCMODE);
            0
        }
        libc::F_GETFD => options.fd_flags,
        libc::F_SETFD => {
            options.fd_flags = argument;
            0
        }
        _ => return Err(Errno(libc::ENOTSUP)),
    })
}

/// With a third argument of C's variable ones: it is where a declared one would be.
pub(crate) unsafe extern "C" fn rfcntl(number: c_int, command: c_int, argument: c_long) -> c_int {
    entry::count(|| {
        let argument = argument as c_int;
        match table::of(number)? {
            Any::Stream(socket) => {
                let state = &mut *socket.state();
                control(&mut state.nonblocking, &mut state.options, command, argument)
            }
            Any::Datagram(socket) => {
                let state = &mut *socket.state();
                control(&mut state.nonblocking, &mut state.options, command, argument)
            }
        }
    })
}

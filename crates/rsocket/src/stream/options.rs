//! Socket options of streams.

use std::ffi::c_int;
use std::time::Duration;

use super::socket::{Phase, State, StreamSocket};
use super::wire::round_to_scale;
use crate::error::{Errno, Result};
use crate::options::{RDMA_INLINE, RDMA_IOMAPSIZE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA, number};
use crate::settings::saturate;
use crate::wait::Pollable;

/// Options that are stored, most of them only to be read back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamOptions {
    reuse_address: bool,
    keepalive: bool,
    oob_inline: bool,
    no_delay: bool,
    v6_only: bool,
    /// The program disabled `SO_LINGER`.
    no_linger: bool,
    linger: c_int,
    type_of_service: c_int,
    /// `TCP_KEEPIDLE` in seconds.
    keepalive_idle: u32,
}

/// Linux's default of `TCP_KEEPIDLE` (tcp(7)).
const DEFAULT_KEEPALIVE_IDLE: u32 = 7200;

impl StreamOptions {
    /// The interval after which a silent peer is probed: `TCP_KEEPIDLE` if `SO_KEEPALIVE` is set, at most `max`.
    pub(crate) fn keepalive_interval(&self, max: Duration) -> Duration {
        match (self.keepalive, self.keepalive_idle) {
            (true, seconds @ 1..) => max.min(Duration::from_secs(seconds.into())),
            _ => max,
        }
    }

    fn set_keepalive(&mut self, on: bool) {
        self.keepalive = on;
        if self.keepalive_idle == 0 {
            self.keepalive_idle = DEFAULT_KEEPALIVE_IDLE;
        }
    }

    fn set_tcp(&mut self, name: c_int, value: c_int) -> Result<()> {
        match name {
            libc::TCP_NODELAY => self.no_delay = value != 0,
            libc::TCP_KEEPIDLE => match u32::try_from(value) {
                Ok(seconds @ 1..) => self.keepalive_idle = seconds,
                _ => return Err(Errno(libc::EINVAL)),
            },
            // Accepted without effect: a reliable connection has nothing of the kind.
            libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL | libc::TCP_MAXSEG | libc::TCP_CONGESTION => {}
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }
}

impl StreamSocket {
    /// Sets an option to these bytes.
    pub fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        self.set_number(level, name, number(value)?)
    }

    fn set_number(&self, level: c_int, name: c_int, value: c_int) -> Result<()> {
        let state = &mut *self.state();
        match (level, name) {
            (libc::SOL_SOCKET, name) => self.set_socket_option(state, name, value)?,
            (libc::IPPROTO_TCP, name) => state.options.set_tcp(name, value)?,
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                state.options.type_of_service = value;
                self.id.set_type_of_service(value as u8);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                if state.phase != Phase::New {
                    return Err(Errno(libc::EINVAL));
                }
                state.options.v6_only = value != 0;
                self.id.set_one_family(value != 0);
            }
            (SOL_RDMA, name) => state.set_rdma_option(name, value)?,
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }

    fn set_socket_option(&self, state: &mut State, name: c_int, value: c_int) -> Result<()> {
        let on = value != 0;
        match name {
            libc::SO_REUSEADDR | libc::SO_REUSEPORT => {
                // An address that is bound already stays as it is.
                if state.phase == Phase::New {
                    self.id.set_port_sharing(on);
                }
                state.options.reuse_address = on;
            }
            // The buffers of a connection keep their length.
            libc::SO_RCVBUF if state.connection.is_none() => {
                state.settings.set_receive_bytes(value.unsigned_abs());
            }
            libc::SO_SNDBUF if state.connection.is_none() => {
                state.settings.set_send_bytes(value.unsigned_abs());
            }
            libc::SO_RCVBUF | libc::SO_SNDBUF => {}
            libc::SO_LINGER => state.options.no_linger = !on,
            libc::SO_KEEPALIVE => state.options.set_keepalive(on),
            libc::SO_OOBINLINE => state.options.oob_inline = on,
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }

    /// Calls `report` with the value of an option, as bytes.
    pub fn option<T>(
        &self,
        level: c_int,
        name: c_int,
        report: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let state = &mut *self.state();
        state.process_completions();
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let mut bytes = [0; 8];
                let on = c_int::from(!state.options.no_linger);
                bytes[..4].copy_from_slice(&on.to_ne_bytes());
                bytes[4..].copy_from_slice(&state.options.linger.to_ne_bytes());
                report(&bytes)
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                /// `TCP_CLOSE` and `TCP_ESTABLISHED`, the first byte; all else is 0.
                const STATES: [u8; 2] = [7, 1];
                let mut bytes = [0; size_of::<libc::tcp_info>()];
                bytes[0] = STATES[usize::from(state.phase.is_connected())];
                report(&bytes)
            }
            // There is no congestion control algorithm with a name that programs know.
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => report(b"rdma\0\0\0\0\0\0\0\0\0\0\0\0"),
            _ => report(&self.number_option(state, level, name)?.to_ne_bytes()),
        })
    }

    fn number_option(&self, state: &mut State, level: c_int, name: c_int) -> Result<c_int> {
        let options = &state.options;
        let connection = state.connection.as_ref();
        let settings = connection.map_or(state.settings, |connection| *connection.settings());
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => {
                options.reuse_address.into()
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keepalive.into(),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => options.oob_inline.into(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_ERROR) => state.take_error().map_or(0, |error| error.0),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => self.family(),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (state.phase == Phase::Listening).into(),
            (libc::IPPROTO_IP, libc::IP_TOS) => options.type_of_service,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keepalive_idle as c_int,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_KEEPINTVL) => 1,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                self.id.path_mtu().bytes().map_or(0, |bytes| bytes as c_int)
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.v6_only.into(),
            (SOL_RDMA, RDMA_SQSIZE) => settings.max_send_wr.into(),
            (SOL_RDMA, RDMA_RQSIZE) => settings.max_recv_wr.into(),
            (SOL_RDMA, RDMA_INLINE) => settings.inline_bytes.into(),
            (SOL_RDMA, RDMA_IOMAPSIZE) => settings.maps.into(),
            _ => return Err(Errno(libc::ENOTSUP)),
        })
    }
}

impl State {
    fn set_rdma_option(&mut self, name: c_int, value: c_int) -> Result<()> {
        if !matches!(self.phase, Phase::New | Phase::Bound | Phase::Listening) {
            return Err(Errno(libc::EINVAL));
        }
        let value = value.unsigned_abs();
        match name {
            RDMA_SQSIZE => self.settings.set_max_send_wr(value),
            RDMA_RQSIZE => self.settings.set_max_recv_wr(value),
            RDMA_INLINE => self.settings.set_inline_bytes(value),
            RDMA_IOMAPSIZE => self.settings.maps = round_to_scale(saturate(value)),
            // The kernel selects routes, so RDMA_ROUTE is not supported.
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(3);

    fn get(socket: &StreamSocket, level: c_int, name: c_int) -> Result<c_int> {
        socket.option(level, name, |bytes| {
            c_int::from_ne_bytes(bytes.try_into().expect("an option of four bytes"))
        })
    }

    #[test]
    fn the_keepalive_interval_is_the_programs_if_that_is_shorter() {
        let mut options = StreamOptions::default();
        assert_eq!(options.keepalive_interval(MAX), MAX);
        options.set_tcp(libc::TCP_KEEPIDLE, 1).unwrap();
        assert_eq!(options.keepalive_interval(MAX), MAX);
        options.set_keepalive(true);
        assert_eq!(options.keepalive_interval(MAX), Duration::from_secs(1));
        options.set_tcp(libc::TCP_KEEPIDLE, 100).unwrap();
        assert_eq!(options.keepalive_interval(MAX), MAX);
        options.set_keepalive(false);
        assert_eq!(options.keepalive_interval(MAX), MAX);
    }

    #[test]
    fn enabling_keepalive_sets_linuxs_default_idle_time() {
        let mut options = StreamOptions::default();
        options.set_keepalive(true);
        assert_eq!(options.keepalive_idle, 7200);
        assert_eq!(options.set_tcp(libc::TCP_KEEPIDLE, 0), Err(Errno(libc::EINVAL)));
        assert_eq!(options.set_tcp(libc::TCP_KEEPIDLE, -1), Err(Errno(libc::EINVAL)));
        assert_eq!(options.keepalive_idle, 7200);
    }

    #[test]
    fn options_that_were_set_are_read_back() {
        let socket = StreamSocket::new(libc::AF_INET6, false).unwrap();
        let table = [
            (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, 1),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, 1),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE, 1, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, 50_000, 100_000),
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 60_000, 120_000),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 9, 9),
            (libc::IPPROTO_IP, libc::IP_TOS, 0x28, 0x28),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1, 1),
            (SOL_RDMA, RDMA_SQSIZE, 32, 32),
            (SOL_RDMA, RDMA_RQSIZE, 33, 33),
            (SOL_RDMA, RDMA_INLINE, 16, 16),
            (SOL_RDMA, RDMA_IOMAPSIZE, 300, 256),
        ];
        for (level, name, value, read) in table {
            socket.set_number(level, name, value).unwrap();
            assert_eq!(get(&socket, level, name), Ok(read), "{level} {name}");
        }
    }

    #[test]
    fn the_socket_describes_itself() {
        let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
        let read = |name| get(&socket, libc::SOL_SOCKET, name).unwrap();
        assert_eq!(read(libc::SO_TYPE), libc::SOCK_STREAM);
        assert_eq!(read(libc::SO_PROTOCOL), libc::IPPROTO_TCP);
        assert_eq!(read(libc::SO_DOMAIN), libc::AF_INET);
        assert_eq!(read(libc::SO_ACCEPTCONN), 0);
    }

    #[test]
    fn the_pending_error_is_read_once() {
        let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
        socket.state().error = libc::ECONNREFUSED;
        let read = || get(&socket, libc::SOL_SOCKET, libc::SO_ERROR);
        assert_eq!(read(), Ok(libc::ECONNREFUSED));
        assert_eq!(read(), Ok(0));
    }

    #[test]
    fn queue_sizes_are_fixed_once_the_socket_connects() {
        let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
        socket.state().phase = Phase::Connecting;
        let result = socket.set_number(SOL_RDMA, RDMA_SQSIZE, 32);
        assert_eq!(result, Err(Errno(libc::EINVAL)));
        let result = socket.set_number(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1);
        assert_eq!(result, Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn unknown_options_are_unsupported() {
        let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
        for (level, name) in
            [(libc::SOL_SOCKET, -1), (SOL_RDMA, 9), (libc::IPPROTO_TCP, -1), (-1, 0)]
        {
            assert_eq!(socket.set_number(level, name, 1), Err(Errno(libc::ENOTSUP)));
            assert_eq!(get(&socket, level, name), Err(Errno(libc::ENOTSUP)));
        }
    }

    #[test]
    fn options_that_are_structures_have_their_length() {
        let socket = StreamSocket::new(libc::AF_INET, false).unwrap();
        let bytes = |level, name| socket.option(level, name, <[u8]>::to_vec).unwrap();
        // TCP_CLOSE.
        let info = bytes(libc::IPPROTO_TCP, libc::TCP_INFO);
        assert_eq!((info.len(), info[0]), (size_of::<libc::tcp_info>(), 7));
        assert_eq!(bytes(libc::IPPROTO_TCP, libc::TCP_CONGESTION)[..5], *b"rdma\0");
        let linger = bytes(libc::SOL_SOCKET, libc::SO_LINGER);
        assert_eq!((linger.len(), linger[0]), (8, 1));
        socket.set_number(libc::SOL_SOCKET, libc::SO_LINGER, 0).unwrap();
        assert_eq!(bytes(libc::SOL_SOCKET, libc::SO_LINGER)[0], 0);
    }
}

//! Socket options of datagram sockets. Most are options of the UDP socket.

use std::ffi::c_int;
use std::time::Duration;

use super::socket::DatagramSocket;
use crate::error::{Errno, Result};
use crate::options::{RDMA_INLINE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA, number};

/// The time in a `struct timeval`.
fn time(value: &[u8]) -> Option<Duration> {
    let seconds = u64::from_ne_bytes(*value.first_chunk::<8>()?) as i64;
    let microseconds = u64::from_ne_bytes(*value.get(8..)?.first_chunk::<8>()?) as i64;
    let seconds = Duration::from_secs(seconds.unsigned_abs());
    Some(seconds + Duration::from_micros(microseconds.unsigned_abs()))
}

impl DatagramSocket {
    /// Sets an option to these bytes.
    pub fn set_option(&self, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
        if level == SOL_RDMA {
            return self.set_rdma_option(name, number(value)?.unsigned_abs());
        }
        self.udp.set_option(level, name, value)?;
        let mut state = self.state();
        // The buffers of a QP keep their length.
        let resizable = !state.has_queues();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVBUF) if resizable => {
                state.settings.set_receive_bytes(number(value)?.unsigned_abs());
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) if resizable => {
                state.settings.set_send_bytes(number(value)?.unsigned_abs());
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                // Zero stands for no timeout (socket(7)).
                state.receive_timeout = time(value).filter(|timeout| !timeout.is_zero());
            }
            _ => {}
        }
        Ok(())
    }

    fn set_rdma_option(&self, name: c_int, value: u32) -> Result<()> {
        let mut state = self.state();
        if state.has_queues() {
            return Err(Errno(libc::EINVAL));
        }
        match name {
            RDMA_SQSIZE => state.settings.set_max_send_wr(value),
            RDMA_RQSIZE => state.settings.set_max_recv_wr(value),
            RDMA_INLINE => state.settings.set_inline_bytes(value),
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }

    /// Reads an option into the start of `out`, truncated to its length, and returns the number of bytes.
    pub fn option(&self, level: c_int, name: c_int, out: &mut [u8]) -> Result<usize> {
        let mut state = self.state();
        let settings = state.settings;
        let known: c_int = match (level, name) {
            (SOL_RDMA, RDMA_SQSIZE) => settings.max_send_wr.into(),
            (SOL_RDMA, RDMA_RQSIZE) => settings.max_recv_wr.into(),
            (SOL_RDMA, RDMA_INLINE) => settings.inline_bytes.into(),
            (SOL_RDMA, _) => return Err(Errno(libc::ENOTSUP)),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_ERROR) if state.error != 0 => {
                std::mem::replace(&mut state.error, 0)
            }
            _ => return self.udp.option(level, name, out),
        };
        let bytes = known.to_ne_bytes();
        let length = bytes.len().min(out.len());
        out[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(socket: &DatagramSocket, level: c_int, name: c_int) -> Result<c_int> {
        let mut out = [0; 4];
        assert_eq!(socket.option(level, name, &mut out)?, 4);
        Ok(c_int::from_ne_bytes(out))
    }

    fn set(socket: &DatagramSocket, level: c_int, name: c_int, value: c_int) -> Result<()> {
        socket.set_option(level, name, &value.to_ne_bytes())
    }

    #[test]
    fn buffer_and_queue_sizes_are_read_back() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 50_000).unwrap();
        set(&socket, SOL_RDMA, RDMA_SQSIZE, 32).unwrap();
        set(&socket, SOL_RDMA, RDMA_INLINE, 8).unwrap();
        assert_eq!(get(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF), Ok(100_000));
        assert_eq!(get(&socket, SOL_RDMA, RDMA_SQSIZE), Ok(32));
        assert_eq!(get(&socket, SOL_RDMA, RDMA_RQSIZE), Ok(384));
        assert_eq!(get(&socket, SOL_RDMA, RDMA_INLINE), Ok(8));
        assert_eq!(get(&socket, SOL_RDMA, 9), Err(Errno(libc::ENOTSUP)));
        assert_eq!(set(&socket, SOL_RDMA, 9, 1), Err(Errno(libc::ENOTSUP)));
    }

    #[test]
    fn other_options_are_the_kernels() {
        let socket = DatagramSocket::new(libc::AF_INET6, false).unwrap();
        assert_eq!(get(&socket, libc::SOL_SOCKET, libc::SO_TYPE), Ok(libc::SOCK_DGRAM));
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).unwrap();
        assert_eq!(get(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), Ok(1));
        assert_eq!(set(&socket, libc::SOL_SOCKET, -1, 1), Err(Errno(libc::ENOPROTOOPT)));
    }

    #[test]
    fn a_short_buffer_gets_the_start_of_the_value() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        let mut out = [0xff; 2];
        assert_eq!(socket.option(SOL_RDMA, RDMA_RQSIZE, &mut out), Ok(2));
        assert_eq!(out, 384i32.to_ne_bytes()[..2]);
    }

    #[test]
    fn the_pending_error_is_read_once() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        socket.state().error = libc::ECONNREFUSED;
        let read = || get(&socket, libc::SOL_SOCKET, libc::SO_ERROR);
        assert_eq!(read(), Ok(libc::ECONNREFUSED));
        assert_eq!(read(), Ok(0));
    }

    #[test]
    fn a_receive_timeout_is_kept_and_zero_removes_it() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        let timeval = |seconds: i64, microseconds: i64| {
            [seconds.to_ne_bytes(), microseconds.to_ne_bytes()].concat()
        };
        let set = |value: &[u8]| socket.set_option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, value);
        set(&timeval(1, 500_000)).unwrap();
        assert_eq!(socket.state().receive_timeout, Some(Duration::from_millis(1500)));
        set(&timeval(0, 0)).unwrap();
        assert_eq!(socket.state().receive_timeout, None);
    }

    #[test]
    fn an_empty_value_is_refused() {
        let socket = DatagramSocket::new(libc::AF_INET, false).unwrap();
        assert_eq!(socket.set_option(SOL_RDMA, RDMA_SQSIZE, &[]), Err(Errno(libc::EINVAL)));
    }
}

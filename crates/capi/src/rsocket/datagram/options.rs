//! `rsetsockopt`, `rgetsockopt` of datagram sockets. Most options are those of the system's socket.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{socklen_t, timeval};

use super::super::options::{INLINE, RDMA, RECEIVE_QUEUE, SEND_QUEUE, give, value};
use super::socket::Datagram;
use crate::entry::{Errno, Result};

impl Datagram {
    /// # Safety
    /// The program's value, of this length.
    pub(in super::super) unsafe fn set(
        &self,
        level: c_int,
        name: c_int,
        data: *const c_void,
        length: socklen_t,
    ) -> Result<()> {
        if level == RDMA {
            // SAFETY: as the caller says.
            return self.set_rdma(name, unsafe { value(data, length) }?.unsigned_abs());
        }
        // SAFETY: as the caller says; the system looks at it.
        let done = unsafe { libc::setsockopt(self.udp.fd(), level, name, data, length) };
        if done < 0 {
            return Err(Errno::last());
        }
        let mut state = self.state();
        let fixed = state.has_queues();
        match (level, name) {
            // Queue pairs stay as they are.
            (libc::SOL_SOCKET, libc::SO_RCVBUF) if !fixed => {
                // SAFETY: the system has taken it for a number.
                let bytes = unsafe { value(data, length) }?;
                state.settings.set_receive_bytes(bytes.unsigned_abs());
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) if !fixed => {
                // SAFETY: as above.
                let bytes = unsafe { value(data, length) }?;
                state.settings.set_send_bytes(bytes.unsigned_abs());
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                // SAFETY: the system has taken it for such a structure.
                let time = unsafe { data.cast::<timeval>().read_unaligned() };
                let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
                let patience = seconds + Duration::from_micros(time.tv_usec.unsigned_abs());
                // None at all is for ever (socket(7)).
                state.patience = Some(patience).filter(|patience| !patience.is_zero());
            }
            _ => {}
        }
        Ok(())
    }

    fn set_rdma(&self, name: c_int, value: u32) -> Result<()> {
        let mut state = self.state();
        if state.has_queues() {
            return Err(Errno::INVALID);
        }
        match name {
            SEND_QUEUE => state.settings.set_sends(value),
            RECEIVE_QUEUE => state.settings.set_receives(value),
            INLINE => state.settings.set_inline(value),
            _ => return Err(Errno(libc::ENOTSUP)),
        }
        Ok(())
    }

    /// # Safety
    /// The program's room, of this length.
    pub(in super::super) unsafe fn get(
        &self,
        level: c_int,
        name: c_int,
        data: *mut c_void,
        length: &mut socklen_t,
    ) -> Result<()> {
        let mut state = self.state();
        let settings = state.settings;
        let known = match (level, name) {
            (RDMA, SEND_QUEUE) => settings.sends.into(),
            (RDMA, RECEIVE_QUEUE) => settings.receives.into(),
            (RDMA, INLINE) => settings.inline.into(),
            (RDMA, _) => return Err(Errno(libc::ENOTSUP)),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => settings.receive_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => settings.send_bytes as c_int,
            (libc::SOL_SOCKET, libc::SO_ERROR) if state.error != 0 => {
                std::mem::replace(&mut state.error, 0)
            }
            _ => {
                // SAFETY: as the caller says; the system looks at it.
                let done =
                    unsafe { libc::getsockopt(self.udp.fd(), level, name, data, &raw mut *length) };
                return if done < 0 { Err(Errno::last()) } else { Ok(()) };
            }
        };
        // SAFETY: as the caller says.
        unsafe { give(&known.to_ne_bytes(), data, length) }
    }
}

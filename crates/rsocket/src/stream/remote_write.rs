//! Writing to buffers that the peer's program has mapped: `riomap`, `riounmap`, `riowrite`.

use std::ffi::c_int;

use ferroce::{AccessFlags, AddressRange, VirtualAddress};

use super::iomap::MappedBuffer;
use super::socket::{State, StreamSocket};
use crate::error::{Errno, Result};
use crate::sync::lock;

/// A buffer of the program, to be mapped.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Its address.
    pub address: usize,
    /// Its length in bytes.
    pub length: usize,
    /// Whether the peer may write to it.
    pub writable: bool,
    /// The offset by which the peer addresses it; `None` stands for its address.
    pub offset: Option<u64>,
}

impl StreamSocket {
    /// Maps a buffer for the peer, and returns its offset. `range` must describe the memory of the request.
    pub fn map(&self, request: MapRequest, range: AddressRange) -> Result<u64> {
        let MapRequest { address, length, writable, offset } = request;
        let mut state = self.state();
        let connection = state.connection.as_mut().ok_or(Errno(libc::EINVAL))?;
        let mut access = AccessFlags::LOCAL_WRITE;
        let mut index = None;
        if writable {
            access |= AccessFlags::REMOTE_WRITE;
            let entries = connection.peer.as_ref().map_or(0, |peer| peer.maps);
            index = Some(connection.maps.free_index(entries).ok_or(Errno(libc::ENOMEM))?);
        }
        let region = connection.pd.register(range, VirtualAddress(address as u64), access)?;
        let offset = offset.unwrap_or(address as u64);
        connection.maps.add(MappedBuffer { region, address, length, offset, index });
        Ok(offset)
    }

    /// Unmaps a buffer. Returns when writes of the peer to it that are in flight have ended.
    pub fn unmap(&self, address: usize, length: usize) -> Result<()> {
        let mut state = self.state();
        let connection = state.connection.as_mut().ok_or(Errno(libc::EINVAL))?;
        let buffer = connection.maps.remove(address, length).ok_or(Errno(libc::EINVAL))?;
        drop(state);
        buffer.region.deregister().map_err(|failure| failure.error)?;
        Ok(())
    }

    /// Writes to the mapped buffers of the peer at this offset. The peer's program is not notified (rsocket(7)).
    /// Returns fewer bytes if there is no mapped buffer for the rest.
    pub fn write_at(&self, bytes: &[u8], offset: u64, flags: c_int) -> Result<usize> {
        let wait = self.waits(flags);
        let _turn = lock(&self.sending);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.wrapping_add(done as u64);
            let wrote = self.wait_until(wait, None, |state| state.write_at(&bytes[done..], at));
            match wrote.and_then(|wrote| wrote) {
                Ok(0) => break,
                Ok(wrote) => done += wrote,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        // Programs poll their memory next and make no calls: packets are left to the device thread.
        if let Some(connection) = &self.state().connection {
            connection.completions.context().stop_polling();
        }
        Ok(done)
    }
}

impl State {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Option<Result<usize>> {
        if !self.phase.is_writable() {
            return Some(Err(Errno(libc::ECONNRESET)));
        }
        let connection = self.connection.as_mut()?;
        if let Err(error) = connection.announce_maps()? {
            return Some(Err(error));
        }
        let Some((to, left)) = connection.find_remote_map(offset) else { return Some(Ok(0)) };
        if !connection.can_write_remote() {
            return None;
        }
        let length = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        Some(connection.write_remote(&bytes[..length], to))
    }
}

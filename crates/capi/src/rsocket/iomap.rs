//! Buffers of a program that its peer writes to directly: `riomap`, `riounmap`, `riowrite`.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use ferroce::{AccessFlags, AddressRange, MemoryRegion, RKey, RemoteAddress, VirtualAddress};
use libc::{off_t, size_t};

use super::link::{Link, SHORTEST};
use super::socket::{Socket, State};
use super::wire::{Map, Order, Target};
use crate::context::lock;
use crate::entry::{self, Errno, Result};

/// A buffer of this side's program.
struct Mapped {
    region: MemoryRegion,
    address: usize,
    length: usize,
    offset: u64,
    /// Its entry of the peer's table; none for one that the peer may not write to.
    index: Option<u16>,
}

/// All of them, and those that the peer has not been told of.
#[derive(Default)]
pub(super) struct Maps {
    mapped: Vec<Mapped>,
    untold: VecDeque<u16>,
}

impl Link {
    /// Maps a buffer.
    fn add_map(&mut self, new: Mapped) {
        self.maps.untold.extend(new.index);
        self.maps.mapped.push(new);
    }

    /// An entry of the peer's table that is free.
    fn free_map(&self) -> Option<u16> {
        let entries = self.peer.as_ref()?.maps;
        let used = |index: &u16| self.maps.mapped.iter().any(|one| one.index == Some(*index));
        (0..entries).find(|index| !used(index))
    }

    /// Tells the peer of buffers that it does not know. `None` when that has to wait.
    pub(super) fn tell_maps(&mut self) -> Option<Result<()>> {
        while let Some(&index) = self.maps.untold.front() {
            let order = self.peer.as_ref().map_or(Order::HERE, |peer| peer.order);
            let found = self.maps.mapped.iter().find(|one| one.index == Some(index));
            if let Some(one) = found {
                if !self.can_send_directly() {
                    return None;
                }
                let length = u32::try_from(one.length).unwrap_or(u32::MAX);
                let target =
                    Target { address: one.address as u64, key: one.region.rkey().0, length };
                let entry = Map { offset: one.offset, target }.write(order);
                if let Err(error) = self.tell_map(index, &entry) {
                    return Some(Err(error));
                }
            }
            self.maps.untold.pop_front();
        }
        Some(Ok(()))
    }

    /// The buffer of the peer's program with this offset, and how many bytes from there on are in it.
    fn find_map(&self, offset: u64) -> Option<(RemoteAddress, u64)> {
        let maps = (0..self.settings().maps).map(|index| Map::read(&self.map(index), Order::HERE));
        let mut inside = maps.filter_map(|map| {
            let at = offset.checked_sub(map.offset)?;
            let left = u64::from(map.target.length).checked_sub(at)?;
            let address = VirtualAddress(map.target.address.wrapping_add(at));
            Some((RemoteAddress { address, key: RKey(map.target.key) }, left))
        });
        inside.find(|(_, left)| *left > 0)
    }
}

pub(crate) unsafe extern "C" fn riomap(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = entry::run(|| {
        let socket = Socket::of(number)?;
        if protection & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
            return Err(Errno::INVALID);
        }
        let mut state = socket.state();
        let link = state.link.as_mut().ok_or(Errno::INVALID)?;
        let mut access = AccessFlags::LOCAL_WRITE;
        let mut index = None;
        if protection & libc::PROT_WRITE != 0 {
            access |= AccessFlags::REMOTE_WRITE;
            index = Some(link.free_map().ok_or(Errno::NO_MEMORY)?);
        }
        let address = buffer.expose_provenance();
        // SAFETY: riomap's contract: the buffer stays until it is unmapped or the socket closed, and the peer writes to it.
        let range = unsafe { AddressRange::new(address, length) };
        let region = link.domain.register(range, VirtualAddress(address as u64), access)?;
        // rsocket(7): −1 stands for the buffer's address.
        let offset = if offset == -1 { address as off_t } else { offset };
        link.add_map(Mapped { region, address, length, offset: offset as u64, index });
        Ok(offset)
    });
    mapped.unwrap_or_else(|error| {
        error.set();
        -1
    })
}

pub(crate) unsafe extern "C" fn riounmap(
    number: c_int,
    buffer: *mut c_void,
    length: size_t,
) -> c_int {
    entry::count(|| {
        let socket = Socket::of(number)?;
        let mut state = socket.state();
        let link = state.link.as_mut().ok_or(Errno::INVALID)?;
        let same = |one: &Mapped| (one.address, one.length) == (buffer.addr(), length);
        let place = link.maps.mapped.iter().position(same).ok_or(Errno::INVALID)?;
        let gone = link.maps.mapped.swap_remove(place);
        drop(state);
        // The peer's writes to it that are under way come to an end first.
        gone.region.deregister().map_err(|failure| failure.error)?;
        Ok(0)
    })
}

fn write_some(
    state: &mut State,
    bytes: &[u8],
    offset: u64,
    longest: &mut usize,
) -> Option<Result<usize>> {
    if !state.phase.is_writable() {
        return Some(Err(Errno(libc::ECONNRESET)));
    }
    let link = state.link.as_mut()?;
    if let Err(error) = link.tell_maps()? {
        return Some(Err(error));
    }
    let Some((to, left)) = link.find_map(offset) else { return Some(Ok(0)) };
    if !link.can_send_directly() {
        return None;
    }
    let most = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    Some(link.write(&bytes[..most], to, longest))
}

/// Writes to a buffer that the peer's program has mapped. The peer is not told: rsocket(7).
pub(crate) unsafe extern "C" fn riowrite(
    number: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
    flags: c_int,
) -> size_t {
    let written = entry::run(|| {
        let socket = Socket::of(number)?;
        // SAFETY: the program's memory.
        let bytes = unsafe { entry::list(buffer.cast::<u8>(), count) }?;
        let wait = flags & libc::MSG_DONTWAIT == 0 && !socket.state().nonblocking;
        let _turn = lock(&socket.sending);
        let (mut done, mut longest) = (0, SHORTEST);
        while done < bytes.len() {
            let at = (offset as u64).wrapping_add(done as u64);
            let wrote = socket
                .wait(wait, None, |state| write_some(state, &bytes[done..], at, &mut longest));
            match wrote.and_then(|wrote| wrote) {
                Ok(0) => break,
                Ok(wrote) => done += wrote,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        // Programs look at their memory from here on, and do not call: packets are left to the device's own thread.
        if let Some(link) = &socket.state().link {
            link.completions.context().stop_polling();
        }
        Ok(done)
    });
    written.unwrap_or_else(|error| {
        error.set();
        usize::MAX
    })
}

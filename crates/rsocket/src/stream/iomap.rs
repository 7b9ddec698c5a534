//! Buffers that the peer writes to directly (`riomap`): the table of ours, and lookup in the peer's.

use std::collections::VecDeque;

use ferroce::{RKey, RemoteAddress, VirtualAddress};

use super::wire::{IoMap, Target};

/// A buffer of the local program, registered as `R`.
#[derive(Debug)]
pub(crate) struct MappedBuffer<R> {
    pub(crate) region: R,
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) offset: u64,
    /// Its entry of the peer's table; `None` if the peer may not write to it.
    pub(crate) index: Option<u16>,
}

impl<R> MappedBuffer<R> {
    /// The entry of the peer's table.
    pub(crate) fn entry(&self, key: RKey) -> IoMap {
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let target = Target { address: self.address as u64, key: key.0, length };
        IoMap { offset: self.offset, target }
    }
}

/// The mapped buffers, and those of which the peer was not sent the entry.
#[derive(Debug)]
pub(crate) struct IoMaps<R> {
    buffers: Vec<MappedBuffer<R>>,
    unannounced: VecDeque<u16>,
}

impl<R> Default for IoMaps<R> {
    fn default() -> Self {
        Self { buffers: Vec::new(), unannounced: VecDeque::new() }
    }
}

impl<R> IoMaps<R> {
    pub(crate) fn add(&mut self, buffer: MappedBuffer<R>) {
        self.unannounced.extend(buffer.index);
        self.buffers.push(buffer);
    }

    /// The first free entry of a peer's table of this length.
    pub(crate) fn free_index(&self, entries: u16) -> Option<u16> {
        (0..entries).find(|&index| self.get(index).is_none())
    }

    fn get(&self, index: u16) -> Option<&MappedBuffer<R>> {
        self.buffers.iter().find(|buffer| buffer.index == Some(index))
    }

    /// Removes the buffer with this address and length.
    pub(crate) fn remove(&mut self, address: usize, length: usize) -> Option<MappedBuffer<R>> {
        let same = |buffer: &MappedBuffer<R>| (buffer.address, buffer.length) == (address, length);
        let index = self.buffers.iter().position(same)?;
        Some(self.buffers.swap_remove(index))
    }

    /// The next buffer to announce. Entries whose buffer was removed meanwhile are skipped.
    pub(crate) fn next_unannounced(&mut self) -> Option<(u16, &MappedBuffer<R>)> {
        while let Some(&index) = self.unannounced.front() {
            if self.get(index).is_some() {
                break;
            }
            self.unannounced.pop_front();
        }
        let index = *self.unannounced.front()?;
        self.get(index).map(|buffer| (index, buffer))
    }

    /// Records that the entry of [`next_unannounced`](Self::next_unannounced) was sent.
    pub(crate) fn announced(&mut self) {
        self.unannounced.pop_front();
    }
}

/// Finds the mapped buffer of the peer that contains an offset, and the number of bytes from there to its end.
pub(crate) fn find(
    mut maps: impl Iterator<Item = IoMap>,
    offset: u64,
) -> Option<(RemoteAddress, u64)> {
    maps.find_map(|map| {
        let at = offset.checked_sub(map.offset)?;
        let left = u64::from(map.target.length).checked_sub(at).filter(|&left| left > 0)?;
        let address = VirtualAddress(map.target.address.wrapping_add(at));
        Some((RemoteAddress { address, key: RKey(map.target.key) }, left))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(address: usize, index: Option<u16>) -> MappedBuffer<()> {
        MappedBuffer { region: (), address, length: 100, offset: address as u64, index }
    }

    fn map(offset: u64, address: u64, length: u32) -> IoMap {
        IoMap { offset, target: Target { address, key: 9, length } }
    }

    #[test]
    fn entries_are_used_from_the_first_and_reused_after_removal() {
        let mut maps = IoMaps::default();
        for expected in 0..3 {
            assert_eq!(maps.free_index(3), Some(expected));
            maps.add(buffer(1000 * usize::from(expected), Some(expected)));
        }
        assert_eq!(maps.free_index(3), None);
        assert!(maps.remove(1000, 100).is_some());
        assert_eq!(maps.free_index(3), Some(1));
        assert_eq!(maps.free_index(1), None);
    }

    #[test]
    fn buffers_are_announced_in_the_order_of_mapping() {
        let mut maps = IoMaps::default();
        maps.add(buffer(1, Some(1)));
        maps.add(buffer(2, Some(0)));
        assert_eq!(maps.next_unannounced().map(|(index, _)| index), Some(1));
        // Not sent yet: it stays the next one.
        assert_eq!(maps.next_unannounced().map(|(index, _)| index), Some(1));
        maps.announced();
        assert_eq!(
            maps.next_unannounced().map(|(index, found)| (index, found.address)),
            Some((0, 2))
        );
        maps.announced();
        assert!(maps.next_unannounced().is_none());
    }

    #[test]
    fn a_buffer_that_was_unmapped_is_not_announced() {
        let mut maps = IoMaps::default();
        maps.add(buffer(1, Some(0)));
        maps.add(buffer(2, Some(1)));
        maps.remove(1, 100).unwrap();
        assert_eq!(maps.next_unannounced().map(|(index, _)| index), Some(1));
        maps.announced();
        assert!(maps.next_unannounced().is_none());
    }

    #[test]
    fn a_buffer_that_the_peer_may_not_write_to_is_not_announced() {
        let mut maps = IoMaps::default();
        maps.add(buffer(1, None));
        assert!(maps.next_unannounced().is_none());
        assert_eq!(maps.free_index(1), Some(0));
    }

    #[test]
    fn unmapping_needs_the_same_address_and_length() {
        let mut maps = IoMaps::default();
        maps.add(buffer(1, None));
        assert!(maps.remove(1, 99).is_none() && maps.remove(2, 100).is_none());
        assert!(maps.remove(1, 100).is_some());
        assert!(maps.remove(1, 100).is_none());
    }

    #[test]
    fn an_entry_is_cut_to_what_its_length_field_holds() {
        let large = MappedBuffer { length: usize::MAX, ..buffer(5, Some(0)) };
        let entry = large.entry(RKey(3));
        assert_eq!(
            entry,
            IoMap { offset: 5, target: Target { address: 5, key: 3, length: u32::MAX } }
        );
    }

    #[test]
    fn an_offset_is_found_within_its_buffer_only() {
        let maps = [map(1000, 50_000, 10), map(0, 70_000, 5)];
        let find_at =
            |offset| find(maps.into_iter(), offset).map(|(remote, left)| (remote.address.0, left));
        assert_eq!(find_at(1000), Some((50_000, 10)));
        assert_eq!(find_at(1009), Some((50_009, 1)));
        assert_eq!(find_at(1010), None);
        assert_eq!(find_at(4), Some((70_004, 1)));
        assert_eq!(find_at(999), None);
        assert_eq!(find_at(u64::MAX), None);
    }

    #[test]
    fn empty_entries_of_the_table_contain_no_offset() {
        assert_eq!(find([IoMap::default(), map(0, 7, 3)].into_iter(), 0).unwrap().1, 3);
        assert!(find([IoMap::default()].into_iter(), 0).is_none());
    }
}

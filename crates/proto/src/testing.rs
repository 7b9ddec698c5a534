//! Shared by the tests of all transports: random numbers, link faults and memory.

mod pending;

use std::vec::Vec;

use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};

pub(crate) use self::pending::Ended;
use self::pending::Pending;
use crate::memory::{
    AccessFlags, Accessor, Atomic, Begun, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use crate::reason::Reason;
use crate::work::SgList;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

pub(crate) const REGION: u64 = 0x10_0000;
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const KEY: u32 = 0x1234;
pub(crate) const DOMAIN: PdId = PdId(1);

/// A reason for packets whose memory cannot be read.
pub(crate) const DENIED: Reason = Reason::Invalidate { key: RKey(KEY), denied: Denied::Key };

pub(crate) fn sge(offset: u64, length: u32) -> Sge {
    Sge { key: LKey(KEY), address: VirtualAddress(BASE + offset), length }
}

/// One MR with one key.
pub(crate) struct TestMemory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) access: AccessFlags,
    pub(crate) valid: bool,
    pub(crate) atomics: u64,
    pub(crate) windows: Vec<TestWindow>,
    pub(crate) pending: Pending,
}

/// A memory window: its bound range, and the QP it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestWindow {
    pub(crate) key: u32,
    pub(crate) bound: Option<Bind>,
    /// Type 2: bound and invalidated by work requests, and usable through one QP only.
    pub(crate) second: bool,
    pub(crate) queue_pair: Option<Qpn>,
}

/// Mask of the bits that identify a window: the key without the bits that its owner chooses.
const WINDOW_INDEX_MASK: u32 = 0xffff_ff00;

impl TestMemory {
    pub(crate) fn new(random: &mut Random) -> Self {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let bytes = (0..REGION / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
        let pending = Pending::new();
        Self { bytes, access, valid: true, atomics: 0, windows: Vec::new(), pending }
    }

    /// Adds an unbound window.
    pub(crate) fn add_window(&mut self, key: u32, second: bool) {
        self.windows.push(TestWindow { key, bound: None, second, queue_pair: None });
    }

    fn window(&mut self, key: RKey) -> Result<&mut TestWindow, Denied> {
        let mut windows = self.windows.iter_mut();
        windows
            .find(|window| window.key & WINDOW_INDEX_MASK == key.0 & WINDOW_INDEX_MASK)
            .ok_or(Denied::Key)
    }

    /// Like [`TestMemory::range`], for a key that may belong to a window.
    fn remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<core::ops::Range<usize>, Denied> {
        let (address, length) = (range.address, u64::from(range.length));
        let Some(window) = self.windows.iter().find(|window| window.key == range.key.0) else {
            return self.range(by.pd, range.key.0, address, length, access);
        };
        let bound = window.bound.filter(|_| window.queue_pair.is_none_or(|qp| qp == by.queue_pair));
        let bound = bound.ok_or(Denied::Key)?;
        if !bound.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = address.0.checked_sub(bound.address.0).ok_or(Denied::Bounds)?;
        if start + length > bound.length {
            return Err(Denied::Bounds);
        }
        self.range(by.pd, bound.region.0, address, length, AccessFlags::default())
    }

    pub(crate) fn part(&self, offset: u64, length: u32) -> &[u8] {
        &self.bytes[offset as usize..][..length as usize]
    }

    fn range(
        &self,
        pd: PdId,
        key: u32,
        address: VirtualAddress,
        length: u64,
        access: AccessFlags,
    ) -> Result<core::ops::Range<usize>, Denied> {
        if key != KEY || !self.valid {
            return Err(Denied::Key);
        }
        if pd != DOMAIN {
            return Err(Denied::PdId);
        }
        if !self.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = address.0.checked_sub(BASE).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).filter(|&end| end <= REGION).ok_or(Denied::Bounds)?;
        Ok(start as usize..end as usize)
    }
}

impl TestMemory {
    fn local_range(
        &self,
        pd: PdId,
        sge: Sge,
        data: &[u8],
    ) -> Result<core::ops::Range<usize>, Denied> {
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        self.range(pd, sge.key.0, sge.address, data.len() as u64, AccessFlags::LOCAL_WRITE)
    }

    fn atomic_range(
        &self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<core::ops::Range<usize>, Denied> {
        let access = match operation {
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            _ => AccessFlags::REMOTE_ATOMIC,
        };
        self.remote(by, RemoteRange { length: 8, ..range }, access)
    }

    fn execute(&mut self, range: core::ops::Range<usize>, operation: Atomic) -> u64 {
        let bytes = &mut self.bytes[range];
        let original = u64::from_ne_bytes((&*bytes).try_into().unwrap());
        bytes.copy_from_slice(&operation.apply(original).to_ne_bytes());
        self.atomics += 1;
        original
    }
}

impl Memory for TestMemory {
    const CAN_PEND: bool = true;

    fn begin_write_local(
        &mut self,
        by: Accessor,
        sge: Sge,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return self.write_local(by.pd, sge, data).map(Begun::Done);
        }
        let range = self.local_range(by.pd, sge, data)?;
        Ok(self.begin_write(by, range, data))
    }

    fn begin_write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return self.write_remote(by, range, data).map(Begun::Done);
        }
        let range = self.remote(by, range, AccessFlags::REMOTE_WRITE)?;
        Ok(self.begin_write(by, range, data))
    }

    fn begin_atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<Begun<u64>, Denied> {
        if !self.takes_time() {
            return self.atomic(by, range, operation).map(Begun::Done);
        }
        let range = self.atomic_range(by, range, operation)?;
        Ok(self.begin_operation(by, range, operation))
    }

    fn begin_read_local(
        &mut self,
        by: Accessor,
        sg_list: &SgList,
        offset: u64,
        length: u32,
    ) -> Result<Begun<()>, Denied> {
        if !self.pending.reads || !self.takes_time() {
            return Ok(Begun::Done(()));
        }
        let none = AccessFlags::default();
        let parts = sg_list
            .range(offset, length.into())
            .map(|sge| self.range(by.pd, sge.key.0, sge.address, u64::from(sge.length), none));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(self.begin_read(by, parts))
    }

    fn begin_read_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        _duplicate: bool,
    ) -> Result<Begun<()>, Denied> {
        if !self.pending.reads || !self.takes_time() {
            return Ok(Begun::Done(()));
        }
        let range = self.remote(by, range, AccessFlags::REMOTE_READ)?;
        Ok(self.begin_read(by, [range].into()))
    }

    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        let access = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::default() };
        self.range(pd, sge.key.0, sge.address, u64::from(sge.length), access).map(drop)
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        let none = AccessFlags::default();
        let range = self.range(pd, sge.key.0, sge.address, u64::from(sge.length), none)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        let range = self.local_range(pd, sge, data)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.remote(by, range, access).map(drop)
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        let bound = self.windows.iter().find(|window| window.key == key.0);
        let address = bound.and_then(|window| window.bound).map(|bind| bind.address);
        let address = address.unwrap_or(VirtualAddress(BASE));
        self.remote(by, RemoteRange { key, address, length: 0 }, access).map(drop)
    }

    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        let read = AccessFlags::REMOTE_READ;
        let range = self.remote(by, range, read)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<(), Denied> {
        let write = AccessFlags::REMOTE_WRITE;
        let range = self.remote(by, range, write)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<u64, Denied> {
        let range = self.atomic_range(by, range, operation)?;
        Ok(self.execute(range, operation))
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        if key.0 == KEY && self.valid {
            // Tests of remote invalidation need no window.
            self.valid = false;
            return Ok(());
        }
        let window = self.window(key).map_err(|_| Denied::Key)?;
        let ours = window.second && window.queue_pair == Some(by.queue_pair);
        if window.key != key.0 || window.bound.is_none() || !ours {
            return Err(Denied::Key);
        }
        (window.bound, window.queue_pair) = (None, None);
        Ok(())
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.range(by.pd, bind.region.0, bind.address, bind.length, AccessFlags::default())?;
        let window = self.window(bind.window)?;
        // A type 2 window must be invalidated before it is bound again (IBA 10.6.7.2.2).
        if window.second && window.bound.is_some() {
            return Err(Denied::Access);
        }
        window.key = bind.key.0;
        window.bound = Some(*bind).filter(|bind| bind.length > 0);
        window.queue_pair = window.second.then_some(by.queue_pair);
        Ok(())
    }
}

/// Faults per thousand packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) reordering: u64,
}

impl Faults {
    /// A different mixture for each seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self { loss: seed % 80, duplication: (seed / 7) % 120, reordering: (seed / 3) % 70 }
    }

    /// Applies the faults to a sequence of packets.
    pub(crate) fn apply<T: Clone>(&self, packets: Vec<T>, random: &mut Random) -> Vec<T> {
        let mut arriving = Vec::new();
        for (number, packet) in packets.into_iter().enumerate() {
            for _ in 0..1 + u64::from(random.chance(self.duplication)) {
                let late = if random.chance(self.reordering) { random.below(12) } else { 0 };
                if !random.chance(self.loss) {
                    arriving.push((number as u64 + late, packet.clone()));
                }
            }
        }
        arriving.sort_by_key(|(time, _)| *time);
        arriving.into_iter().map(|(_, packet)| packet).collect()
    }
}

//! What the tests of all transports share: a generator of numbers, faults of a link, and memory.

use std::vec::Vec;

use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::memory::{AccessFlags, Atomic, Denied, Domain, LocalSpan, Memory, RemoteSpan};

/// A small generator of numbers: splitmix64.
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
pub(crate) const DOMAIN: Domain = Domain(1);

pub(crate) fn span(offset: u64, length: u32) -> LocalSpan {
    LocalSpan { key: LKey(KEY), address: VirtualAddress(BASE + offset), length }
}

/// One region of memory under one key.
pub(crate) struct TestMemory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) access: AccessFlags,
    pub(crate) valid: bool,
    pub(crate) atomics: u64,
}

impl TestMemory {
    pub(crate) fn new(random: &mut Random) -> Self {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let bytes = (0..REGION / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
        Self { bytes, access, valid: true, atomics: 0 }
    }

    pub(crate) fn part(&self, offset: u64, length: u32) -> &[u8] {
        &self.bytes[offset as usize..][..length as usize]
    }

    fn range(
        &self,
        domain: Domain,
        key: u32,
        address: VirtualAddress,
        length: u64,
        access: AccessFlags,
    ) -> Result<core::ops::Range<usize>, Denied> {
        if key != KEY || !self.valid {
            return Err(Denied::Key);
        }
        if domain != DOMAIN {
            return Err(Denied::Domain);
        }
        if !self.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = address.0.checked_sub(BASE).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).filter(|&end| end <= REGION).ok_or(Denied::Bounds)?;
        Ok(start as usize..end as usize)
    }
}

impl Memory for TestMemory {
    fn check_local(&self, domain: Domain, span: LocalSpan, write: bool) -> Result<(), Denied> {
        let access = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::default() };
        self.range(domain, span.key.0, span.address, u64::from(span.length), access).map(drop)
    }

    fn read_local(&self, domain: Domain, span: LocalSpan, out: &mut [u8]) -> Result<(), Denied> {
        let none = AccessFlags::default();
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), none)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_local(&mut self, domain: Domain, span: LocalSpan, data: &[u8]) -> Result<(), Denied> {
        if data.len() > span.length as usize {
            return Err(Denied::Bounds);
        }
        let write = AccessFlags::LOCAL_WRITE;
        let range = self.range(domain, span.key.0, span.address, data.len() as u64, write)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn check_remote(
        &self,
        domain: Domain,
        span: RemoteSpan,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.range(domain, span.key.0, span.address, u64::from(span.length), access).map(drop)
    }

    fn read_remote(&self, domain: Domain, span: RemoteSpan, out: &mut [u8]) -> Result<(), Denied> {
        let read = AccessFlags::REMOTE_READ;
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), read)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_remote(
        &mut self,
        domain: Domain,
        span: RemoteSpan,
        data: &[u8],
    ) -> Result<(), Denied> {
        let write = AccessFlags::REMOTE_WRITE;
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), write)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, domain: Domain, span: RemoteSpan, what: Atomic) -> Result<u64, Denied> {
        let access = match what {
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            _ => AccessFlags::REMOTE_ATOMIC,
        };
        let range = self.range(domain, span.key.0, span.address, 8, access)?;
        let place = &mut self.bytes[range];
        let original = u64::from_ne_bytes(place.try_into().unwrap());
        self.atomics += 1;
        self.bytes[(span.address.0 - BASE) as usize..][..8]
            .copy_from_slice(&what.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, _domain: Domain, key: RKey) -> Result<(), Denied> {
        if key.0 != KEY || !self.valid {
            return Err(Denied::Key);
        }
        self.valid = false;
        Ok(())
    }
}

/// Faults in a thousand packets.
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

    /// What a link with these faults makes of a sequence of packets.
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

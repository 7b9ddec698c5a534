//! The responder's memory: the bytes and keys that the capture reveals.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_wire::number::{LKey, RKey};

/// The key of receive requests.
pub(crate) const LOCAL_KEY: LKey = LKey(1);

/// Memory of one process: an address means the same with every key.
#[derive(Default)]
pub(crate) struct SparseMemory {
    pub(crate) bytes: BTreeMap<u64, u8>,
    /// Keys that are valid.
    pub(crate) keys: BTreeSet<u32>,
    /// The end of all regions, if the capture reveals it.
    pub(crate) end: Option<u64>,
}

impl SparseMemory {
    pub(crate) fn put(&mut self, address: u64, data: &[u8]) {
        self.bytes.extend((address..).zip(data.iter().copied()));
    }

    fn get(&self, address: u64, out: &mut [u8]) {
        for (at, byte) in (address..).zip(out) {
            *byte = self.bytes.get(&at).copied().unwrap_or_default();
        }
    }

    fn check(&self, range: RemoteRange) -> Result<(), Denied> {
        if !self.keys.contains(&range.key.0) {
            return Err(Denied::Key);
        }
        let last = range.address.0.checked_add(u64::from(range.length)).ok_or(Denied::Bounds)?;
        if self.end.is_some_and(|end| last > end) { Err(Denied::Bounds) } else { Ok(()) }
    }
}

impl Memory for SparseMemory {
    fn check_local(&self, _: PdId, sge: Sge, _write: bool) -> Result<(), Denied> {
        if sge.key == LOCAL_KEY { Ok(()) } else { Err(Denied::Key) }
    }

    fn read_local(&self, _: PdId, _: Sge, _: &mut [u8]) -> Result<(), Denied> {
        Err(Denied::Access) // A responder sends nothing of its own.
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        self.check_local(pd, sge, true)?;
        if data.len() > sge.length as usize { Err(Denied::Bounds) } else { Ok(()) }
    }

    fn check_remote(&self, _: Accessor, range: RemoteRange, _: AccessFlags) -> Result<(), Denied> {
        self.check(range)
    }

    fn check_remote_key(&self, _: Accessor, key: RKey, _: AccessFlags) -> Result<(), Denied> {
        if self.keys.contains(&key.0) { Ok(()) } else { Err(Denied::Key) }
    }

    fn read_remote(&self, _: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        self.check(range)?;
        self.get(range.address.0, out);
        Ok(())
    }

    fn write_remote(&mut self, _: Accessor, range: RemoteRange, data: &[u8]) -> Result<(), Denied> {
        self.check(range)?;
        self.put(range.address.0, data);
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, range: RemoteRange, what: Atomic) -> Result<u64, Denied> {
        self.check(range)?;
        let mut bytes = [0; 8];
        self.get(range.address.0, &mut bytes);
        // The captured hosts are little-endian.
        let original = u64::from_le_bytes(bytes);
        self.put(range.address.0, &what.apply(original).to_le_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, _: Accessor, key: RKey) -> Result<(), Denied> {
        if self.keys.remove(&key.0) { Ok(()) } else { Err(Denied::Key) }
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Err(Denied::Access)
    }
}

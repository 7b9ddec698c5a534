//! The requester's memory: the data it sends, and the results of READs and atomics.

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

/// The key of all of it.
const KEY: LKey = LKey(1);

/// One region, which grows while the work requests are built.
#[derive(Clone, Default)]
pub(crate) struct LocalMemory {
    bytes: Vec<u8>,
}

impl LocalMemory {
    /// Appends these bytes, and returns their SGE.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Sge {
        let address = VirtualAddress(self.bytes.len() as u64);
        self.bytes.extend(bytes);
        Sge { key: KEY, address, length: bytes.len() as u32 }
    }

    /// Returns the current bytes.
    pub(crate) fn get(&self, sge: Sge) -> &[u8] {
        &self.bytes[sge.address.0 as usize..][..sge.length as usize]
    }
}

impl Memory for LocalMemory {
    fn check_local(&self, _: PdId, sge: Sge, _write: bool) -> Result<(), Denied> {
        let end = sge.address.0 + u64::from(sge.length);
        match sge.key {
            KEY if end <= self.bytes.len() as u64 => Ok(()),
            KEY => Err(Denied::Bounds),
            _ => Err(Denied::Key),
        }
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        self.check_local(pd, sge, false)?;
        out.copy_from_slice(self.get(sge));
        Ok(())
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        self.check_local(pd, sge, true)?;
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        self.bytes[sge.address.0 as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    // A requester has no memory with remote access.

    fn check_remote(&self, _: Accessor, _: RemoteRange, _: AccessFlags) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn check_remote_key(&self, _: Accessor, _: RKey, _: AccessFlags) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn read_remote(&self, _: Accessor, _: RemoteRange, _: &mut [u8]) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn write_remote(&mut self, _: Accessor, _: RemoteRange, _: &[u8]) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn atomic(&mut self, _: Accessor, _: RemoteRange, _: Atomic) -> Result<u64, Denied> {
        Err(Denied::Access)
    }

    fn invalidate(&mut self, _: Accessor, _: RKey) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Err(Denied::Access)
    }
}

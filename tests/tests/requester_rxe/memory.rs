//! The requester's memory: what it sends, and what READs and atomics bring.

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Domain, LocalSpan, Memory, RemoteSpan,
};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

/// The key of all of it.
const KEY: LKey = LKey(1);

/// One region, which grows while the work requests are put together.
#[derive(Clone, Default)]
pub(crate) struct LocalMemory {
    bytes: Vec<u8>,
}

impl LocalMemory {
    /// A place of its own for these bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> LocalSpan {
        let address = VirtualAddress(self.bytes.len() as u64);
        self.bytes.extend(bytes);
        LocalSpan { key: KEY, address, length: bytes.len() as u32 }
    }

    /// What is there now.
    pub(crate) fn get(&self, span: LocalSpan) -> &[u8] {
        &self.bytes[span.address.0 as usize..][..span.length as usize]
    }
}

impl Memory for LocalMemory {
    fn check_local(&self, _: Domain, span: LocalSpan, _write: bool) -> Result<(), Denied> {
        let end = span.address.0 + u64::from(span.length);
        match span.key {
            KEY if end <= self.bytes.len() as u64 => Ok(()),
            KEY => Err(Denied::Bounds),
            _ => Err(Denied::Key),
        }
    }

    fn read_local(&self, domain: Domain, span: LocalSpan, out: &mut [u8]) -> Result<(), Denied> {
        self.check_local(domain, span, false)?;
        out.copy_from_slice(self.get(span));
        Ok(())
    }

    fn write_local(&mut self, domain: Domain, span: LocalSpan, data: &[u8]) -> Result<(), Denied> {
        self.check_local(domain, span, true)?;
        if data.len() > span.length as usize {
            return Err(Denied::Bounds);
        }
        self.bytes[span.address.0 as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    // A requester has nothing that its peer may touch.

    fn check_remote(&self, _: Accessor, _: RemoteSpan, _: AccessFlags) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn check_remote_key(&self, _: Accessor, _: RKey, _: AccessFlags) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn read_remote(&self, _: Accessor, _: RemoteSpan, _: &mut [u8]) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn write_remote(&mut self, _: Accessor, _: RemoteSpan, _: &[u8]) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn atomic(&mut self, _: Accessor, _: RemoteSpan, _: Atomic) -> Result<u64, Denied> {
        Err(Denied::Access)
    }

    fn invalidate(&mut self, _: Accessor, _: RKey) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Err(Denied::Access)
    }
}

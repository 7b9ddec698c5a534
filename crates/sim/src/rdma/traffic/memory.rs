//! Memory without contents: traffic patterns measure packets, not data.

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_wire::number::RKey;

/// Allows every access. Reads leave the buffer as it is, and writes are discarded: a thousand hosts with flows of many
/// megabytes need no memory for them.
#[derive(Debug)]
pub(super) struct NoContents;

impl Memory for NoContents {
    fn check_local(&self, _: PdId, _: Sge, _: bool) -> Result<(), Denied> {
        Ok(())
    }

    fn read_local(&self, _: PdId, _: Sge, _: &mut [u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn write_local(&mut self, _: PdId, _: Sge, _: &[u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn check_remote(&self, _: Accessor, _: RemoteRange, _: AccessFlags) -> Result<(), Denied> {
        Ok(())
    }

    fn check_remote_key(&self, _: Accessor, _: RKey, _: AccessFlags) -> Result<(), Denied> {
        Ok(())
    }

    fn read_remote(&self, _: Accessor, _: RemoteRange, _: &mut [u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn write_remote(&mut self, _: Accessor, _: RemoteRange, _: &[u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, _: RemoteRange, _: Atomic) -> Result<u64, Denied> {
        Ok(0)
    }

    fn invalidate(&mut self, _: Accessor, _: RKey) -> Result<(), Denied> {
        Ok(())
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Ok(())
    }
}

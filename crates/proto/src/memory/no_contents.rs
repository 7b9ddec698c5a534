//! Memory without contents.

use ferroce_wire::number::RKey;

use super::{AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge};

/// Allows every access. Reads leave the buffer as it is, and writes are discarded: for who counts packets, not bytes, such as a
/// simulation of a thousand hosts with flows of many megabytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContents;

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

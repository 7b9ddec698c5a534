//! Memory that takes time, as that of a GPU does: of the accesses of a host, some finish later, in any order.

use std::time::Duration;

use ferroce_memory::Registry;
use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Begun, Bind, Denied, Finished, Memory, Outcome, PayloadRead,
    PdId, RemoteRange, Sge, Staged, Token,
};
use ferroce_proto::reason::{KeyFault, RefusedAccess};
use ferroce_proto::time::Instant;
use ferroce_proto::work::SgList;
use ferroce_wire::number::RKey;

use crate::random::Random;

/// The unfinished accesses of a host.
#[derive(Debug, Default)]
pub(in crate::rdma) struct Slow {
    /// How many of 1,000 accesses take time, and how long at most.
    share: u64,
    longest: Duration,
    /// Draws which, and how long; `None` for memory of which none does.
    random: Option<Random>,
    /// How many have begun.
    pub(super) begun: u64,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    due: Instant,
    by: Accessor,
    token: Token,
    access: Access,
}

#[derive(Debug)]
enum Access {
    ReadLocal(Vec<Sge>),
    ReadRemote(RemoteRange),
    Local(Sge, Box<[u8]>),
    Remote(RemoteRange, Box<[u8]>),
    Atomic(RemoteRange, Atomic),
}

impl Slow {
    /// Draws how slow the memory of a host is. It stays below the ACK timeout of its peers.
    pub(in crate::rdma) fn new(mut random: Random) -> Self {
        let share = [0, 0, 100, 1000][random.below(4) as usize];
        let longest = Duration::from_micros([1, 20, 200, 900][random.below(4) as usize]);
        Self { share, longest, random: Some(random), ..Self::default() }
    }

    /// When the next access finishes.
    pub(in crate::rdma) fn next_finish(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.due).min()
    }

    /// Executes the oldest access that is due.
    pub(super) fn finish(&mut self, now: Instant, mut registry: &Registry) -> Option<Ended> {
        let due = self.open.iter().enumerate().filter(|(_, open)| open.due <= now);
        let (index, _) = due.min_by_key(|(_, open)| (open.due, open.token.0))?;
        let Open { by, token, access, .. } = self.open.swap_remove(index);
        let queue_pair = by.queue_pair;
        let read = |payload: Option<Vec<u8>>| {
            let payload = payload.map(Staged::new);
            Some(Ended::Read(PayloadRead { queue_pair, token, payload }))
        };
        let result = match access {
            Access::ReadLocal(sges) => {
                let mut payload = Vec::new();
                let result = sges.iter().try_for_each(|sge| {
                    let at = payload.len();
                    payload.resize(at + sge.length as usize, 0);
                    registry.read_local(by.pd, *sge, &mut payload[at..])
                });
                return read(result.ok().map(|()| payload));
            }
            Access::ReadRemote(range) => {
                let mut payload = vec![0; range.length as usize];
                let result = registry.read_remote(by, range, &mut payload);
                return read(result.ok().map(|()| payload));
            }
            Access::Local(sge, data) => {
                registry.write_local(by.pd, sge, &data).map(|()| Outcome::Written)
            }
            Access::Remote(range, data) => {
                registry.write_remote(by, range, &data).map(|()| Outcome::Written)
            }
            Access::Atomic(range, operation) => {
                registry.atomic(by, range, operation).map(Outcome::Executed)
            }
        };
        let outcome = result.unwrap_or(Outcome::Failed);
        Some(Ended::Access(Finished { queue_pair, token, outcome }))
    }
}

/// An access that has finished.
#[derive(Debug)]
pub(in crate::rdma) enum Ended {
    Access(Finished),
    Read(PayloadRead),
}

/// The memory of a host as transports access it.
pub(in crate::rdma) struct HostMemory<'a> {
    pub(super) registry: &'a Registry,
    pub(super) slow: &'a mut Slow,
    pub(super) now: Instant,
}

impl HostMemory<'_> {
    fn takes_time(&mut self) -> bool {
        let Slow { share, random, .. } = &mut *self.slow;
        random.as_mut().is_some_and(|random| random.below(1000) < *share)
    }

    fn begin<T>(&mut self, by: Accessor, access: Access) -> Begun<T> {
        let slow = &mut *self.slow;
        slow.begun += 1;
        let (token, longest) = (Token(slow.begun), slow.longest.as_nanos() as u64);
        let nanos = slow.random.as_mut().map_or(0, |random| 1 + random.below(longest));
        let due = self.now + Duration::from_nanos(nanos);
        slow.open.push(Open { due, by, token, access });
        Begun::Pending(token)
    }
}

impl Memory for HostMemory<'_> {
    const CAN_PEND: bool = true;

    fn begin_write_local(
        &mut self,
        by: Accessor,
        sge: Sge,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return self.registry.write_local(by.pd, sge, data).map(Begun::Done);
        }
        let written = Sge { length: data.len() as u32, ..sge };
        self.registry.check_local(by.pd, written, true)?;
        Ok(self.begin(by, Access::Local(sge, data.into())))
    }

    fn begin_write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return self.registry.write_remote(by, range, data).map(Begun::Done);
        }
        self.registry.check_remote(by, range, AccessFlags::REMOTE_WRITE)?;
        Ok(self.begin(by, Access::Remote(range, data.into())))
    }

    fn begin_atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<Begun<u64>, Denied> {
        if !self.takes_time() || range.address.0 % 8 != 0 {
            return self.registry.atomic(by, range, operation).map(Begun::Done);
        }
        let access = match operation {
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            Atomic::CompareSwap { .. } | Atomic::FetchAdd(_) => AccessFlags::REMOTE_ATOMIC,
        };
        self.registry.check_remote(by, RemoteRange { length: 8, ..range }, access)?;
        Ok(self.begin(by, Access::Atomic(range, operation)))
    }

    fn begin_read_local(
        &mut self,
        by: Accessor,
        sg_list: &SgList,
        offset: u64,
        length: u32,
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return Ok(Begun::Done(()));
        }
        let sges: Vec<_> = sg_list.range(offset, length.into()).collect();
        sges.iter().try_for_each(|sge| self.registry.check_local(by.pd, *sge, false))?;
        Ok(self.begin(by, Access::ReadLocal(sges)))
    }

    fn begin_read_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        _duplicate: bool,
    ) -> Result<Begun<()>, Denied> {
        if !self.takes_time() {
            return Ok(Begun::Done(()));
        }
        self.registry.check_remote(by, range, AccessFlags::REMOTE_READ)?;
        Ok(self.begin(by, Access::ReadRemote(range)))
    }

    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        self.registry.check_local(pd, sge, write)
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        self.registry.read_local(pd, sge, out)
    }

    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        self.registry.write_local(pd, sge, data)
    }

    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.registry.check_remote(by, range, access)
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        self.registry.check_remote_key(by, key, access)
    }

    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        self.registry.read_remote(by, range, out)
    }

    fn write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<(), Denied> {
        self.registry.write_remote(by, range, data)
    }

    fn atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<u64, Denied> {
        self.registry.atomic(by, range, operation)
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        self.registry.invalidate(by, key)
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.registry.bind(by, bind)
    }

    fn explain(&self, by: Accessor, access: &RefusedAccess, denied: Denied) -> KeyFault {
        self.registry.explain(by, access, denied)
    }
}

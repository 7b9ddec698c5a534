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
use ferroce_sync::MutexGuard;
use ferroce_wire::number::{Qpn, RKey};

use crate::random::Random;

/// The unfinished accesses of a host.
#[derive(Debug, Default)]
pub(in crate::rdma) struct Slow {
    /// How many of 1,000 accesses take time, and how long at most.
    share: u64,
    longest: Duration,
    /// Draws which, and how long; `None` for memory of which none does.
    random: Option<Random>,
    /// Some of them fail, and all that fail are kept.
    fails: bool,
    failed: Vec<Failure>,
    /// How many have begun.
    pub(super) begun: u64,
    /// How many of these read the payload of a request.
    #[cfg(test)]
    pub(super) payloads: u64,
    open: Vec<Open>,
}

/// An access that failed after it had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Failure {
    pub(in crate::rdma) queue_pair: Qpn,
    pub(in crate::rdma) token: Token,
    pub(in crate::rdma) kind: FailureKind,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum FailureKind {
    /// The payload of a request.
    ReadLocal,
    /// The payload of a READ response.
    ReadRemote,
    /// A write to the buffer of a receive request or a READ.
    WriteLocal,
    /// A write or atomic operation of the peer.
    WriteRemote,
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

    /// Lets one access in 200 fail, as if the program had unmapped the memory for a moment.
    pub(super) fn fail_some(&mut self) {
        self.fails = true;
    }

    /// Takes the failures of a QP.
    pub(super) fn take_failures(&mut self, queue_pair: Qpn) -> Vec<Failure> {
        let (of_it, others) = self.failed.drain(..).partition(|one| one.queue_pair == queue_pair);
        self.failed = others;
        of_it
    }

    /// The QPs and keys of all unfinished accesses.
    pub(super) fn open(&self) -> impl Iterator<Item = (Qpn, u32)> {
        self.open.iter().flat_map(|open| {
            let keys: Vec<u32> = match &open.access {
                Access::ReadLocal(sges) => sges.iter().map(|sge| sge.key.0).collect(),
                Access::Local(sge, _) => vec![sge.key.0],
                Access::ReadRemote(range) | Access::Remote(range, _) | Access::Atomic(range, _) => {
                    vec![range.key.0]
                }
            };
            keys.into_iter().map(|key| (open.by.queue_pair, key))
        })
    }

    /// Number of unfinished accesses of a QP.
    pub(super) fn unfinished(&self, queue_pair: Qpn) -> usize {
        self.open.iter().filter(|open| open.by.queue_pair == queue_pair).count()
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
        let kind = match &access {
            Access::ReadLocal(_) => FailureKind::ReadLocal,
            Access::ReadRemote(_) => FailureKind::ReadRemote,
            Access::Local(..) => FailureKind::WriteLocal,
            Access::Remote(..) | Access::Atomic(..) => FailureKind::WriteRemote,
        };
        let fails = self.fails && self.random.as_mut().is_some_and(|random| random.below(200) == 0);
        let failed = &mut self.failed;
        let mut fail = || failed.push(Failure { queue_pair, token, kind });
        let mut read = |payload: Option<Vec<u8>>| {
            if payload.is_none() {
                fail();
            }
            let payload = payload.map(Staged::new);
            Some(Ended::Read(PayloadRead { queue_pair, token, payload }))
        };
        let result = match access {
            Access::ReadLocal(_) | Access::ReadRemote(_) if fails => return read(None),
            _ if fails => Err(Denied::Key),
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
        if result.is_err() {
            fail();
        }
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
    pub(super) slow: MutexGuard<'a, Slow>,
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
        #[cfg(test)]
        {
            self.slow.payloads += 1;
        }
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

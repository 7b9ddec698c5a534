//! The transfer by RDMA WRITE.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ferroce::cm::{self, EventChannel};
use ferroce::{
    AccessFlags, Buffer, CaptureStatus, Context, Data, MemoryRegion, Operation, Options, clock,
};

use super::plan::Plan;
use super::transfer::Transfer;
use crate::session::end::{End, LOCAL, Parts};
use crate::session::events::{Caller, Haste, parameters};
use crate::session::failure::Failure;
use crate::session::protocol::MemoryGrant;

/// "FeC" and the version: the start of the private data of a request, before the token.
const MAGIC: u32 = 0x4665_4301;

/// What the client may do with the server's memory.
const REMOTE: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);

/// The counters of requesters that stand for a retransmission.
const RECOVERIES: [&str; 4] =
    ["packet_seq_err", "implied_nak_seq_err", "rnr_nak_retry_err", "local_ack_timeout_err"];

fn private_data(token: u64) -> Vec<u8> {
    [&MAGIC.to_be_bytes()[..], &token.to_be_bytes()].concat()
}

/// The token of a request; `None` if it is not one of ours.
pub(super) fn token(private_data: &[u8]) -> Option<u64> {
    let (magic, rest) = private_data.split_first_chunk()?;
    let token = rest.first_chunk()?;
    (u32::from_be_bytes(*magic) == MAGIC).then_some(u64::from_be_bytes(*token))
}

/// The sender's connection.
#[derive(Debug)]
pub(super) struct RdmaSender {
    caller: Caller,
    end: End,
    region: MemoryRegion,
    grant: MemoryGrant,
    mtu: u64,
}

impl RdmaSender {
    /// Connects to the session with this token, which sends the address and rkey of its memory.
    pub(super) fn open(
        server: SocketAddr,
        token: u64,
        buffer: &Arc<Buffer>,
        options: Options,
    ) -> Result<Self, Failure> {
        let caller = Caller::new(EventChannel::with_options(options)?, server)?;
        caller.resolve_address()?;
        caller.resolve_route()?;
        let nowhere = || Failure::Other("the address has no device".into());
        let parts = Parts::new(&caller.id.context().ok_or_else(nowhere)?)?;
        let region = parts.pd.register_buffer(buffer, LOCAL)?;
        let queue_pair = caller.id.create_queue_pair(&parts.pd, &parts.options())?;
        let end = parts.with(queue_pair);
        let established = caller.connect(&parameters(private_data(token), Haste::Hasty))?;
        let grant =
            MemoryGrant::parse(&established.private_data).ok_or(Failure::IncompatiblePeer)?;
        let mtu = caller.id.path_mtu().bytes().unwrap_or(0) as u64;
        Ok(Self { caller, end, region, grant, mtu })
    }

    /// Whether packets go through shared memory rather than sockets.
    pub(super) fn shares_memory(&self) -> bool {
        self.end.queue_pair.shares_memory()
    }

    fn context(&self) -> &Context {
        self.end.queue_pair.context()
    }

    /// The transport counters, by their names in Linux `hw_counters`.
    pub(super) fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.context().statistics().hw_counters().collect()
    }

    /// Sends the buffer, and waits for all completions.
    pub(super) fn transfer(
        &self,
        plan: &Plan,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Transfer, Failure> {
        let before = self.context().statistics().packets_out;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        starts.reserve(plan.chunks() as usize);
        ends.reserve(plan.chunks() as usize);
        let mut complete = |ends: &mut Vec<u64>| -> Result<(), Failure> {
            // Completions of one QP come in the order of its requests (IBA 10.8.3.3).
            self.end.completed()?;
            progress(plan.range(ends.len() as u64).end);
            ends.push(clock::now());
            Ok(())
        };
        for chunk in 0..plan.chunks() {
            if starts.len() - ends.len() == plan.depth as usize {
                complete(&mut ends)?;
            }
            starts.push(clock::now());
            self.post(plan, chunk)?;
        }
        while ends.len() < starts.len() {
            complete(&mut ends)?;
        }
        let packets = self.context().statistics().packets_out - before;
        Ok(Transfer::new(&starts, &ends, packets.saturating_sub(plan.packets(self.mtu))))
    }

    fn post(&self, plan: &Plan, chunk: u64) -> Result<(), Failure> {
        let range = plan.range(chunk);
        // The plan limits a chunk to 2 GiB.
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        let data = Data::SgList(self.region.sge(range.start, length).into());
        let write = Operation::Write { remote: self.grant.at(range.start), immediate: None };
        Ok(self.end.queue_pair.post_send(self.end.request(write, data))?)
    }

    /// Disconnects, and finishes the capture, if there is one.
    pub(super) fn close(self) -> Result<Option<CaptureStatus>, Failure> {
        let context = self.context().clone();
        self.caller.disconnect()?;
        drop(self);
        Ok(context.flush_capture())
    }
}

/// The retransmissions that counters stand for: how often the sender had to go back.
pub(super) fn recoveries(counters: &BTreeMap<&'static str, u64>) -> u64 {
    RECOVERIES.iter().filter_map(|name| counters.get(name)).sum()
}

/// The receiver's connection. It only has to exist.
#[derive(Debug)]
pub(super) struct RdmaReceiver {
    _request: Box<cm::Request>,
    _end: End,
    _region: MemoryRegion,
}

impl RdmaReceiver {
    /// Accepts a request, and sends the address and rkey of the buffer.
    pub(super) fn accept(request: Box<cm::Request>, buffer: &Arc<Buffer>) -> Result<Self, Failure> {
        let closed = || Failure::Other("the device is closed".into());
        let parts = Parts::new(&request.id.context().ok_or_else(closed)?)?;
        let region = parts.pd.register_buffer(buffer, REMOTE)?;
        let queue_pair = request.id.create_queue_pair(&parts.pd, &parts.options())?;
        let grant = MemoryGrant { remote: region.remote(0) };
        request.id.accept(&parameters(grant.emit(), Haste::Hasty))?;
        Ok(Self { _request: request, _end: parts.with(queue_pair), _region: region })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_from_private_data() {
        let bytes = private_data(0x0123_4567_89ab_cdef);
        assert_eq!(token(&bytes), Some(0x0123_4567_89ab_cdef));
        // The connection manager pads private data.
        assert_eq!(token(&[&bytes[..], &[0; 44]].concat()), Some(0x0123_4567_89ab_cdef));
        for foreign in [&[][..], &bytes[..11], &[0; 56]] {
            assert_eq!(token(foreign), None);
        }
    }
}

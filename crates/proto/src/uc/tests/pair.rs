//! Two connected QPs; the test transfers the packets.

use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{PKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::packet::Packet;

use crate::memory::{AccessFlags, Finished};
use crate::receive::ReceiveQueue;
use crate::testing::{BASE, DOMAIN, Ended, KEY, Random, TestMemory, sge};
use crate::transmit::EncodeError;
use crate::uc::{Config, QueuePair};
use crate::work::{
    Completion, Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, SgList, Status, WorkId,
};

pub(super) struct Host {
    pub(super) qp: QueuePair,
    pub(super) receives: ReceiveQueue,
    pub(super) memory: TestMemory,
}

/// The sender and the receiver.
pub(super) struct Pair {
    pub(super) from: Host,
    pub(super) to: Host,
}

impl Pair {
    pub(super) fn new(seed: u64, mtu: u16) -> Self {
        Self::with(seed, mtu, |_| ())
    }

    pub(super) fn with(seed: u64, mtu: u16, edit: impl Fn(&mut Config)) -> Self {
        let mut random = Random(seed);
        let psns = [0, 1].map(|_| Psn::new(random.next() as u32));
        let [from, to] = [0, 1].map(|side| {
            let mut config = Config {
                number: Qpn(0x22),
                destination: Qpn(0x11),
                partition: PKey(0xffff),
                pd: DOMAIN,
                mtu,
                send_psn: psns[side],
                receive_psn: psns[1 - side],
                access: AccessFlags::REMOTE_WRITE,
                send_capacity: 64,
            };
            edit(&mut config);
            Host {
                qp: QueuePair::new(config),
                receives: ReceiveQueue::new(256),
                memory: TestMemory::new(&mut random),
            }
        });
        Self { from, to }
    }

    pub(super) fn post_receive(&mut self, id: u64, offset: u64, length: u32) {
        let request = ReceiveRequest { id: WorkId(id), sg_list: SgList::from(sge(offset, length)) };
        self.to.receives.post(request).unwrap();
    }

    pub(super) fn post(&mut self, request: SendRequest) {
        self.from.qp.post_send(request).unwrap();
    }

    /// All packets of the sender, each with four bytes for the ICRC.
    pub(super) fn packets(&mut self) -> Vec<Vec<u8>> {
        let (mut packets, mut buffer) = (Vec::new(), vec![0; 8192]);
        while let Some(transmit) = self.from.qp.poll_transmit(&mut self.from.memory) {
            let psn = transmit.bth.psn;
            match transmit.encode(&self.from.memory, &mut buffer) {
                Ok(length) => packets.push([&buffer[..length], &[0; 4]].concat()),
                Err(EncodeError::Local(_)) => {
                    self.from.qp.handle_denied(psn, crate::testing::DENIED)
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        packets
    }

    /// As [`Pair::packets`], with reads of payload that finish in any order.
    pub(super) fn packets_in_time(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut packets = self.packets();
        while self.from.qp.unfinished() > 0 {
            let open = self.from.memory.pending.open.len();
            assert_eq!(open, self.from.qp.unfinished());
            let ended = self.from.memory.finish(random.below(open as u64) as usize);
            let Ended::Read(read) = ended else { panic!("{ended:?}") };
            assert!(self.from.qp.handle_read(read.token, read.payload));
            packets.extend(self.packets());
        }
        packets
    }

    pub(super) fn deliver(&mut self, packets: &[Vec<u8>]) {
        for bytes in packets {
            let packet = Packet::parse(bytes).expect("what we send can be read");
            let Host { qp, receives, memory } = &mut self.to;
            qp.handle_packet(&packet, receives, memory);
            assert!(qp.poll_transmit(memory).is_none(), "nothing is ever answered");
        }
    }

    /// Finishes an access of the receiver to memory, and handles the packets that waited for it.
    pub(super) fn finish(&mut self, index: usize) {
        let Ended::Access(finished) = self.to.memory.finish(index) else { panic!("a read") };
        self.handle_finished(&finished);
    }

    pub(super) fn handle_finished(&mut self, finished: &Finished) {
        let Host { qp, receives, memory } = &mut self.to;
        assert!(qp.handle_finished(finished.token, finished.outcome, Some(receives)));
        while let Some(held) = qp.take_held() {
            qp.handle_packet(&held.packet(), receives, memory);
        }
    }

    /// Number of unfinished accesses of the receiver.
    pub(super) fn open(&self) -> usize {
        assert_eq!(self.to.memory.pending.open.len(), self.to.qp.unfinished());
        self.to.qp.unfinished()
    }

    pub(super) fn sent(&mut self) -> Vec<(u64, Status)> {
        let next = || self.from.qp.poll_send_completion();
        core::iter::from_fn(next).map(|one| (one.id.0, one.status)).collect()
    }

    pub(super) fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.to.qp.poll_receive_completion()).collect()
    }

    /// Receive completions, summarized.
    pub(super) fn received(&mut self) -> Vec<(u64, Status, u32)> {
        self.completions().iter().map(|one| (one.id.0, one.status, one.length)).collect()
    }
}

pub(super) fn remote(offset: u64) -> RemoteAddress {
    RemoteAddress { address: VirtualAddress(BASE + offset), key: RKey(KEY) }
}

pub(super) fn request(id: u64, operation: Operation, from: u64, length: u32) -> SendRequest {
    SendRequest {
        id: WorkId(id),
        operation,
        data: Data::SgList(SgList::from(sge(from, length))),
        signaled: true,
        solicited: false,
        fence: false,
        receive_queue: None,
    }
}

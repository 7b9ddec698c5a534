//! A host with one UD QP; the test transfers the packets.

use std::net::Ipv4Addr;
use std::vec;
use std::vec::Vec;

use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::packet::Packet;

use crate::receive::ReceiveQueue;
use crate::testing::{DOMAIN, Ended, Random, TestMemory, sge};
use crate::transmit::EncodeError;
use crate::ud::{AddressHandle, Config, Envelope, QueuePair, SendRequest};
use crate::work::{Completion, Data, ReceiveRequest, SgList, Status, WorkId};

/// In these tests the route to a host is its number.
pub(super) type Route = u8;

pub(super) const KEY: QKey = QKey(0x1111_1111);

pub(super) fn number(host: u8) -> Qpn {
    Qpn(0x100 + u32::from(host))
}

pub(super) fn group(number: u8) -> Gid {
    Gid::from_ip(Ipv4Addr::new(239, 1, 1, number).into())
}

pub(super) struct Peer {
    pub(super) qp: QueuePair<Route>,
    pub(super) receives: ReceiveQueue,
    pub(super) memory: TestMemory,
}

impl Peer {
    pub(super) fn new(host: u8, mtu: u16) -> Self {
        Self::with(host, mtu, |_| ())
    }

    pub(super) fn with(host: u8, mtu: u16, edit: impl Fn(&mut Config)) -> Self {
        let mut random = Random(u64::from(host));
        let mut config = Config {
            number: number(host),
            queue_key: KEY,
            partition: PKey(0xffff),
            pd: DOMAIN,
            mtu,
            send_psn: Psn(0xff_ffff),
            send_capacity: 64,
            group_capacity: 2,
        };
        edit(&mut config);
        let memory = TestMemory::new(&mut random);
        Self { qp: QueuePair::new(config), receives: ReceiveQueue::new(256), memory }
    }

    pub(super) fn post_receive(&mut self, id: u64, offset: u64, length: u32) {
        let request = ReceiveRequest { id: WorkId(id), sg_list: SgList::from(sge(offset, length)) };
        self.receives.post(request).unwrap();
    }

    /// All packets to send, each with four bytes for the ICRC, with their routes.
    pub(super) fn packets(&mut self) -> Vec<(Route, Vec<u8>)> {
        let (mut packets, mut buffer) = (Vec::new(), vec![0; 8192]);
        while let Some(datagram) = self.qp.poll_transmit(&mut self.memory) {
            let (route, psn) = (datagram.route, datagram.transmit.bth.psn);
            match datagram.transmit.encode(&self.memory, &mut buffer) {
                Ok(length) => packets.push((route, [&buffer[..length], &[0; 4]].concat())),
                Err(EncodeError::Local(_)) => self.qp.handle_denied(psn, crate::testing::DENIED),
                Err(other) => panic!("{other:?}"),
            }
        }
        packets
    }

    /// As [`Peer::packets`], with reads of payload that finish in any order.
    pub(super) fn packets_in_time(&mut self, random: &mut Random) -> Vec<(Route, Vec<u8>)> {
        let mut packets = self.packets();
        while self.qp.unfinished() > 0 {
            let open = self.memory.pending.open.len();
            assert_eq!(open, self.qp.unfinished());
            let ended = self.memory.finish(random.below(open as u64) as usize);
            let Ended::Read(read) = ended else { panic!("{ended:?}") };
            assert!(self.qp.handle_read(read.token, read.payload));
            packets.extend(self.packets());
        }
        packets
    }

    pub(super) fn handle(&mut self, bytes: &[u8], envelope: &Envelope) {
        let packet = Packet::parse(bytes).expect("what we send can be read");
        self.qp.handle_packet(&packet, envelope, &mut self.receives, &mut self.memory);
    }

    pub(super) fn sent(&mut self) -> Vec<(u64, Status)> {
        let next = || self.qp.poll_send_completion();
        core::iter::from_fn(next).map(|one| (one.id.0, one.status)).collect()
    }

    pub(super) fn received(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.qp.poll_receive_completion()).collect()
    }
}

pub(super) fn send(id: u64, to: u8, from: u64, length: u32) -> SendRequest<Route> {
    SendRequest {
        id: WorkId(id),
        address: AddressHandle { route: to, destination: number(to), queue_key: KEY },
        immediate: None,
        data: Data::SgList(SgList::from(sge(from, length))),
        signaled: true,
        solicited: false,
    }
}

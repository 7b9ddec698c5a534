//! Messages of the maximum size without real memory: tests only the accounting, to the last packet.

use std::vec;

use ferroce_wire::number::{RKey, VirtualAddress};
use ferroce_wire::packet::Packet;

use super::pair::{config, sge};
use crate::budget::Budget;
use crate::memory::{AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge};
use crate::rc::QueuePair;
use crate::receive::ReceiveQueue;
use crate::time::Instant;
use crate::transmit::Transmit;
use crate::work::{
    Data, MAX_MESSAGE, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId,
};

/// Allows every access and counts written bytes, which must be contiguous.
#[derive(Default)]
struct CountingMemory {
    local: u64,
    remote: u64,
}

const START: u64 = 0x1_0000_0000;

impl CountingMemory {
    fn next(count: &mut u64, address: VirtualAddress, start: u64, length: usize) {
        assert_eq!(address.0, start + *count, "bytes are written in order, and once");
        *count += length as u64;
    }
}

impl Memory for CountingMemory {
    fn check_local(&self, _: PdId, _: Sge, _: bool) -> Result<(), Denied> {
        Ok(())
    }

    fn read_local(&self, _: PdId, _: Sge, _: &mut [u8]) -> Result<(), Denied> {
        Ok(())
    }

    fn write_local(&mut self, _: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        Self::next(&mut self.local, sge.address, super::pair::BASE, data.len());
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

    fn write_remote(&mut self, _: Accessor, range: RemoteRange, data: &[u8]) -> Result<(), Denied> {
        Self::next(&mut self.remote, range.address, START, data.len());
        Ok(())
    }

    fn atomic(&mut self, _: Accessor, _: RemoteRange, _: Atomic) -> Result<u64, Denied> {
        Err(Denied::Access)
    }

    fn invalidate(&mut self, _: Accessor, _: RKey) -> Result<(), Denied> {
        Err(Denied::Access)
    }

    fn bind(&mut self, _: Accessor, _: &Bind) -> Result<(), Denied> {
        Ok(())
    }
}

fn packet<'a>(transmit: &Transmit<'_>, zeroes: &'a [u8]) -> Packet<'a> {
    let length = transmit.payload.len();
    Packet {
        bth: transmit.bth,
        extensions: transmit.extensions,
        payload: &zeroes[..length],
        payload_len: length,
        pad: &zeroes[..usize::from(transmit.bth.pad)],
        icrc: Some([0; 4]),
    }
}

/// Runs one request of `length` bytes; returns the number of packets in each direction.
fn run(operation: Operation, length: u32, mtu: u16) -> [u64; 2] {
    let mut ends =
        [(5, 9), (9, 5)].map(|(send, receive)| QueuePair::new(config(mtu, send, receive)));
    let mut memories = [CountingMemory::default(), CountingMemory::default()];
    let mut receives = ReceiveQueue::new(1);
    let zeroes = vec![0; usize::from(mtu)];
    let request = SendRequest {
        id: WorkId(1),
        operation,
        data: Data::SgList(SgList::from(sge(0, length))),
        signaled: true,
        solicited: false,
        fence: false,
        receive_queue: None,
    };
    ends[0].post_send(request).unwrap();
    let mut packets = [0; 2];
    loop {
        let before = packets;
        for side in 0..2 {
            let [one, other] = &mut ends;
            let (from, to) = if side == 0 { (one, other) } else { (other, one) };
            while let Some(transmit) =
                from.poll_transmit(Instant::ZERO, &mut { Budget::UNLIMITED }, &mut memories[side])
            {
                let packet = packet(&transmit, &zeroes);
                let memory = &mut memories[1 - side];
                to.handle_packet(Instant::ZERO, &packet, false, Some(&mut receives), memory);
                packets[side] += 1;
            }
        }
        if packets == before {
            break;
        }
    }
    let completion = ends[0].poll_send_completion().expect("it ends");
    assert_eq!((completion.status, completion.length), (Status::Success, length));
    let moved = memories[0].local + memories[1].remote;
    assert_eq!(moved, u64::from(length));
    packets
}

const REMOTE: RemoteAddress = RemoteAddress { address: VirtualAddress(START), key: RKey(1) };

#[test]
fn writes_two_gibibytes() {
    let packets = run(Operation::Write { remote: REMOTE, immediate: None }, MAX_MESSAGE, 4096);
    assert_eq!(packets[0], 524_288);
}

#[test]
fn reads_two_gibibytes() {
    // In chunks of 128 KiB, including the overhead of each packet: 26 packets.
    assert_eq!(run(Operation::Read { remote: REMOTE }, MAX_MESSAGE, 4096), [20_165, 524_288]);
}

#[test]
fn one_message_spans_half_the_psn_space() {
    assert_eq!(run(Operation::Read { remote: REMOTE }, MAX_MESSAGE, 256), [1 << 18, 1 << 23]);
}

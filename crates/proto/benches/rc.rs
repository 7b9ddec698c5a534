//! Cost of the RC state machines: requester and responder without a network and without memory. Bytes are counted,
//! not copied.
//!
//! `cargo bench -p ferroce-proto --bench rc`

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use ferroce_proto::budget::Budget;
use ferroce_proto::congestion::{Congestion, cost};
use ferroce_proto::memory::{AccessFlags, NoContents, PdId, Sge};
use ferroce_proto::rc::{Config, QueuePair, Role};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::Transmit;
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, WorkId};
use ferroce_wire::number::{LKey, PKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::RnrTimer;

fn main() {
    println!("size of a queue pair: {} bytes", size_of::<QueuePair>());
    divan::main();
}

struct Pair {
    a: QueuePair,
    b: QueuePair,
    receives: ReceiveQueue,
    zeroes: Vec<u8>,
}

impl Pair {
    fn new(mtu: u16) -> Self {
        let config = Config {
            role: Role::Both,
            number: Qpn(7),
            destination: Qpn(7),
            partition: PKey(0xffff),
            pd: PdId(0),
            mtu,
            send_psn: Psn(0),
            receive_psn: Psn(0),
            timeout: Some(std::time::Duration::from_millis(67)),
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::from_code(12).unwrap(),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ,
            congestion: Congestion::Window(128 * cost(usize::from(mtu), 1)),
            keepalive: None,
            send_capacity: 1024,
        };
        Self {
            a: QueuePair::new(config.clone()),
            b: QueuePair::new(config),
            receives: ReceiveQueue::new(16),
            zeroes: vec![0; 4096],
        }
    }

    fn post(&mut self, operation: Operation, length: u32) {
        let sge = Sge { key: LKey(1), address: VirtualAddress(0), length };
        let request = SendRequest {
            id: WorkId(0),
            operation,
            data: Data::SgList(SgList::from(sge)),
            signaled: true,
            solicited: false,
            fence: false,
            receive_queue: None,
        };
        self.a.post_send(request).unwrap();
    }

    /// Runs until nothing is left to do; returns the number of completed requests.
    fn run(&mut self) -> usize {
        let now = Instant::ZERO;
        let (mut done, mut moved) = (0, true);
        while std::mem::take(&mut moved) {
            while let Some(transmit) =
                self.a.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut NoContents)
            {
                let packet = packet(&transmit, &self.zeroes);
                self.b.handle_packet(
                    now,
                    &packet,
                    false,
                    Some(&mut self.receives),
                    &mut NoContents,
                );
                moved = true;
            }
            while let Some(transmit) =
                self.b.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut NoContents)
            {
                let packet = packet(&transmit, &self.zeroes);
                self.a.handle_packet(
                    now,
                    &packet,
                    false,
                    Some(&mut self.receives),
                    &mut NoContents,
                );
                moved = true;
            }
            while self.a.poll_send_completion().is_some() {
                done += 1;
            }
        }
        done
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

const REMOTE: RemoteAddress = RemoteAddress { address: VirtualAddress(0), key: RKey(1) };

/// 64-byte WRITEs, 64 at a time.
#[divan::bench]
fn small_writes(bencher: Bencher<'_, '_>) {
    let mut pair = Pair::new(4096);
    bencher.counter(ItemsCount::new(64usize)).bench_local(|| {
        (0..64).for_each(|_| pair.post(Operation::Write { remote: REMOTE, immediate: None }, 64));
        assert_eq!(pair.run(), 64);
    });
}

/// One WRITE of 4 MiB in 4 KiB packets.
#[divan::bench]
fn bulk_write(bencher: Bencher<'_, '_>) {
    let mut pair = Pair::new(4096);
    bencher.counter(BytesCount::new(4usize << 20)).bench_local(|| {
        pair.post(Operation::Write { remote: REMOTE, immediate: None }, 4 << 20);
        assert_eq!(pair.run(), 1);
    });
}

/// One READ of 4 MiB in 4 KiB packets.
#[divan::bench]
fn bulk_read(bencher: Bencher<'_, '_>) {
    let mut pair = Pair::new(4096);
    bencher.counter(BytesCount::new(4usize << 20)).bench_local(|| {
        pair.post(Operation::Read { remote: REMOTE }, 4 << 20);
        assert_eq!(pair.run(), 1);
    });
}

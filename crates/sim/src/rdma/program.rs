//! A random program of work requests on one connection.

use ferroce_proto::memory::LocalSpan;
use ferroce_proto::work::{
    Data, Operation, ReceiveRequest, RemoteAddress, SendRequest, Spans, WorkId,
};
use ferroce_wire::number::{Immediate, LKey, RKey, VirtualAddress};

use super::Workload;
use super::host::RdmaHost;
use super::memory::{BASE, key};
use crate::Random;

/// What a request must have done if it succeeded. Offsets are in the connection's region.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Bytes of ours are in the peer's memory.
    Written { from: usize, to: usize, length: usize },
    /// Bytes of the peer's are in our memory.
    Read { from: usize, to: usize, length: usize },
    /// The peer has received a message into this part of its memory.
    Received { from: usize, to: usize, length: usize, immediate: Option<Immediate> },
    /// The peer's counter has grown by one, and its former value is in our memory.
    Counted { to: usize },
}

/// The program, with what memory was before it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) number: usize,
    /// The host that posted it.
    pub(super) active: usize,
    pub(super) effects: Vec<Effect>,
    /// The regions as they were: of the active side, and of the passive one.
    pub(super) before: [Vec<u8>; 2],
    /// Where the counter is, in the passive side's region.
    pub(super) counter: usize,
}

impl Program {
    pub(super) fn len(&self) -> usize {
        self.effects.len()
    }

    /// Makes memory for a connection on both hosts and posts a program on one of them.
    pub(super) fn post(
        number: usize,
        workload: &Workload,
        hosts: &mut [RdmaHost; 2],
        random: &mut Random,
    ) -> Self {
        let active = random.below(2) as usize;
        let room = (workload.requests as usize) * (workload.largest as usize + 8);
        // What is read from, on either side; then what each kind of request writes to, apart from each other.
        let [source, written, read, received, counter] = [0, 1, 2, 3, 4].map(|part| part * room);
        for host in hosts.iter_mut() {
            let mut region = vec![0; 4 * room + 4096];
            random.fill(&mut region[..room]);
            host.memory.regions.push(region);
        }
        let before = [active, 1 - active].map(|side| hosts[side].memory.regions[number].clone());
        let counter = counter.next_multiple_of(8);
        let local = |at: usize, length: usize| LocalSpan {
            key: LKey(key(number)),
            address: VirtualAddress(BASE + at as u64),
            length: length as u32,
        };
        let remote = |at: usize| RemoteAddress {
            address: VirtualAddress(BASE + at as u64),
            key: RKey(key(number)),
        };
        let mut effects = Vec::new();
        for id in 0..workload.requests as usize {
            let length = random.below(u64::from(workload.largest) + 1) as usize;
            let from = source + random.below((room - length) as u64 + 1) as usize;
            let own = id * (workload.largest as usize + 8);
            let immediate = (random.below(3) == 0).then(|| Immediate(random.next_u64() as u32));
            let (operation, span, effect) = match random.below(5) {
                0 | 1 => {
                    let to = written + own;
                    let operation = Operation::Write { remote: remote(to), immediate: None };
                    (operation, local(from, length), Effect::Written { from, to, length })
                }
                2 => {
                    let to = read + own;
                    let operation = Operation::Read { remote: remote(from) };
                    (operation, local(to, length), Effect::Read { from, to, length })
                }
                3 => {
                    let to = received + own;
                    let spans = Spans::from(local(to, length));
                    let request = ReceiveRequest { id: WorkId(id as u64), spans };
                    // The queue holds as many as there are requests.
                    let _ = hosts[1 - active].ends[number].receives.post(request);
                    let operation = Operation::Send { immediate, invalidate: None };
                    let effect = Effect::Received { from, to, length, immediate };
                    (operation, local(from, length), effect)
                }
                _ => {
                    let operation = Operation::FetchAdd { remote: remote(counter), add: 1 };
                    let to = read + own;
                    (operation, local(to, 8), Effect::Counted { to })
                }
            };
            let request = SendRequest {
                id: WorkId(id as u64),
                operation,
                data: Data::Spans(Spans::from(span)),
                signaled: true,
                solicited: false,
                fence: random.below(8) == 0,
            };
            // Capacity is what is posted, and lengths are within what is allowed.
            let _ = hosts[active].ends[number].qp.post_send(request);
            effects.push(effect);
        }
        Self { number, active, effects, before, counter }
    }
}

//! Controls `tests/peer/guest/puppet.c` in the machine: a queue pair of `rdma_rxe` that executes our commands.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use ferroce::*;

use super::end::{ALL, End, Partner};
use super::pingpong::reach;

/// The port on which it listens.
pub(crate) const PORT: u16 = 7500;
/// The size of its remotely accessible memory.
pub(crate) const ROOM: usize = 2 << 20;
/// Both sides' first PSN: it wraps after six packets.
pub(crate) const FIRST_PSN: Psn = Psn(0xff_fffa);

/// `enum ibv_wr_opcode`.
pub(crate) const WRITE: u8 = 0;
pub(crate) const WRITE_IMMEDIATE: u8 = 1;
pub(crate) const SEND: u8 = 2;
pub(crate) const SEND_IMMEDIATE: u8 = 3;
pub(crate) const READ: u8 = 4;
pub(crate) const COMPARE_SWAP: u8 = 5;
pub(crate) const FETCH_ADD: u8 = 6;

/// The values of `enum ibv_wc_status` for our [`Status`].
pub(crate) const STATUSES: [(u8, Status); 9] = [
    (0, Status::Success),
    (1, Status::LocalLength),
    (2, Status::LocalOperation),
    (5, Status::Flushed),
    (9, Status::RemoteInvalidRequest),
    (10, Status::RemoteAccess),
    (11, Status::RemoteOperation),
    (12, Status::RetryExceeded),
    (13, Status::RnrRetryExceeded),
];

/// A completion in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub status: Status,
    pub length: usize,
    pub immediate: u32,
}

/// A request in the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Post {
    pub opcode: u8,
    pub offset: usize,
    pub length: usize,
    pub remote: RemoteAddress,
    /// Immediate data, the compare value, or the value to add.
    pub first: u64,
    /// The swap value.
    pub second: u64,
}

pub(crate) struct Puppet {
    stream: BufReader<TcpStream>,
}

/// Two connected queue pairs, and the peer's memory.
pub(crate) struct Pair {
    pub ours: QueuePair,
    pub theirs: RemoteAddress,
}

/// The parameters of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub service: ServiceType,
    /// The access flags of the peer's queue pair and memory, and of our queue pair.
    pub their_pair: AccessFlags,
    pub their_memory: AccessFlags,
    pub our_pair: AccessFlags,
    /// The RNR retry count of both sides; 7 is unlimited.
    pub rnr_retry: u8,
}

impl Default for Wish {
    fn default() -> Self {
        let service = ServiceType::ReliableConnection;
        Self { service, their_pair: ALL, their_memory: ALL, our_pair: ALL, rnr_retry: 7 }
    }
}

impl Puppet {
    /// Connects to it, as soon as it listens.
    pub(crate) fn find() -> Self {
        let stream = reach(PORT);
        stream.set_nodelay(true).expect("a connection");
        Self { stream: BufReader::new(stream) }
    }

    fn ask(&mut self, line: &str) -> String {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).expect("a listener");
        let mut answer = String::new();
        self.stream.read_line(&mut answer).expect("an answer");
        answer.trim_end().to_owned()
    }

    fn order(&mut self, line: &str) {
        assert_eq!(self.ask(line), "ok", "{line}");
    }

    /// Creates and connects new queue pairs on both sides.
    pub(crate) fn pair(&mut self, end: &End, wish: Wish) -> Pair {
        let service = match wish.service {
            ServiceType::UnreliableConnection => 3,
            _ => 2,
        };
        let line =
            format!("pair {service} {} {}", wish.their_pair.bits(), wish.their_memory.bits());
        let answer = self.ask(&line);
        let words: Vec<&str> = answer.split(' ').collect();
        let [number, key, address, gid] = words[..] else { panic!("{line}: {answer}") };
        let gid = u128::from_str_radix(gid, 16).expect("a GID").to_be_bytes();
        let partner = Partner {
            number: Qpn(number.parse().expect("a number")),
            psn: FIRST_PSN,
            gid: Gid(gid),
        };
        let theirs = RemoteAddress {
            address: VirtualAddress(address.parse().expect("an address")),
            key: RKey(key.parse().expect("a key")),
        };
        let ours = end.queue_pair(wish.service);
        let here: String = end.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let Wish { rnr_retry, .. } = wish;
        let (number, mtu, psn) = (ours.number().0, end.mtu.0, FIRST_PSN.0);
        self.order(&format!("connect {number} {here} {mtu} {psn} {psn} {rnr_retry}"));
        end.prepare(&ours, wish.our_pair);
        let attributes = end.attributes(FIRST_PSN, &partner);
        end.connect(
            &ours,
            &QueuePairAttributes { rnr_retry: Some(RnrRetry(rnr_retry)), ..attributes },
        );
        Pair { ours, theirs }
    }

    pub(crate) fn fill(&mut self, offset: usize, length: usize, seed: u32) {
        self.order(&format!("fill {offset} {length} {seed}"));
    }

    pub(crate) fn check(&mut self, offset: usize, length: usize, seed: u32) {
        self.order(&format!("check {offset} {length} {seed}"));
    }

    pub(crate) fn receive(&mut self, offset: usize, length: usize) {
        self.order(&format!("receive {offset} {length}"));
    }

    pub(crate) fn post(&mut self, post: Post) {
        let Post { opcode, offset, length, remote, first, second } = post;
        let (address, key) = (remote.address.0, remote.key.0);
        self.order(&format!("post {opcode} {offset} {length} {address} {key} {first} {second}"));
    }

    /// Returns its next completion.
    pub(crate) fn next(&mut self) -> Done {
        let answer = self.ask("next");
        let numbers: Vec<u32> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [status, _opcode, length, immediate] = numbers[..] else { panic!("next: {answer}") };
        let known = STATUSES.iter().find(|(number, _)| u32::from(*number) == status);
        let (_, status) = known.unwrap_or_else(|| panic!("status {status}"));
        Done { status: *status, length: length as usize, immediate }
    }

    /// Returns its next completion, which must be successful.
    pub(crate) fn done(&mut self) -> Done {
        let done = self.next();
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }
}

/// Returns a remote address at an offset.
pub(crate) fn at(remote: RemoteAddress, offset: usize) -> RemoteAddress {
    let address = VirtualAddress(remote.address.0 + offset as u64);
    RemoteAddress { address, ..remote }
}

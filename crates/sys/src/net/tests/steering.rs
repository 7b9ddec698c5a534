//! Packets reach the process that owns their queue pair, directly or by forwarding.

use std::net::SocketAddr;

use super::{at, is_first, is_quiet, no_forks, open, open_slot, plain, send, wait};
use crate::net::steering::{SETUP_SERVICE, slot_of};
use crate::{Batch, Error, Options, ReceiveBatch, Recipient, Service, Slot, Socket};

/// The start of a BTH to a queue pair.
fn packet(qpn: u32) -> Vec<u8> {
    let [_, high, middle, low] = qpn.to_be_bytes();
    vec![0x04, 0, 0xff, 0xff, 0, high, middle, low, 0, 0, 0, 1, 0xaa]
}

/// The sockets of a process.
struct Process {
    slot: Slot,
    socket: Socket,
    batch: ReceiveBatch,
}

impl Process {
    fn start(address: SocketAddr, options: &Options) -> Self {
        let (slot, socket) = open_slot(address, options);
        let batch = ReceiveBatch::for_socket(&socket);
        Self { slot, socket, batch }
    }

    /// Receives from the socket. Returns a packet for this process, and forwards those for others.
    fn serve(&mut self) -> Result<Option<Vec<u8>>, Error> {
        wait(&self.socket);
        self.socket.receive(&mut self.batch)?;
        let mut own = None;
        for message in self.batch.messages() {
            for packet in message.packets() {
                match slot_of(packet).unwrap() {
                    slot if slot == self.slot.number() => own = Some(packet.to_vec()),
                    slot => self.slot.forward(Recipient::Slot(slot), message.info, packet)?,
                }
            }
        }
        Ok(own)
    }

    /// Receives one packet that another process forwarded.
    fn forwarded(&mut self, from: SocketAddr) -> Vec<u8> {
        wait(&self.slot);
        assert_eq!(self.slot.receive(&mut self.batch).unwrap(), 1);
        let message = self.batch.messages().next().unwrap();
        assert_eq!(message.info.source, from);
        assert_eq!(message.info.destination, self.socket.local().ip());
        assert_eq!((message.info.tos, message.info.hop_limit), (2, Some(33)));
        message.data.to_vec()
    }
}

/// Sends one packet with a type of service and hop limit, which forwarding must preserve.
fn send_to(sender: &Socket, address: SocketAddr, qpn: u32) {
    let packet = packet(qpn);
    let pieces = [std::io::IoSlice::new(&packet)];
    let batch = Batch { tos: 2, hop_limit: Some(33), ..plain(address, 100, &pieces) };
    assert_eq!(sender.send(&batch).unwrap(), 1);
}

fn check_three_processes(ip: &str) {
    let _quiet = no_forks();
    let address = at(&format!("{ip}:4791"));
    let sender = open(ip.trim_matches(['[', ']']));
    let mut processes = [(); 3].map(|()| Process::start(address, &Options::default()));
    assert!(processes.iter().all(|process| process.socket.features().steering));
    assert_eq!([0, 1, 2].map(|at: usize| processes[at].slot.number()), [0, 1, 2]);
    for round in 0..20 {
        for process in &mut processes {
            let qpn = (u32::from(process.slot.number()) << 16) + 0x100 + round;
            send_to(&sender, address, qpn);
            assert_eq!(process.serve().unwrap(), Some(packet(qpn)));
        }
    }
    assert!(processes.iter().all(|process| is_quiet(&process.socket) && is_quiet(&process.slot)));

    // The middle one ends. The kernel moves the last socket to its index, so slot 2 has index 1, and packets for it have an
    // index beyond the end: any process may receive them.
    let [first, middle, last] = processes;
    drop(middle);
    let mut processes = [first, last];
    for round in 0..20 {
        let qpn = 0x02_0000 + round;
        send_to(&sender, address, qpn);
        if is_first(&processes[1].socket, &processes[0].socket) {
            assert_eq!(processes[1].serve().unwrap(), Some(packet(qpn)));
        } else {
            assert_eq!(processes[0].serve().unwrap(), None);
            assert_eq!(processes[1].forwarded(sender.local()), packet(qpn));
        }
    }
    // Slot 1 has no owner now; its packets go to the last socket, and cannot be forwarded.
    send_to(&sender, address, 0x01_0000);
    assert!(matches!(processes[1].serve(), Err(Error::NoOwner)));

    // A new process has the free slot, and the last index of the list: all of its packets are forwarded.
    let mut third = Process::start(address, &Options::default());
    assert_eq!(third.slot.number(), 1);
    send_to(&sender, address, 0x01_0007);
    assert_eq!(processes[1].serve().unwrap(), None);
    assert_eq!(third.forwarded(sender.local()), packet(0x01_0007));
    send_to(&sender, address, 0x02_0007);
    assert_eq!(third.serve().unwrap(), None);
    assert_eq!(processes[1].forwarded(sender.local()), packet(0x02_0007));
}

#[test]
fn packets_go_to_the_owner_of_the_queue_pair() {
    check_three_processes("127.9.4.1");
}

#[test]
fn packets_go_to_the_owner_of_the_queue_pair_over_ipv6() {
    // There is only one IPv6 loopback address, so this test has its own namespace.
    super::namespace::run("packets_go_to_the_owner_of_the_queue_pair_over_ipv6", || {
        check_three_processes("[::1]");
    });
}

#[test]
fn all_packets_arrive_by_forwarding_without_steering() {
    let address = at("127.9.4.2:4791");
    let options = Options { steering: false, ..Options::default() };
    let (mut one, mut other) =
        (Process::start(address, &options), Process::start(address, &options));
    assert!(!one.socket.features().steering);
    let (mut direct, mut forwarded) = (0, 0);
    for round in 0..200 {
        // The kernel selects by a hash over the ports, so each round has its own sender.
        let sender = open("127.9.4.2");
        for slot in 0..2u8 {
            let qpn = (u32::from(slot) << 16) + round;
            send_to(&sender, address, qpn);
            let (owner, wrong) =
                if slot == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
            if is_first(&wrong.socket, &owner.socket) {
                assert_eq!(wrong.serve().unwrap(), None);
                assert_eq!(owner.forwarded(sender.local()), packet(qpn));
                forwarded += 1;
            } else {
                assert_eq!(owner.serve().unwrap(), Some(packet(qpn)));
                direct += 1;
            }
        }
    }
    // Of each round one packet reaches its owner and the other does not.
    assert_eq!((direct, forwarded), (200, 200));
}

#[test]
fn coalesced_packets_may_have_different_owners() {
    let address = at("127.9.4.5:4791");
    let mut processes = [(); 2].map(|()| Process::start(address, &Options::default()));
    let sender = open("127.9.4.5");
    let packets = [packet(0x01_0001), packet(0x00_0001), packet(0x01_0002)].concat();
    let pieces = [std::io::IoSlice::new(&packets)];
    let batch = Batch { tos: 2, hop_limit: Some(33), ..plain(address, 13, &pieces) };
    assert_eq!(sender.send(&batch).unwrap(), 3);
    // The first packet determines the process for all.
    assert_eq!(processes[1].serve().unwrap(), Some(packet(0x01_0002)));
    assert_eq!(processes[0].forwarded(sender.local()), packet(0x00_0001));
    assert!(is_quiet(&processes[0].socket));
}

#[test]
fn a_packet_too_short_for_a_qpn_goes_to_index_0() {
    let address = at("127.9.4.3:4791");
    let processes = [(); 2].map(|()| Process::start(address, &Options::default()));
    send(&open("127.9.4.3"), address, &[1, 2, 3]);
    // A program that loads beyond the end returns index 0.
    assert!(is_first(&processes[0].socket, &processes[1].socket));
    assert_eq!(slot_of(&[1, 2, 3]), None);
}

#[test]
fn processes_that_start_together_bind_in_slot_order() {
    let address = at("127.9.4.4:4791");
    let mut processes: Vec<Process> = std::thread::scope(|scope| {
        let starting: Vec<_> =
            (0..24).map(|_| scope.spawn(|| Process::start(address, &Options::default()))).collect();
        starting.into_iter().map(|process| process.join().unwrap()).collect()
    });
    let sender = open("127.9.4.4");
    for process in &mut processes {
        let qpn = (u32::from(process.slot.number()) << 16) + 5;
        send_to(&sender, address, qpn);
        assert_eq!(process.serve().unwrap(), Some(packet(qpn)));
    }
}

/// A management datagram: BTH, DETH, and a message with some bytes set.
fn management(qpn: u32, bytes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut datagram = packet(qpn);
    datagram.resize(300, 0);
    for (at, value) in bytes {
        datagram[20 + at..][..value.len()].copy_from_slice(value);
    }
    datagram
}

/// A message of the connection manager: its attribute ID, and its first four words.
fn cm(attribute: u8, words: [u32; 4]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    management(1, &[(16, &[0, attribute]), (24, &words)])
}

fn setup(kind: u8, exchange: u32) -> Vec<u8> {
    management(2, &[(0, &[kind]), (8, &exchange.to_be_bytes())])
}

const REQ: u8 = 0x10;
const REJ: u8 = 0x12;
const REP: u8 = 0x13;
const SIDR_REQ: u8 = 0x17;
const SIDR_REP: u8 = 0x18;

/// How many copies of a packet each process receives. All are sent before any is received, as if the processes were
/// stopped.
fn shares<const N: usize>(
    processes: &mut [Process; N],
    packet: &[u8],
    copies: usize,
) -> [usize; N] {
    let address = processes[0].socket.local();
    let sender = open(&address.ip().to_string());
    for _ in 0..copies {
        send(&sender, address, packet);
    }
    // Over the loopback interface, sent packets have arrived.
    let shares = processes.each_mut().map(|process| {
        let mut count = 0;
        while process.socket.receive(&mut process.batch).unwrap() > 0 {
            count +=
                process.batch.messages().map(|message| message.packets().count()).sum::<usize>();
        }
        count
    });
    assert_eq!(shares.iter().sum::<usize>(), copies);
    shares
}

#[test]
fn management_packets_go_to_their_owner_or_a_random_process() {
    let address = at("127.9.4.6:4791");
    let service = 0x0000_0000_0106_1d6b;
    let mut processes = [(); 3].map(|()| Process::start(address, &Options::default()));
    let req = cm(REQ, [0xaa00_0001, 0, (service >> 32) as u32, service as u32]);
    let sidr_req = cm(SIDR_REQ, [0xaa00_0001, 0, (service >> 32) as u32, service as u32]);
    // Without a listener or an ID, packets go to random processes.
    let no_id = cm(REJ, [0xaa00_0001, 0, 0, 0]);
    let no_cm = cm(0x1b, [0xaa00_0001, 0x0100_0000, 0, 0]);
    for unowned in [&req, &sidr_req, &no_id, &no_cm, &setup(3, 0x0200_0000)] {
        let shares = shares(&mut processes, unowned, 200);
        assert!(shares.iter().all(|&share| share > 20), "{shares:?}");
    }
    // An ID that this side assigned contains the slot.
    for slot in 0..3 {
        let id = (slot as u32) << 24 | 0x1234;
        let mut expected = [0; 3];
        expected[slot] = 20;
        for response in [
            cm(REP, [0xaa00_0001, id, 0, 0]),
            cm(REJ, [0, id, 0, 0]),
            cm(0x1a, [0xaa00_0001, id, 0, 0]),
            cm(SIDR_REP, [id, 0x0505_0505, 0, 0]),
            setup(4, id),
        ] {
            assert_eq!(shares(&mut processes, &response, 20), expected, "{response:02x?}");
        }
    }
    // Requests go to the listener.
    let claims = [(service, 2), (service + 1, 1), (service | 5 << 32, 0), (SETUP_SERVICE, 1)];
    let claimed = claims.map(|(id, slot)| Service::claim(address, id, slot).unwrap());
    assert!(processes[0].slot.steer(&processes[0].socket).unwrap());
    for request in [&req, &sidr_req] {
        assert_eq!(shares(&mut processes, request, 20), [0, 0, 20]);
    }
    let high = cm(REQ, [0xaa00_0001, 0, 5, service as u32]);
    assert_eq!(shares(&mut processes, &high, 20), [20, 0, 0]);
    assert_eq!(shares(&mut processes, &setup(3, 0x0200_0000), 20), [0, 20, 0]);
    // Until it stops listening.
    drop(claimed);
    assert!(processes[1].slot.steer(&processes[1].socket).unwrap());
    let shares = shares(&mut processes, &req, 200);
    assert!(shares.iter().all(|&share| share > 20), "{shares:?}");
}

/// After processes have ended out of order, a slot does not determine the index in the kernel's list: a stopped process
/// could have the index of another.
#[test]
fn management_packets_go_to_a_random_process_when_indices_are_unknown() {
    let _quiet = no_forks();
    let address = at("127.9.4.8:4791");
    let service = 0x0000_0000_0106_1d6b;
    let [first, second, third] = [(); 3].map(|()| Process::start(address, &Options::default()));
    drop(first);
    let _claimed = Service::claim(address, service, third.slot.number()).unwrap();
    assert!(second.slot.steer(&second.socket).unwrap());
    let mut processes = [second, third];
    let req = cm(REQ, [1, 0, (service >> 32) as u32, service as u32]);
    let rep = cm(REP, [1, 0x0200_1234, 0, 0]);
    for packet in [&req, &rep] {
        let shares = shares(&mut processes, packet, 200);
        assert!(shares.iter().all(|&share| share > 20), "{shares:?}");
    }
    // A new process has the free slot, which is not its index.
    let [second, third] = processes;
    let mut processes = [second, third, Process::start(address, &Options::default())];
    assert_eq!(processes[2].slot.number(), 0);
    for packet in [&req, &rep] {
        let shares = shares(&mut processes, packet, 200);
        assert!(shares.iter().all(|&share| share > 20), "{shares:?}");
    }
}

#[test]
fn services_beyond_the_program_limit_go_to_a_random_process() {
    let address = at("127.9.4.7:4791");
    let mut processes = [(); 2].map(|()| Process::start(address, &Options::default()));
    let services: Vec<_> =
        (0..200).map(|id| Service::claim(address, 1000 + id, 1).unwrap()).collect();
    assert!(processes[0].slot.steer(&processes[0].socket).unwrap());
    assert_eq!(shares(&mut processes, &cm(REQ, [1, 0, 0, 1000]), 20), [0, 20]);
    assert_eq!(shares(&mut processes, &cm(REQ, [1, 0, 0, 1063]), 20), [0, 20]);
    let beyond = shares(&mut processes, &cm(REQ, [1, 0, 0, 1199]), 200);
    assert!(beyond.iter().all(|&share| share > 20), "{beyond:?}");
    drop(services);
}

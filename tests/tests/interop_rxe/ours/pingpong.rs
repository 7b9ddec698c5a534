//! The peer of `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`.
//!
//! These receive into the buffer that they send from. So their next message contains what we sent, and all of it can be
//! compared, although they fill it with a single byte value.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use ferroce::*;

use super::end::{End, Partner, QUEUE_KEY, pattern, same};
use super::{THERE_V4, Task, ready, wait_for_the_other};

/// The port of all of them.
const PORT: u16 = 18515;
/// The client's last message.
const DONE: &[u8; 5] = b"done\0";
/// The length of `LID:QPN:PSN:GID` in hexadecimal, and a zero byte.
const LINE: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
/// The byte with which they fill their buffers.
const FILLED: u8 = 0x7b;
/// With `-c`, the server expects a zero at the start of each page.
const PAGE: usize = 4096;
/// Our first PSN, chosen so that PSNs wrap in every run.
pub(crate) const FIRST_PSN: Psn = Psn(0xff_fffa);
/// The bytes of the GRH before each datagram.
const GRH: usize = 40;

fn line(own: &Partner) -> String {
    let gid: String = own.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{:04x}:{:06x}:{:06x}:{gid}\0", 0, own.number.0, own.psn.0)
}

fn parse(line: &str) -> Option<Partner> {
    let mut words = line.trim_end_matches('\0').split(':').skip(1);
    let number = u32::from_str_radix(words.next()?, 16).ok()?;
    let psn = u32::from_str_radix(words.next()?, 16).ok()?;
    let gid = u128::from_str_radix(words.next()?, 16).ok()?;
    Some(Partner { number: Qpn(number), psn: Psn(psn), gid: Gid(gid.to_be_bytes()) })
}

fn read_lines(mut from: &TcpStream, count: usize) -> Vec<Partner> {
    let mut bytes = vec![0; LINE * count];
    from.read_exact(&mut bytes).expect("the peer's queue pairs");
    let lines = bytes.chunks(LINE).map(|line| String::from_utf8_lossy(line));
    lines.map(|line| parse(&line).unwrap_or_else(|| panic!("no queue pair: {line}"))).collect()
}

/// Connects over TCP as soon as a program listens: the machine's takes a moment to start.
pub(crate) fn reach(port: u16) -> TcpStream {
    loop {
        match TcpStream::connect((std::net::Ipv4Addr::from(THERE_V4), port)) {
            Ok(stream) => return stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("port {port} of the peer: {error}"),
        }
    }
}

/// Exchanges QP attributes with the peer. `connect` is called with the peer's before the peer knows that it can send.
pub(crate) fn exchange(task: &Task, own: &[Partner], connect: impl FnOnce(&[Partner])) {
    let lines: String = own.iter().map(line).collect();
    if task.serves {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("a port");
        ready();
        let (mut stream, _) = listener.accept().expect("a client");
        connect(&read_lines(&stream, own.len()));
        stream.write_all(lines.as_bytes()).expect("a client that listens");
        let mut done = [0; DONE.len()];
        stream.read_exact(&mut done).expect("the client's last word");
        assert_eq!(&done, DONE);
    } else {
        let mut stream = reach(PORT);
        stream.write_all(lines.as_bytes()).expect("a server that listens");
        connect(&read_lines(&stream, own.len()));
        stream.write_all(DONE).expect("a server that listens");
    }
}

/// Returns our `number`th message.
pub(crate) fn message(number: usize, size: usize) -> Vec<u8> {
    let mut bytes = pattern(number as u32 + 1, size);
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    bytes
}

/// One side of the pingpong.
struct Player<'a> {
    task: &'a Task,
    end: End,
    queue_pair: QueuePair,
    /// The destination of datagrams.
    way: Option<(AddressHandle, Qpn)>,
    /// Bytes of a receive before the message.
    head: usize,
    /// The offset of the send buffer.
    out: usize,
}

impl Player<'_> {
    fn post_receive(&self) {
        let receive = self.end.receive(0, self.head + self.task.size);
        self.queue_pair.post_receive(receive).expect("a receive");
    }

    fn send(&self, number: usize) {
        let size = self.task.size;
        self.end.write(self.out, &message(number, size));
        let Some((address, destination)) = &self.way else {
            return self.end.post(&self.queue_pair, Operation::SEND, self.out, size);
        };
        let data = self.end.data(self.out, size);
        let datagram = address.request(WorkId(1), *destination, QUEUE_KEY, data);
        self.queue_pair.post_datagram(datagram).expect("a datagram");
    }

    /// Checks the peer's `number`th message.
    fn look(&self, number: usize, length: u32) {
        let size = self.task.size;
        assert_eq!(length as usize, self.head + size);
        let found = self.end.bytes(self.head, size);
        let wanted = match (self.task.serves, number) {
            // A client's initial buffer.
            (true, 0) => vec![FILLED; size],
            (true, _) => message(number - 1, size),
            (false, _) => message(number, size),
        };
        same(&found, &wanted, &format!("message {number}"));
    }

    fn play(&self) {
        let Task { count, serves, lossy, .. } = *self.task;
        let (mut sent, mut received) = (0, 0);
        if !serves {
            self.send(0);
        }
        // A peer that is done may exit before its last acknowledgement arrives, and that may be lost.
        while received < count || (sent < count && !lossy) {
            let done = self.end.done();
            if done.kind != CompletionKind::Receive {
                sent += 1;
                continue;
            }
            self.look(received, done.length);
            received += 1;
            if received < count {
                self.post_receive();
            }
            if serves || received < count {
                self.send(if serves { received - 1 } else { received });
            }
        }
    }
}

pub(crate) fn run(task: &Task, service: ServiceType) {
    let head = if service == ServiceType::UnreliableDatagram { GRH } else { 0 };
    let out = head + task.size;
    let end = End::open(task, out + task.size);
    let queue_pair = end.queue_pair(service);
    let own = Partner { number: queue_pair.number(), psn: FIRST_PSN, gid: end.gid };
    let mut player = Player { task, end, queue_pair, way: None, head, out };
    player.end.prepare(&player.queue_pair, AccessFlags::empty());
    player.post_receive();
    let mut partners = Vec::new();
    exchange(task, &[own], |found| {
        let attributes = player.end.attributes(FIRST_PSN, &found[0]);
        player.end.connect(&player.queue_pair, &attributes);
        partners = found.to_vec();
    });
    if head > 0 {
        let path = player.end.path(partners[0].gid);
        let address = player.end.pd.address_handle(&path).expect("a way");
        player.way = Some((address, partners[0].number));
    }
    player.play();
    wait_for_the_other();
}

//! Datagrams through shared memory: the ring is chosen for each of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferroce::*;
use ferroce_sys::{Hub, RxInfo, record_header, signal};
use ferroce_trace::analysis::{self, analyze};
use ferroce_wire::number::PKey;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Deth};

use super::support::{
    Side, attributes, bring_up, gid_index, open, open_alone, over_sockets, own_port, pattern, side,
};
use super::{Process, shared};

const LENGTH: usize = 4096;
const GRH: usize = 40;
const KEY: QKey = QKey(0x1234);

fn datagram_side(context: &Context) -> Side {
    let side = side(context, ServiceType::UnreliableDatagram, 2 * LENGTH);
    let index = gid_index(context, false).unwrap();
    bring_up(&side.queue_pair, &attributes(context, index, Qpn(0), LENGTH));
    side
}

fn address(context: &Context, side: &Side) -> AddressHandle {
    let source_index = gid_index(context, false).unwrap();
    let destination = context.device().gids()[usize::from(source_index)].gid;
    let vector =
        AddressVector { port: 1, source_index, destination, hop_limit: 9, ..Default::default() };
    side.pd.address_handle(&vector).unwrap()
}

/// Sends one datagram with the first bytes of the region.
fn send(from: &Side, address: &AddressHandle, to: Qpn, id: u64, length: usize) {
    let request = address.request(WorkId(id), to, KEY, from.data(0, length));
    from.queue_pair.post_datagram(request).unwrap();
}

/// Sends datagrams of many sizes, and compares all bytes.
fn exchange(one: &Side, other: &Side, address: &AddressHandle) {
    for (id, length) in [0, 1, 63, 64, 1000, LENGTH].into_iter().cycle().take(600).enumerate() {
        let id = id as u64;
        let bytes = pattern(id, length);
        one.region.write(0, &bytes).unwrap();
        other.post_receive(id, 0, GRH + length);
        send(one, address, other.queue_pair.number(), id, length);
        one.expect(id);
        let received = other.expect(id);
        assert_eq!(received.length as usize, GRH + length);
        assert_eq!(received.source, Some(one.queue_pair.number()));
        assert!(other.bytes(GRH, length) == bytes, "datagram {id} of {length} bytes");
        // IPv4 behind 20 bytes: version, time to live, UDP, source.
        let header = other.bytes(20, 20);
        assert_eq!((header[0], header[8], header[9]), (0x45, 9, 17));
        assert_eq!(header[12..16], [127, 0, 0, 1]);
    }
}

#[test]
fn datagrams_go_through_memory() {
    // Contexts are to each other what processes are; one may also send to itself.
    let contexts = [open_alone(&shared()), open_alone(&shared())];
    let [one, other] = contexts.each_ref().map(datagram_side);
    let again = datagram_side(&contexts[0]);
    let handle = address(&contexts[0], &one);
    exchange(&one, &other, &handle);
    exchange(&one, &again, &handle);
    exchange(&other, &one, &address(&contexts[1], &other));
    // A wrong Q_Key: dropped, and no receive request is consumed.
    other.post_receive(1, 0, GRH + 8);
    let (to, data) = (other.queue_pair.number(), one.data(0, 8));
    let request = handle.request(WorkId(1), to, QKey(1), data);
    one.queue_pair.post_datagram(request).unwrap();
    one.expect(1);
    send(&one, &handle, to, 2, 8);
    one.expect(2);
    other.expect(1);
    for counted in contexts.map(|context| context.statistics()) {
        assert!(counted.packets_in >= 600);
        assert_eq!(counted.local_packets_in, counted.packets_in, "{counted:?}");
        assert_eq!(counted.local_packets_out, counted.packets_out, "{counted:?}");
    }
}

#[test]
fn each_datagram_takes_the_way_of_its_receiver() {
    let contexts = [open_alone(&shared()), open_alone(&shared()), open_alone(&over_sockets())];
    let [sender, near, far] = contexts.each_ref().map(datagram_side);
    let handle = address(&contexts[0], &sender);
    for id in 0..100 {
        for receiver in [&near, &far] {
            receiver.post_receive(id, 0, GRH + 64);
            send(&sender, &handle, receiver.queue_pair.number(), id, 64);
            sender.expect(id);
            receiver.expect(id);
        }
    }
    let counted = contexts.map(|context| context.statistics());
    assert_eq!((counted[0].local_packets_out, counted[1].local_packets_in), (100, 100));
    assert_eq!((counted[2].local_packets_in, counted[2].packets_in >= 100), (0, true));
}

/// Also where many are under way, more than a ring holds in all.
#[test]
fn no_datagram_is_lost_or_overtaken() {
    const COUNT: u64 = 3000;
    let contexts = [open_alone(&shared()), open_alone(&shared())];
    let [one, other] = contexts.each_ref().map(datagram_side);
    let handle = address(&contexts[0], &one);
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while received < COUNT {
        while posted < COUNT.min(received + 100) && one.queue_pair.send_room() > 0 {
            other.post_receive(posted, 0, GRH + LENGTH);
            send(&one, &handle, other.queue_pair.number(), posted, LENGTH);
            posted += 1;
        }
        while let Some(entry) = one.completions.poll_one() {
            assert_eq!((entry.id, entry.status), (WorkId(sent), Status::Success));
            sent += 1;
        }
        while let Some(entry) = other.completions.poll_one() {
            assert_eq!((entry.id, entry.status), (WorkId(received), Status::Success));
            received += 1;
        }
    }
    assert_eq!(contexts[1].statistics().local_packets_in, COUNT);
}

/// Datagrams may be lost: a receiver that has stopped, or has ended, does not stop the sender.
#[test]
fn a_stopped_receiver_does_not_stop_the_sender() {
    let context = open_alone(&shared());
    let mut process = Process::start();
    let (connected, remote) = process.connect(&context);
    // The queue pair there is not for datagrams and drops them, but it receives them.
    let to = connected.queue_pair.attributes().destination.unwrap();
    let sender = datagram_side(&context);
    let handle = address(&context, &sender);
    let fill = || {
        // Several times what a ring holds.
        for id in 0..1000 {
            send(&sender, &handle, to, id, LENGTH);
            sender.expect(id);
        }
    };
    process.stop();
    let start = Instant::now();
    fill();
    // A receiver that is only slow would have had this time to make room.
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    let before = context.statistics().local_packets_out;
    assert!((100..1000).contains(&before), "{before} datagrams are in the ring, the rest is lost");
    signal::send(process.0.id(), libc::SIGCONT);
    connected.post(1, Operation::Write { remote, immediate: None }, 0, 64);
    connected.expect(1);
    send(&sender, &handle, to, 1, LENGTH);
    sender.expect(1);
    assert!(context.statistics().local_packets_out > before + 1, "the ring is used again");
    drop(process);
    fill();
}

#[test]
fn lost_datagrams_are_injected_faults() {
    let faults: Faults = "loss=50%,seed=3".parse().unwrap();
    let contexts =
        [open_alone(&shared()), open_alone(&Options { faults: Some(faults), ..shared() })];
    let [one, other] = contexts.each_ref().map(datagram_side);
    let handle = address(&contexts[0], &one);
    (0..100).for_each(|id| other.post_receive(id, 0, GRH + 64));
    for id in 0..100 {
        send(&one, &handle, other.queue_pair.number(), id, 64);
        one.expect(id);
    }
    while contexts[1].statistics().packets_in + contexts[1].statistics().faults_injected < 100 {
        std::thread::yield_now();
    }
    let received = std::iter::from_fn(|| other.completions.poll_one()).count();
    assert!((20..80).contains(&received), "{received}");
}

/// A process of the same user may write what it likes to a ring of its own, but not in the name of another host.
#[test]
fn a_process_cannot_pretend_to_be_another_host() {
    let context = open_alone(&shared());
    let receiver = datagram_side(&context);
    (0..2).for_each(|id| receiver.post_receive(id, 100 * id, GRH + 8));
    let number = receiver.queue_pair.number();
    let here: SocketAddr = ([127, 0, 0, 1], own_port()).into();
    let hub = Hub::new().unwrap();
    let ring = hub.connect(here, (number.0 >> 16) as u8, 1 << 16).unwrap();
    let (bth, deth) = (
        Bth {
            opcode: Opcode::UD_SEND_ONLY,
            partition: PKey(0xffff),
            destination: number,
            ..Bth::default()
        },
        Deth { queue_key: KEY, source: Qpn(77), ..Deth::default() },
    );
    let send = |source: [u8; 4], payload: u8| {
        let info = RxInfo {
            source: (source, 4791).into(),
            destination: here.ip(),
            interface: None,
            tos: 0,
            hop_limit: Some(64),
            length: 0,
            segment: 0,
            truncated: false,
        };
        let header = record_header::encode(&info);
        let record =
            [&header[..], &bth.to_bytes(), &deth.to_bytes(), &[payload; 8], &[0; 4]].concat();
        let mut producer = ring.producer.lock();
        producer.room(record.len()).unwrap().unwrap().copy_from_slice(&record);
        producer.commit(record.len());
        if producer.publish() {
            ring.wake();
        }
    };
    send([10, 9, 9, 9], 1);
    send([127, 0, 0, 1], 2);
    let received = receiver.expect(0);
    assert_eq!(received.source, Some(Qpn(77)));
    assert_eq!(receiver.bytes(GRH, 8), [2; 8], "the first datagram was forged");
    assert_eq!(context.statistics().malformed, 1);
}

#[test]
fn captures_have_every_datagram_with_its_icrc() {
    let name = format!("ferroce-rings-datagrams-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    // The analyser knows RoCE by its port.
    let context = open(&Options { capture: Some(path.clone()), ..shared() });
    let (one, other) = (datagram_side(&context), datagram_side(&context));
    exchange(&one, &other, &address(&context, &one));
    let counted = context.statistics();
    drop((one, other, context));
    let file = std::fs::File::open(&path).unwrap();
    let report = analyze("capture", file, &analysis::Options::default(), &mut |_| {});
    std::fs::remove_file(&path).unwrap();
    assert_eq!((report.problems, report.anomalies), (vec![], vec![]));
    assert_eq!((report.icrc.ok, report.icrc.bad), (counted.packets_out, 0));
    assert_eq!(counted.packets_out, counted.local_packets_out);
}

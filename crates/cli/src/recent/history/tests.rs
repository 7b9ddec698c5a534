use super::*;

const HERE: [u8; 4] = [192, 0, 2, 1];
const THERE: [u8; 4] = [192, 0, 2, 2];
const ACK: u8 = 0x11;
const WRITE_ONLY: u8 = 0x0a;

/// An Ethernet frame with a BTH, and what follows it; the ICRC is zero.
fn frame(from: [u8; 4], to: [u8; 4], opcode: u8, destination: u8, psn: u8, rest: &[u8]) -> Vec<u8> {
    let udp = 8 + 12 + rest.len() + 4;
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00, 0x45, 0, 0, (20 + udp) as u8, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend([0xc0, 0, 0x12, 0xb7, 0, udp as u8, 0, 0]);
    bytes.extend([opcode, 0, 0xff, 0xff, 0, 0, 0, destination, 0x80, 0, 0, psn]);
    bytes.extend(rest);
    bytes.extend([0; 4]);
    bytes
}

/// A recorder of packets whose clock ticks once a microsecond.
#[derive(Default)]
struct Wire(Histories, u64);

impl Wire {
    fn record(&mut self, pid: u32, received: bool, queue_pair: u32, bytes: &[u8]) {
        self.1 += 1000;
        let header = RecordHeader {
            time: self.1,
            interface: 0,
            original: bytes.len() as u32,
            received,
            queue_pair,
            work: None,
            dropped: 0,
        };
        self.0.record(pid, &header, bytes);
    }

    /// Process 1 has QP 5 here, and writes to QP 6 of process 2 there.
    fn write(&mut self, psn: u8) {
        self.record(1, false, 5, &frame(HERE, THERE, WRITE_ONLY, 6, psn, &[0; 16]));
    }

    fn acknowledge(&mut self, psn: u8, syndrome: u8) {
        self.record(2, false, 6, &frame(THERE, HERE, ACK, 5, psn, &[syndrome, 0, 0, 1]));
    }
}

const WRITER: QpAddress = QpAddress { pid: 1, number: 5, address: Some(IpAddr::V4(HERE_IP)) };
const HERE_IP: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);

fn directions(packets: &[PacketView]) -> Vec<(bool, u32)> {
    packets.iter().map(|packet| (packet.sent, packet.psn)).collect()
}

#[test]
fn both_ends_see_a_packet_in_their_direction() {
    let mut wire = Wire::default();
    wire.write(1);
    wire.acknowledge(1, 0x1f);
    let recent = wire.0.of(&WRITER);
    assert_eq!(directions(&recent.packets), [(true, 1), (false, 1)]);
    assert_eq!(recent.packets[1].after_ns, Some(1000));
    assert!(recent.packets[0].summary.starts_with("RC RDMA WRITE Only"), "{recent:?}");
    assert!(recent.episodes.is_empty());
    let responder = QpAddress { pid: 2, number: 6, address: None };
    // Its address is not given, but known from what it sent.
    assert_eq!(directions(&wire.0.of(&responder).packets), [(false, 1), (true, 1)]);
}

#[test]
fn a_qp_of_the_same_number_on_another_device_is_told_apart() {
    let mut wire = Wire::default();
    wire.write(1);
    wire.record(3, false, 5, &frame([198, 51, 100, 1], THERE, WRITE_ONLY, 6, 9, &[0; 16]));
    wire.record(3, true, 5, &frame(THERE, [198, 51, 100, 1], ACK, 5, 9, &[0x1f, 0, 0, 1]));
    assert_eq!(directions(&wire.0.of(&WRITER).packets), [(true, 1)]);
    let other = QpAddress { pid: 3, number: 5, address: None };
    assert_eq!(directions(&wire.0.of(&other).packets), [(true, 9), (false, 9)]);
    assert!(wire.0.of(&other).episodes.is_empty());
}

#[test]
fn packets_around_a_nak_and_a_retransmission_are_kept() {
    let mut wire = Wire::default();
    for psn in 1..20 {
        wire.write(psn);
    }
    wire.acknowledge(15, 0x60);
    for psn in 15..20 {
        wire.write(psn);
    }
    for psn in 20..120 {
        wire.write(psn);
    }
    let recent = wire.0.of(&WRITER);
    assert_eq!(recent.packets.len(), LAST);
    assert!(recent.packets.iter().all(|packet| packet.reason.is_none()));
    let [episode] = &recent.episodes[..] else { panic!("{recent:?}") };
    assert_eq!(episode.reason, Reason::Nak);
    let psns = directions(&episode.packets);
    let before = (14..20).map(|psn| (true, psn));
    let again = (15..26).map(|psn| (true, psn));
    let expected: Vec<_> = before.chain([(false, 15)]).chain(again).collect();
    assert_eq!(psns, expected);
    let again = episode.packets.iter().filter(|one| one.reason == Some(Reason::Retransmission));
    assert_eq!(again.count(), 5);
}

#[test]
fn memory_is_bounded() {
    let mut wire = Wire::default();
    for number in 0..3000 {
        wire.record(1, false, number, &frame(HERE, THERE, WRITE_ONLY, 6, 1, &[0; 16]));
    }
    assert_eq!(wire.0.0.len(), MAX_NUMBERS);
    let newest = QpAddress { pid: 1, number: 2999, address: None };
    assert_eq!(wire.0.of(&newest).packets.len(), 1);
    for _ in 0..200 {
        wire.write(7);
    }
    let recent = wire.0.of(&WRITER);
    assert!(recent.episodes.len() <= EPISODES);
    assert!(recent.episodes.iter().all(|episode| episode.packets.len() <= LONGEST), "{recent:?}");
}

#[test]
fn damaged_frames_are_ignored() {
    let mut wire = Wire::default();
    let whole = frame(HERE, THERE, WRITE_ONLY, 6, 1, &[0; 16]);
    for length in 0..whole.len() {
        wire.record(1, false, 5, &whole[..length]);
    }
    wire.0.of(&WRITER);
}

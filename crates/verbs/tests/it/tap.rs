//! Captures of real packets, checked with the analyzer of this project and with tshark.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use ferroce::*;
use ferroce_trace::analysis::{self, FileReport, analyze};
use ferroce_trace::file::{CaptureReader, Direction, LinkType, Packet, PcapngWriter};
use ferroce_wire::icrc::Icrc;
use ferroce_wire::ip::InternetChecksum;

/// A file that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir();
        Self(directory.join(format!("ferroce-tap-{}-{name}.pcapng", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A port that only one test uses: on the common port, processes come and go, and packets are forwarded.
fn port(test: u16) -> u16 {
    40_000 + (std::process::id() % 900 * 10) as u16 + test
}

fn capturing(path: &Path, test: u16) -> Options {
    Options { capture: Some(path.to_owned()), port: port(test), ..options() }
}

/// The ICRC and the UDP checksum of a frame.
fn sums(frame: &[u8]) -> ([u8; 4], u16) {
    let ipv4 = frame[12..14] == [8, 0];
    let (ip, udp) = if ipv4 { (14, 34) } else { (14, 54) };
    let (covered, _) = frame.split_last_chunk::<4>().unwrap();
    let (header, bth) = (covered[udp..].first_chunk().unwrap(), covered[udp + 8..].first_chunk());
    let mut icrc = match ipv4 {
        true => Icrc::ipv4(frame[ip..].first_chunk().unwrap(), header, bth.unwrap()),
        false => Icrc::ipv6(frame[ip..].first_chunk().unwrap(), header, bth.unwrap()),
    };
    icrc.update(&covered[udp + 20..]);
    let addresses = if ipv4 { 26 } else { 22 };
    let sum = InternetChecksum::default().over(&frame[addresses..udp]).over(&[0, 17]);
    let sum = sum.over(&frame[udp + 4..udp + 6]).over(&frame[udp..udp + 6]).over(&frame[udp + 8..]);
    // RFC 768: zero means no checksum.
    (icrc.finish(), if sum.finish().0 == 0 { u16::MAX } else { sum.finish().0 })
}

/// Rewrites a capture to RoCE's UDP port, by which tools recognise it. Checksums are verified with the original port.
fn at_roce_port(path: &Path, port: u16) -> Scratch {
    let renamed = Scratch(path.with_extension("roce.pcapng"));
    let mut writer = PcapngWriter::new(File::create(&renamed.0).unwrap()).unwrap();
    writer.add_interface(LinkType::ETHERNET, Some("ferroce_lo")).unwrap();
    let mut reader = CaptureReader::new(File::open(path).unwrap()).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        let mut frame = record.data.to_vec();
        let udp = if frame[12..14] == [8, 0] { 34 } else { 54 };
        assert_eq!(frame[udp + 2..udp + 4], port.to_be_bytes());
        let (icrc, checksum) = sums(&frame);
        let end = frame.len() - 4;
        assert_eq!(frame[end..], icrc);
        assert_eq!(frame[udp + 6..udp + 8], checksum.to_be_bytes());
        frame[udp + 2..udp + 4].copy_from_slice(&4791u16.to_be_bytes());
        let (icrc, _) = sums(&frame);
        frame[end..].copy_from_slice(&icrc);
        let (_, checksum) = sums(&frame);
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
        writer.write(&Packet { data: &frame, ..Packet::from_record(&record) }).unwrap();
    }
    writer.finish().unwrap();
    renamed
}

/// A WRITE and a READ of 100,000 bytes, and a SEND.
fn traffic(context: &Context, ipv6: bool) -> Option<[Qpn; 2]> {
    let index = gid_index(context, ipv6)?;
    let service = ServiceType::ReliableConnection;
    let (one, other) = (side(context, service, 1 << 18), side(context, service, 1 << 18));
    connect(&one, &other, index, 4096);
    let write = Operation::Write { remote: other.region.remote(0), immediate: None };
    one.post(1, write, 0, 100_000);
    one.expect(1);
    one.post(2, Operation::Read { remote: other.region.remote(0) }, 0, 100_000);
    one.expect(2);
    other.post_receive(3, 0, 64);
    one.post(4, Operation::Send { immediate: None, invalidate: None }, 0, 64);
    one.expect(4);
    other.expect(3);
    Some([one.queue_pair.number(), other.queue_pair.number()])
}

fn report(path: &Path, test: u16) -> FileReport {
    let renamed = at_roce_port(path, port(test));
    let options = analysis::Options { packet_list: true, ..analysis::Options::default() };
    analyze("capture", File::open(&renamed.0).unwrap(), &options, &mut |_| {})
}

/// Asserts what holds for every capture.
fn assert_sound(report: &FileReport) {
    assert_eq!(report.problems, [], "{report:?}");
    assert_eq!(report.anomalies, [], "{report:?}");
    assert_eq!(report.icrc.bad, 0);
    assert!(report.icrc.ok > 50, "{:?}", report.icrc);
}

#[test]
fn the_analyzer_finds_no_anomaly_in_a_capture() {
    for (ipv6, test) in [(false, 0), (true, 1)] {
        let scratch = Scratch::new(if ipv6 { "v6" } else { "v4" });
        let context = open(&capturing(&scratch.0, test));
        let Some(numbers) = traffic(&context, ipv6) else { continue };
        let sent = context.statistics().packets_out;
        drop(context);
        let report = report(&scratch.0, test);
        assert_sound(&report);
        // Each packet once, although this process both sent and received it.
        assert_eq!(report.packets, sent);
        let mut reader = CaptureReader::new(File::open(&scratch.0).unwrap()).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(record.interface_name, Some("ferroce_lo"));
            assert_eq!(record.direction, Some(Direction::Outbound));
            let comment = record.comment.unwrap();
            let named = |number: &Qpn| comment.starts_with(&format!("from QP 0x{:06x}", number.0));
            assert!(numbers.iter().any(named), "{comment}");
        }
    }
}

#[test]
fn captures_without_segmentation_offload() {
    let scratch = Scratch::new("single");
    let mut options = capturing(&scratch.0, 2);
    options.sockets.gso = false;
    let context = open(&options);
    traffic(&context, false).unwrap();
    drop(context);
    assert_sound(&report(&scratch.0, 2));
}

#[test]
fn a_capture_can_be_read_while_it_is_written() {
    let scratch = Scratch::new("live");
    let context = open(&capturing(&scratch.0, 3));
    traffic(&context, false).unwrap();
    let sent = context.statistics().packets_out;
    let status = context.flush_capture().unwrap();
    assert_eq!(status, CaptureStatus { written: sent, dropped: 0, failure: None });
    assert_eq!(report(&scratch.0, 3).packets, sent);
}

/// A capture contains payload and keys.
#[test]
fn a_capture_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("mode");
    let _context = open(&capturing(&scratch.0, 9));
    assert_eq!(fs::metadata(&scratch.0).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn reopening_a_device_continues_its_capture() {
    let scratch = Scratch::new("again");
    let mut sent = 0;
    for _ in 0..2 {
        let context = open(&capturing(&scratch.0, 4));
        traffic(&context, false).unwrap();
        sent += context.statistics().packets_out;
    }
    assert_eq!(report(&scratch.0, 4).packets, sent);
}

/// A corrupted packet is in the capture as it arrived, beside the one that was sent.
#[test]
fn corrupted_packets_are_captured_as_received() {
    let scratch = Scratch::new("corrupted");
    let faults: Faults = "corruption=10%,seed=3".parse().unwrap();
    let context = open(&Options { faults: Some(faults), ..capturing(&scratch.0, 8) });
    traffic(&context, false).unwrap();
    let counted = context.statistics();
    drop(context);
    let (mut sent, mut corrupted) = (0, 0);
    let mut reader = CaptureReader::new(File::open(&scratch.0).unwrap()).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        let (icrc, _) = sums(record.data);
        let is_sound = record.data.ends_with(&icrc);
        let direction = if is_sound { Direction::Outbound } else { Direction::Inbound };
        assert_eq!(record.direction, Some(direction));
        *(if is_sound { &mut sent } else { &mut corrupted }) += 1;
    }
    assert!(corrupted > 0);
    assert!(corrupted >= counted.bad_icrc && sent >= counted.packets_out, "{counted:?}");
}

#[test]
fn an_unwritable_capture_is_an_error() {
    let device = Device::named("lo").unwrap();
    let error = Context::open(&device, &capturing(Path::new("/nowhere/at/all"), 5)).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    assert!(open(&Options { port: port(5), ..options() }).capture_status().is_none());
}

#[test]
fn tshark_finds_no_error_in_a_capture() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: tshark is not installed");
        return;
    }
    let scratch = Scratch::new("tshark");
    let context = open(&capturing(&scratch.0, 6));
    traffic(&context, false).unwrap();
    let sent = context.statistics().packets_out;
    drop(context);
    let renamed = at_roce_port(&scratch.0, port(6));
    let fields = [
        "frame.interface_name",
        "frame.comment",
        "infiniband.bth.opcode",
        "_ws.malformed",
        "udp.checksum.status",
    ];
    let mut command = Command::new("tshark");
    command.args(["-o", "udp.check_checksum:TRUE", "-Tfields", "-r"]).arg(&renamed.0);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count() as u64, sent);
    for line in text.lines() {
        let columns: Vec<_> = line.split('\t').collect();
        assert_eq!((columns[0], columns[3], columns[4]), ("ferroce_lo", "", "1"), "{line}");
        assert!(columns[1].starts_with("from QP 0x"), "{line}");
        assert!(columns[2].parse::<u8>().is_ok(), "{line}");
    }
}

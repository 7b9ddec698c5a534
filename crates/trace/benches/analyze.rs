//! Analysis throughput with every ICRC checked: 1 GB of RDMA WRITEs in 4 KiB packets with their acknowledgements, and the
//! same amount of 64-byte messages. The files are created once in the target directory and read from the page cache.
//!
//! `cargo bench -p ferroce-trace --bench analyze`

use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};

use divan::Bencher;
use divan::counter::BytesCount;
use ferroce_trace::analysis::{Options, analyze};
use ferroce_trace::file::{CaptureReader, Packet as Captured, PcapWriter, Timestamp};
use ferroce_trace::link::LinkType;
use ferroce_wire::address::{Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::ip::{Identification, IpProtocol, Ipv4, Udp};
use ferroce_wire::number::{Msn, PKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, Bth, Reth};

fn main() {
    divan::main();
}

const SIZE: u64 = 1 << 30;

#[divan::bench(args = [4096, 64], sample_count = 5, sample_size = 1)]
fn analyze_file(bencher: Bencher<'_, '_>, payload: usize) {
    let path = capture(payload);
    let bytes = std::fs::metadata(&path).unwrap().len();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        let report = analyze("bench", File::open(&path).unwrap(), &Options::default(), &mut |_| ());
        assert_eq!(report.icrc.ok, report.packets);
        assert!(report.problems.is_empty() && report.anomalies.is_empty());
        report.packets
    });
}

/// Reads the records only, as the baseline.
#[divan::bench(args = [4096, 64], sample_count = 5, sample_size = 1)]
fn read_records(bencher: Bencher<'_, '_>, payload: usize) {
    let path = capture(payload);
    let bytes = std::fs::metadata(&path).unwrap().len();
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
        let mut packets = 0u64;
        while reader.next_record().unwrap().is_some() {
            packets += 1;
        }
        packets
    });
}

/// Returns the capture with this payload per packet, creating it if missing, in the page cache.
fn capture(payload: usize) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{payload}-v1.pcap"));
    if !path.exists() {
        eprintln!("making {}: {SIZE} bytes", path.display());
        let part = path.with_extension("part");
        write(&part, payload);
        std::fs::rename(&part, &path).unwrap();
    }
    let mut file = File::open(&path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).unwrap() > 0 {}
    path
}

/// Writes messages of 16 packets (of one, if small), each followed by its acknowledgement.
fn write(path: &Path, payload: usize) {
    let output = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut writer = PcapWriter::new(output, LinkType::ETHERNET).unwrap();
    let data: Vec<u8> = (0..payload).map(|at| (at * 31) as u8).collect();
    let per_message = if payload >= 1024 { 16 } else { 1 };
    let (mut written, mut psn, mut time) = (0, Psn(0xff_ff00), 0);
    let mut buffer = vec![0; payload + 256];
    let mut put = |opcode: Opcode, extensions, payload: &[u8], psn: Psn, request: bool| {
        let len = frame(opcode, extensions, payload, psn, request, &mut buffer);
        time += 1_000;
        let packet = Captured::new(Timestamp::from_nanoseconds(time), &buffer[..len]);
        writer.write(&packet).unwrap();
        len as u64 + 16
    };
    while written < SIZE {
        for at in 0..per_message {
            let opcode = match at {
                _ if per_message == 1 => Opcode::RC_RDMA_WRITE_ONLY,
                0 => Opcode::RC_RDMA_WRITE_FIRST,
                15 => Opcode::RC_RDMA_WRITE_LAST,
                _ => Opcode::RC_RDMA_WRITE_MIDDLE,
            };
            let reth = (at == 0).then(|| Reth {
                address: VirtualAddress(0x7f00_0000_0000),
                key: RKey(0x1234),
                length: (per_message * payload) as u32,
            });
            let extensions = ExtensionHeaders { reth, ..ExtensionHeaders::default() };
            written += put(opcode, extensions, &data, psn, true);
            psn = psn.add(1);
        }
        let aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: Msn(0) });
        let extensions = ExtensionHeaders { aeth, ..ExtensionHeaders::default() };
        written += put(Opcode::RC_ACKNOWLEDGE, extensions, &[], psn.sub(1), false);
    }
    writer.finish().unwrap();
}

fn frame(
    opcode: Opcode,
    extensions: ExtensionHeaders,
    payload: &[u8],
    psn: Psn,
    request: bool,
    out: &mut [u8],
) -> usize {
    let hosts = [Ip4([10, 77, 0, 1]), Ip4([10, 77, 0, 2])];
    let [source, destination] = if request { hosts } else { [hosts[1], hosts[0]] };
    let bth = Bth {
        opcode,
        partition: PKey(0xffff),
        destination: Qpn(if request { 0x12 } else { 0x11 }),
        psn,
        ..Bth::default()
    };
    let packet =
        Packet { bth, extensions, payload, payload_len: payload.len(), pad: &[], icrc: None };
    let udp_len = Udp::LEN + packet.wire_len();
    let ip = Ipv4 {
        version: 4,
        header_words: 5,
        total_length: (Ipv4::LEN + udp_len) as u16,
        identification: Identification(0),
        dont_fragment: true,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source,
        destination,
        ..Ipv4::default()
    };
    let udp = Udp {
        source_port: 49152,
        destination_port: 4791,
        length: udp_len as u16,
        ..Udp::default()
    };
    let frame = Frame {
        ethernet: Some(Ethernet {
            destination: Mac([2, 0, 0, 0, 0, 2]),
            source: Mac([2, 0, 0, 0, 0, 1]),
            ethertype: EtherType::IPV4,
        }),
        network: Some(Network::Ipv4(ip.with_checksum(), &[])),
        udp: Some(udp),
        packet: Some(packet),
        ..Frame::default()
    };
    frame.emit(out).expect("the buffer is long enough")
}

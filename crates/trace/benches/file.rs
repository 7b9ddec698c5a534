//! Throughput of reading and writing capture files, by packet size.
//!
//! The input is a slice, so a read is a memory copy, without the cost of `read(2)`. `copy` measures
//! that alone, as the bound for the others.

use std::io::{Read, Write};

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ferroce_trace::file::{CaptureReader, Packet, PcapWriter, PcapngWriter, Timestamp};
use ferroce_trace::link::LinkType;

fn main() {
    divan::main();
}

/// A small acknowledgement, and a packet of the largest MTU.
const PACKET_LENGTHS: [usize; 2] = [62, 4158];
const FILE_LENGTH: usize = 32 << 20;

fn packets(length: usize) -> impl Iterator<Item = Timestamp> {
    (0..FILE_LENGTH / length).map(|number| Timestamp::from_nanoseconds(number as i64 * 1000))
}

fn pcap<W: Write>(length: usize, output: W) -> W {
    let data = vec![0x5a; length];
    let mut writer = PcapWriter::new(output, LinkType::ETHERNET).expect("memory");
    for time in packets(length) {
        writer.write(&Packet::new(time, &data)).expect("memory");
    }
    writer.finish().expect("memory")
}

fn pcapng<W: Write>(length: usize, output: W) -> W {
    let data = vec![0x5a; length];
    let mut writer = PcapngWriter::new(output).expect("memory");
    writer.add_interface(LinkType::ETHERNET, Some("eth0")).expect("memory");
    for time in packets(length) {
        writer.write(&Packet::new(time, &data)).expect("memory");
    }
    writer.finish().expect("memory")
}

fn read(bencher: Bencher<'_, '_>, file: &[u8]) {
    bencher.counter(BytesCount::new(file.len())).bench_local(|| {
        let mut reader = CaptureReader::new(black_box(file)).expect("a sound file");
        let mut bytes = 0;
        while let Some(record) = reader.next_record().expect("a sound file") {
            bytes += black_box(record).data.len();
        }
        bytes
    });
}

#[divan::bench(args = PACKET_LENGTHS)]
fn read_pcap(bencher: Bencher<'_, '_>, length: usize) {
    read(bencher, &pcap(length, Vec::new()));
}

#[divan::bench(args = PACKET_LENGTHS)]
fn read_pcapng(bencher: Bencher<'_, '_>, length: usize) {
    read(bencher, &pcapng(length, Vec::new()));
}

#[divan::bench]
fn copy(bencher: Bencher<'_, '_>) {
    let file = pcap(4158, Vec::new());
    let mut buffer = vec![0; 256 << 10];
    bencher.counter(BytesCount::new(file.len())).bench_local(|| {
        let mut input = black_box(&file[..]);
        while input.read(&mut buffer).expect("memory") > 0 {
            black_box(&mut buffer);
        }
    });
}

/// Writes to a sink: the cost of encoding and buffering blocks.
#[divan::bench(args = PACKET_LENGTHS)]
fn write_pcapng(bencher: Bencher<'_, '_>, length: usize) {
    bencher.counter(BytesCount::new(FILE_LENGTH)).bench_local(|| pcapng(length, std::io::sink()));
}

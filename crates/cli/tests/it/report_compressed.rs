//! `ferroce report` of captures compressed with gzip or zstd: whole, cut short, and expanding to far more than memory.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use ferroce_trace::file::{Packet, PcapWriter, Timestamp};
use ferroce_trace::link::LinkType;
use serde_json::Value;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, success, text};

const RPING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rxe/rping.pcap");

type Compress = fn(&[u8]) -> Vec<u8>;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn the_page_of_a_compressed_capture_is_that_of_the_plain_one() {
    let scratch = Scratch::new("report-compressed");
    let plain = fs::read(RPING).unwrap();
    fs::write(scratch.path("capture"), &plain).unwrap();
    let expected = success(&scratch.ferroce(&["report", "-o", "-", "capture"]));
    for compressed in [gzip(&plain), zstd(&plain)] {
        fs::write(scratch.path("capture"), &compressed).unwrap();
        assert_eq!(success(&scratch.ferroce(&["report", "-o", "-", "capture"])), expected);
        // A pipe can be read only once.
        let mut command = scratch.command(FERROCE, &["report", "--json", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&compressed).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = &data["files"][0];
        assert_eq!((&file["packets"], file["shown"].as_array().unwrap().len()), (&53.into(), 53));
    }
}

#[test]
fn truncated_compressed_captures_show_what_is_readable() {
    let scratch = Scratch::new("report-compressed-cut");
    let plain = fs::read(RPING).unwrap();
    for (name, compressed) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
        fs::write(scratch.path("cut"), &compressed[..compressed.len() * 9 / 10]).unwrap();
        let output = scratch.ferroce(&["report", "cut"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains(&format!("the {name} data is cut short after")), "{said}");
        assert!(scratch.path("report.html").exists(), "{name}");
        let output = scratch.ferroce(&["report", "--json", "cut"]);
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = &data["files"][0];
        let shown = file["shown"].as_array().unwrap().len();
        assert_eq!(file["packets"], shown, "{name}");
        assert!(shown > 20 || name == "zstd", "a zstd capture this small is one block: {shown}");
    }
}

/// Half a gigabyte in a few megabytes, with an address space of a quarter of a gigabyte.
#[test]
fn a_small_file_that_expands_to_more_than_memory_is_read_in_bounded_memory() {
    const PCAP_HEADER: usize = 24;
    const RECORDS: u64 = 64;
    const REPEATED: u64 = 32;
    const LIMIT_KIB: u64 = 256 << 10;
    let scratch = Scratch::new("report-bomb");
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
    let frame = vec![0; 256 << 10];
    for _ in 0..RECORDS {
        writer.write(&Packet::new(Timestamp::from_nanoseconds(0), &frame)).unwrap();
    }
    let all = writer.finish().unwrap();
    // Members of gzip and frames of zstd can be repeated.
    let (head, records) = all.split_at(PCAP_HEADER);
    for (name, compress) in [("gzip", gzip as Compress), ("zstd", zstd)] {
        let bomb = [compress(head), compress(records).repeat(REPEATED as usize)].concat();
        assert!(bomb.len() < 8 << 20, "{name}: {}", bomb.len());
        fs::write(scratch.path("bomb"), bomb).unwrap();
        let limited = format!(
            "ulimit -v {LIMIT_KIB} && exec \"$0\" report --json --packets 1 --max-decompressed 1G bomb"
        );
        let output = scratch.run("sh", &["-c", &limited, FERROCE]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
        let data: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(data["files"][0]["packets"], RECORDS * REPEATED, "{name}");
        assert!(data["files"][0]["file_bytes"].as_u64() > Some(512 << 20), "{name}");
        // Without the option it ends early, with what was read until then.
        for command in ["analyze", "report", "decode"] {
            let output = scratch.ferroce(&[command, "--max-decompressed", "1M", "bomb"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name} {command}: {said}");
            let wanted = format!("{name} data expand to more than 1048576");
            assert!(said.contains(&wanted), "{command}: {said}");
        }
    }
}

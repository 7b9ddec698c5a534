//! Packets sniffed on the loopback, in batches that segmentation offload has not split.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use ferroce_test_support::skip;
use ferroce_trace::file::{CaptureReader, Record};
use ferroce_trace::segments::PacketRun;

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

fn ferroce(arguments: &[&str]) -> Output {
    let mut command = Command::new(FERROCE);
    command.args(arguments).stdin(Stdio::null());
    command.env("LC_ALL", "C.UTF-8").env_remove("FERROCE_CAPTURE").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts dumpcap, which writes pcapng to its standard output, and waits until it captures.
fn dumpcap() -> Option<Child> {
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-i", "lo", "-B", "64", "-f", "udp port 4791", "-w", "-"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip("dumpcap is not installed: run `make setup`");
        return None;
    };
    let mut messages = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    while !messages.contains("File: ") {
        if errors.read_line(&mut messages).unwrap() == 0 {
            skip(format!("dumpcap cannot capture here: {}", messages.trim()));
            child.wait().unwrap();
            return None;
        }
    }
    // Further messages must not fill the pipe.
    std::thread::spawn(move || errors.read_to_end(&mut Vec::new()));
    Some(child)
}

/// A reader that keeps a copy of the bytes read.
struct Tee<R> {
    input: R,
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl<R: Read> Read for Tee<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes.borrow_mut().extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// Returns the IP packet of a record with TOS, TTL and checksums cleared: captures taken at a socket do not have them for
/// received packets.
fn comparable_bytes(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = record.data[14..].to_vec();
    (bytes[1], bytes[8]) = (0, 0);
    bytes[10..12].fill(0);
    bytes[26..28].fill(0);
    bytes
}

/// Counts up to `max` packets of a capture by content, and the frames that contain several.
fn packets(input: impl Read, max: usize) -> (BTreeMap<Vec<u8>, u32>, u32) {
    let mut reader = CaptureReader::new(input).unwrap();
    let (mut packets, mut count, mut frames, mut buffer) = (BTreeMap::new(), 0, 0, Vec::new());
    while count < max {
        let Ok(Some(record)) = reader.next_record() else { break };
        let mut add = |record: &Record<'_>| {
            *packets.entry(comparable_bytes(record)).or_default() += 1;
            count += 1;
        };
        match PacketRun::find(&record) {
            None => add(&record),
            Some(run) => {
                frames += 1;
                (0..run.captured()).for_each(|at| add(&run.packet(&record, at, &mut buffer)));
            }
        }
    }
    (packets, frames)
}

#[test]
fn a_sniffed_batch_is_split_into_the_packets_sent() {
    let Some(mut dumpcap) = dumpcap() else { return };
    let own = scratch("own.pcapng");
    let sniffed = scratch("sniffed.pcapng");
    let output = ferroce(&["demo", "--size", "256K", "--capture", own.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The client's own capture has one packet per frame.
    let (expected, joined) = packets(File::open(&own).unwrap(), usize::MAX);
    assert_eq!(joined, 0);
    let count = expected.values().sum::<u32>() as usize;
    let bytes = Rc::new(RefCell::new(Vec::new()));
    let mut input = Tee { input: dumpcap.stdout.take().unwrap(), bytes: Rc::clone(&bytes) };
    let (found, joined) = packets(&mut input, count);
    let interrupted = Command::new("kill").args(["-INT", &dumpcap.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    input.read_to_end(&mut Vec::new()).unwrap();
    dumpcap.wait().unwrap();
    assert!(found == expected, "{} packets of {count} are the same", {
        found.keys().filter(|packet| expected.contains_key(*packet)).count()
    });
    if joined == 0 {
        return skip("this loopback splits batches before the receiver");
    }

    fs::write(&sniffed, &*bytes.borrow()).unwrap();
    let path = sniffed.to_str().unwrap();
    let output = ferroce(&["analyze", "--ladder", path]);
    let report = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{report}");
    assert!(report.contains(&format!("{count} packets, all of RoCE")), "{report}");
    assert!(report.contains(&format!("ICRC {count} ok, 0 bad, 0 unverifiable")), "{report}");
    assert!(report.contains("✓ no anomalies"), "{report}");
    assert_eq!(report.matches("segmentation offload").count(), 1, "{report}");
    let output = ferroce(&["decode", path]);
    let (list, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), list.lines().count()), (Some(0), count), "{errors}");
    assert_eq!(errors.matches("segmentation offload").count(), 1, "{errors}");
    fs::remove_file(own).unwrap();
    fs::remove_file(sniffed).unwrap();
}

//! What a packet sniffer sees on the loopback: batches of packets that segmentation offload has not split.

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

/// Starts a sniffer that writes pcapng to its standard output, and waits until it sniffs.
fn dumpcap() -> Option<Child> {
    let mut command = Command::new("dumpcap");
    command.args(["-q", "-i", "lo", "-B", "64", "-f", "udp port 4791", "-w", "-"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skip("there is no dumpcap");
        return None;
    };
    let mut said = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("File: ") {
        if errors.read_line(&mut said).unwrap() == 0 {
            skip(format!("dumpcap cannot capture here: {}", said.trim()));
            child.wait().unwrap();
            return None;
        }
    }
    // Whatever else it says must not fill the pipe.
    std::thread::spawn(move || errors.read_to_end(&mut Vec::new()));
    Some(child)
}

/// Reads, and keeps what was read.
struct Kept<R> {
    input: R,
    bytes: Rc<RefCell<Vec<u8>>>,
}

impl<R: Read> Read for Kept<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes.borrow_mut().extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// A packet from the IP identification on, without what a socket does not know of packets that it receives: time to live
/// and checksums.
fn essence(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = record.data[14..].to_vec();
    (bytes[1], bytes[8]) = (0, 0);
    bytes[10..12].fill(0);
    bytes[26..28].fill(0);
    bytes
}

/// Counts the packets of a capture, those that share a frame one by one, until there are so many.
fn packets(input: impl Read, most: usize) -> (BTreeMap<Vec<u8>, u32>, u32) {
    let mut reader = CaptureReader::new(input).unwrap();
    let (mut packets, mut count, mut frames, mut buffer) = (BTreeMap::new(), 0, 0, Vec::new());
    while count < most {
        let Ok(Some(record)) = reader.next_record() else { break };
        let mut add = |record: &Record<'_>| {
            *packets.entry(essence(record)).or_default() += 1;
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
fn a_sniffed_batch_is_the_packets_that_were_sent() {
    let Some(mut dumpcap) = dumpcap() else { return };
    let own = scratch("own.pcapng");
    let sniffed = scratch("sniffed.pcapng");
    let output = ferroce(&["demo", "--size", "256K", "--capture", own.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // What the client itself says that it sent and got, all one by one.
    let (expected, joined) = packets(File::open(&own).unwrap(), usize::MAX);
    assert_eq!(joined, 0);
    let count = expected.values().sum::<u32>() as usize;
    let bytes = Rc::new(RefCell::new(Vec::new()));
    let mut input = Kept { input: dumpcap.stdout.take().unwrap(), bytes: Rc::clone(&bytes) };
    let (found, joined) = packets(&mut input, count);
    let interrupted = Command::new("kill").args(["-INT", &dumpcap.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    input.read_to_end(&mut Vec::new()).unwrap();
    dumpcap.wait().unwrap();
    assert!(found == expected, "{} packets of {count} are the same", {
        found.keys().filter(|packet| expected.contains_key(*packet)).count()
    });
    if joined == 0 {
        return skip("the loopback here does not leave segmentation to the receiver");
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

//! Runs as pcapng files.

use std::io;
use std::time::Duration;

use ferroce_trace::file::{CaptureReader, Direction, WriteError};

use super::toys::{NOT_ECT, Station, roce, v4};
use crate::{
    Capture, Corruption, Destination, Fabric, LinkConfig, Outcome, Probability, Reordering,
    Settings, Vantage,
};

/// A packet of a file: interface, direction, comment.
type Line = (String, Option<Direction>, Option<String>);

fn lines(file: &[u8]) -> Vec<Line> {
    let mut reader = CaptureReader::new(file).unwrap();
    let mut lines = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let comment = record.comment.as_deref().map(str::to_owned);
        lines.push((record.interface_name.unwrap().to_owned(), record.direction, comment));
    }
    lines
}

fn capture(settings: Settings, vantage: Vantage, to: u32) -> Vec<Line> {
    let event_log = Capture::new(Vec::new(), vantage, "a test").unwrap();
    let mut fabric = Fabric::with_event_log(1, settings, event_log);
    fabric.add_host(Station::default(), &[v4(0)]).unwrap();
    fabric.add_host(Station::sending(v4(1), v4(to), NOT_ECT, 1, 8), &[v4(1)]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    lines(&fabric.into_event_log().finish().unwrap())
}

fn sent(comment: Option<&str>) -> Line {
    ("host1 10.0.0.1".into(), Some(Direction::Outbound), comment.map(Into::into))
}

fn delivered(comment: Option<&str>) -> Line {
    ("host0 10.0.0.0".into(), Some(Direction::Inbound), comment.map(Into::into))
}

fn dropped(comment: &str) -> Line {
    ("switch".into(), None, Some(comment.into()))
}

fn with_uplink(change: impl FnOnce(&mut LinkConfig)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.uplink);
    settings
}

#[test]
fn each_fault_has_a_comment() {
    let all = |settings| capture(settings, Vantage::Everything, 0);
    assert_eq!(all(Settings::default()), [sent(None), delivered(None)]);
    let lost = with_uplink(|link| link.loss = Probability::ALWAYS);
    assert_eq!(all(lost.clone()), [sent(Some("lost"))]);
    let late =
        Settings { uplink: LinkConfig::default(), downlink: lost.uplink, ..Settings::default() };
    assert_eq!(all(late), [sent(None), dropped("lost")]);
    let copied = with_uplink(|link| link.duplication = Probability::ALWAYS);
    let twice =
        [sent(Some("duplicated")), delivered(Some("duplicated")), delivered(Some("duplicate"))];
    assert_eq!(all(copied), twice);
    let delay = Duration::from_nanos(1500);
    let slow = with_uplink(|link| {
        let probability = Probability::ALWAYS;
        link.reordering = Some(Reordering { probability, min_delay: delay, max_delay: delay });
    });
    assert_eq!(all(slow), [sent(Some("delayed 1500 ns")), delivered(Some("delayed 1500 ns"))]);
    assert_eq!(
        capture(Settings::default(), Vantage::Everything, 9),
        [sent(None), dropped("no such destination")]
    );
}

#[test]
fn the_comment_lists_the_flipped_bits() {
    let mut settings = Settings::default();
    let corruption = Corruption { probability: Probability::ALWAYS, max_bits: 1 };
    settings.downlink.corruption = Some(corruption);
    let event_log = Capture::new(Vec::new(), Vantage::Delivered, "").unwrap();
    let mut fabric = Fabric::with_event_log(4, settings, event_log);
    fabric.add_host(Station::default(), &[v4(0)]).unwrap();
    let frame = roce(v4(1), v4(0), NOT_ECT, &[0; 8]);
    let to_send = [(Destination::Header, frame.clone())].into();
    fabric.add_host(Station { to_send, ..Station::default() }, &[]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    let file = fabric.into_event_log().finish().unwrap();
    let mut reader = CaptureReader::new(file.as_slice()).unwrap();
    let record = reader.next_record().unwrap().unwrap();
    let comment = record.comment.unwrap();
    let bit: usize = comment.strip_prefix("corrupted bit ").unwrap().parse().unwrap();
    let mut expected = frame;
    expected[bit / 8] ^= 0x80 >> (bit % 8);
    assert_eq!(record.data, expected);
}

#[test]
fn a_vantage_selects_records() {
    let see = |vantage| capture(Settings::default(), vantage, 0);
    assert_eq!(see(Vantage::Sent), [sent(None)]);
    assert_eq!(see(Vantage::Delivered), [delivered(None)]);
    assert_eq!(see(Vantage::Host(super::toys::RECEIVER)), [delivered(None)]);
    assert_eq!(see(Vantage::Host(super::toys::SENDER)), [sent(None)]);
    let nowhere = |vantage| capture(Settings::default(), vantage, 9);
    assert_eq!(nowhere(Vantage::Host(super::toys::SENDER)), [sent(None)]);
    assert_eq!(nowhere(Vantage::Delivered), []);
}

#[test]
fn huge_frames_are_truncated_in_the_file_only() {
    let event_log = Capture::new(Vec::new(), Vantage::Everything, "").unwrap();
    let mut fabric = Fabric::with_event_log(1, Settings::default(), event_log);
    let host = fabric.add_host(Station::default(), &[]).unwrap();
    let huge = (Destination::Host(host), vec![0; 1 << 20]);
    fabric.with_host(host, |station, _| station.to_send.push_back(huge)).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(host).unwrap().received[0].1.len(), 1 << 20);
    let file = fabric.into_event_log().finish().unwrap();
    let mut reader = CaptureReader::new(file.as_slice()).unwrap();
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!((record.original_len, record.is_cut()), (1 << 20, true));
}

/// A writer that fails as a full disk does.
struct Full;

impl io::Write for Full {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    let event_log = Some(Capture::new(Full, Vantage::Everything, "").unwrap());
    let mut fabric = Fabric::with_event_log(1, Settings::default(), event_log);
    fabric.add_host(Station::default(), &[v4(0)]).unwrap();
    fabric.add_host(Station::sending(v4(1), v4(0), NOT_ECT, 1_000, 1024), &[v4(1)]).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    let result = fabric.into_event_log().unwrap().finish();
    assert!(matches!(result, Err(WriteError::Io(_))));
}

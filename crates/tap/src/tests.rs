use std::fs::{self, File};

use ferroce_trace::file::{CaptureReader, Direction};
use ferroce_wire::icrc::hidden::Identification;
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use super::*;

#[test]
fn only_what_is_missing_is_said() {
    let mut status = CaptureStatus { written: 7, ..CaptureStatus::default() };
    assert_eq!(status.complaint(), None);
    status.dropped = 3;
    let slow =
        "3 of 10 packets are missing in the capture: they came faster than they could be written";
    assert_eq!(status.complaint().as_deref(), Some(slow));
    status.failure = Some("cannot write: no space".into());
    let failed = "the capture ends after 7 packets, 3 are missing: cannot write: no space";
    assert_eq!(status.complaint().as_deref(), Some(failed));
}

fn interface() -> Interface {
    Interface { name: "ferroce_lo".into(), network: "lo".into(), mac: Some([0; 6]) }
}

fn open(path: &str, sources: &[SocketAddr]) -> Result<Arc<Tap>, CaptureError> {
    let file = Some((Path::new(path), CapturePolicy::Block));
    Tap::open(interface(), sources.iter().copied(), file)
}

#[test]
fn the_error_names_the_file_with_the_process_id() {
    let error = open("/nowhere/at/all-%p.pcapng", &[]).unwrap_err();
    let path = format!("/nowhere/at/all-{}.pcapng", std::process::id());
    assert_eq!(error.path, Path::new(&path));
    assert_eq!(error.source.kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().starts_with(&format!("cannot write the capture {path}: ")));
}

/// A packet of this process is recorded as sent. It is recorded as received only if it was corrupted on its way, or if the
/// address of its sender is not one of this process.
#[test]
fn a_packet_of_this_process_is_recorded_once() {
    let path = std::env::temp_dir().join(format!("ferroce-once-{}", std::process::id()));
    let [first, second, other] = [1, 2, 3].map(|host| SocketAddr::from(([192, 0, 2, host], 49152)));
    let tap = open(path.to_str().unwrap(), &[first]).unwrap();
    tap.add_source(second);
    assert!(tap.is_active() && !tap.is_live());
    let owner = Owner { queue_pair: Qpn(7), work: None };
    let headers = |source| Headers { source, destination: "192.0.2.1:4791".parse().unwrap() };
    let sent = |source| PacketMetadata::sent(headers(source), 0, None, 0, owner);
    let received = |source| {
        let identification = Identification::of_segment(0);
        PacketMetadata::received(headers(source), 0, None, identification, owner)
    };
    // The PSN numbers the packets.
    let packet = |psn| [&[0x0a, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, psn][..], &[0; 20]].concat();
    let packets = [
        sent(first),
        received(first),
        sent(second),
        received(second),
        received(second).corrupted(),
        received(other),
    ];
    for (number, metadata) in packets.iter().enumerate() {
        tap.record(metadata, &packet(number as u8));
    }
    tap.flush();
    let status = CaptureStatus { written: 4, dropped: 0, failure: None };
    assert_eq!((tap.status(), tap.dropped()), (Some(status.clone()), 0));
    assert!(captures().contains(&(path.clone(), status)));
    drop(tap);
    let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        // Ethernet, IPv4 and UDP precede the BTH, which ends with the PSN.
        records.push((record.data[14 + 20 + 8 + 11], record.direction.unwrap()));
    }
    let (outbound, inbound) = (Direction::Outbound, Direction::Inbound);
    assert_eq!(records, [(0, outbound), (2, outbound), (4, inbound), (5, inbound)]);
    fs::remove_file(path).unwrap();
}

#[test]
fn nothing_is_recorded_without_a_file_and_a_collector() {
    let tap = Tap::open(interface(), std::iter::empty(), None).unwrap();
    assert!(!tap.is_active());
    assert_eq!((tap.status(), tap.dropped()), (None, 0));
    // Returns at once.
    tap.flush();
}

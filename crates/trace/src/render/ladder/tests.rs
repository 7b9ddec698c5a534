use super::*;
use crate::analysis::anomaly::AnomalyKind;
use crate::render::samples::{drawn, lossy};

fn of_first(file: &FileReport, columns: usize, rows: Option<usize>) -> String {
    drawn(&ladder(file, &file.conversations[0], columns, rows))
}

#[test]
fn draws_loss_and_recovery() {
    assert_eq!(
        of_first(&lossy(), 90, Some(40)),
        "                A 10.0.0.1 QP 0x000011                              10.0.0.2 QP 0x000012 B
  frame     µs  │                                                                        │
      1     -5  ├═══ CM REQ  connect to TCP port 7471 from QP 0x000011 ═════════════════▶│
      2      0  ├─── RC RDMA WRITE First  PSN 0x000001  1024 of 6400 bytes → 0x10 ──────▶│
      3     10  ├─── … 4 × RC RDMA WRITE Middle …  PSN 0x000002–0x000005 ───────────────▶│
                ├╌╌╌ 1 request packet before PSN 0x000007 ╌╌╌╌╌╌✗                        │
      8     60  ├─── RC RDMA WRITE Last  PSN 0x000007  256 bytes ───────────────────────▶│
      9     70  │◀── RC NAK  PSN 0x000006  PSN sequence error  MSN 0 ────────────────────┤
                │    ↳ responder expects PSN 0x000006                                    │
                ┊                             2.00 ms later                              ┊
     10  2,070  ├╌╌╌ RC RDMA WRITE Middle  PSN 0x000006  1024 bytes ╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌▶│
                │    ↳ retransmitted                                                     │
     11  2,080  ├─── RC RDMA WRITE Last  PSN 0x000007  256 bytes ───────────────────────▶│
     12  2,100  │◀── RC ACK  PSN 0x000007  MSN 1 ────────────────────────────────────────┤
"
    );
}

#[test]
fn caption_counts_the_packets_of_the_ladder() {
    let file = lossy();
    let ladders = Ladders::new(&file);
    // Ten packets of the connection plus the REQ, which is 5 µs earlier.
    assert_eq!(ladders.caption(&file.conversations[0]), "11 packets in 2.10 ms");
    let mut late = file.conversations[0].clone();
    late.duration_ns = 0;
    assert_eq!(ladders.caption(&late), "11 packets in 5.00 µs");
}

#[test]
fn draws_every_packet_without_a_row_limit() {
    let text = of_first(&lossy(), 90, None);
    assert_eq!(text.matches("RC RDMA WRITE Middle").count(), 5, "{text}");
    assert!(!text.contains('…') && !text.contains("not drawn"), "{text}");
}

#[test]
fn anomalies_are_kept_under_a_row_limit() {
    let mut file = lossy();
    // Thirty uneventful packets before the loss.
    let (first, plain) = (file.packet_list[0].clone(), file.packet_list[9].clone());
    for frame in 100..130 {
        file.packet_list.push(crate::analysis::report::PacketRow { frame, ..plain.clone() });
    }
    file.packet_list.push(crate::analysis::report::PacketRow { frame: 130, ..first });
    file.conversations[0].a_to_b.packets += 31;
    let text = of_first(&file, 90, Some(20));
    assert!(text.contains("⋮ 30 packets without anomalies ⋮"), "{text}");
    assert!(text.contains('✗') && text.contains("↳ retransmitted"), "{text}");
    assert!(!text.contains("not drawn"), "{text}");

    let text = of_first(&file, 90, Some(5));
    assert!(text.ends_with("36 packets not drawn: --rows or --all                  ┊\n"), "{text}");
}

#[test]
fn a_narrow_ladder_wraps_its_labels() {
    let text = of_first(&lossy(), 56, Some(40));
    assert!(text.lines().all(|line| width(line) <= 56), "{text}");
    assert!(text.contains("│    1024 of 6400 bytes → 0x10         │"), "{text}");
}

#[test]
fn a_run_of_retransmissions_has_one_note() {
    let mut file = lossy();
    let mut retransmission = file.anomalies[2].clone();
    (retransmission.frame, retransmission.text) = (11, "PSN 0x000007 retransmitted".into());
    file.packet_list[8].notes = vec![retransmission.text.clone()];
    file.anomalies.push(retransmission);
    let text = of_first(&file, 90, Some(40));
    assert_eq!(text.matches("retransmitted").count(), 1, "{text}");
    assert_eq!(text.matches("╌▶│").count(), 2, "{text}");
}

#[test]
fn a_failed_connection_ends_with_the_reason() {
    let mut file = lossy();
    let mut end = file.anomalies[0].clone();
    (end.kind, end.severity) = (AnomalyKind::RetryExceeded, AnomalyKind::RetryExceeded.severity());
    end.text = "PSN 0x000006 got no response".into();
    file.anomalies.push(end);
    let text = of_first(&file, 90, Some(40));
    assert!(text.trim_end().ends_with('│'), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.contains("✗ PSN 0x000006 got no")));
}

#[test]
fn a_conversation_without_packets_has_no_ladder() {
    let mut file = lossy();
    (file.packet_list, file.cm) = Default::default();
    file.conversations[0].a_to_b.packets = 0;
    file.conversations[0].b_to_a.packets = 0;
    file.anomalies.clear();
    assert_eq!(of_first(&file, 90, Some(40)), "");
}

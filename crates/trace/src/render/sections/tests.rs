use super::*;
use crate::analysis::anomaly::{AnomalyKind, Severity};
use crate::analysis::report::{Anomaly, Finding, ProblemReport};
use crate::render::samples::{drawn, lossy};

fn view() -> View {
    View { columns: 100, ..View::default() }
}

#[test]
fn draws_a_whole_report() {
    let view = View { messages: true, packets: true, ..view() };
    let text = drawn(&report(&lossy(), &view));
    let expected = include_str!("tests/lossy.txt");
    assert!(text == expected, "the report is not that of tests/lossy.txt:\n{text}");
}

#[test]
fn errors_come_first_and_equal_findings_are_merged() {
    let mut file = lossy();
    let mut second = file.conversations[0].clone();
    second.id = 2;
    second.findings.push(Finding { severity: Severity::Error, text: "access refused".into() });
    file.conversations.push(second);
    let text = drawn(&diagnosis::diagnosis(&file, 100, 20));
    assert_eq!(
        text,
        "  ✗ #2  access refused
  ! #1 #2  2 packets retransmitted because of 1 × NAK, PSN sequence error
  • the ICRC of 1 packet cannot be checked: not all bytes were captured
"
    );
    let text = drawn(&diagnosis::diagnosis(&file, 100, 1));
    assert_eq!(text, "  ✗ #2  access refused\n  … and 2 more findings: --all\n");
}

#[test]
fn anomalies_without_a_conversation_are_diagnosed() {
    let refused = |frame| Anomaly {
        kind: AnomalyKind::CmReject,
        severity: Severity::Error,
        frame,
        segment: 0,
        time_ns: 0,
        conversation: None,
        psn: None,
        text: "no listener".into(),
    };
    let file = FileReport { anomalies: vec![refused(1), refused(3)], ..FileReport::default() };
    let text = drawn(&diagnosis::diagnosis(&file, 100, 20));
    assert_eq!(text, "  ✗ no listener (2 like this)\n");
}

#[test]
fn inexact_percentiles_are_marked() {
    let mut file = lossy();
    let exact = drawn(&operations::table(&file, 100));
    assert!(!exact.contains('≤'), "{exact}");
    file.latency.get_mut("RDMA_WRITE").unwrap().exact = false;
    let text = drawn(&operations::table(&file, 100));
    assert!(text.contains("  2.10 ms  ≤2.10 ms  ≤2.10 ms  ≤2.10 ms  2.10 ms\n"), "{text}");
    assert!(
        text.ends_with("≤ percentiles of many messages, at most 1/64 (1.6%) too high\n"),
        "{text}"
    );
}

#[test]
fn set_up_messages_omit_implied_fields() {
    let mut details = crate::analysis::report::Details::default();
    for name in ["message_type", "version", "status", "magic", "exchange", "attempt"] {
        details.push(name, "0".into());
    }
    let event = crate::analysis::report::SetupEvent {
        frame: 1,
        time_ns: 0,
        source: "10.0.0.1".into(),
        destination: "10.0.0.2".into(),
        message: "QP_CREATE_REQ",
        details,
    };
    let file = FileReport { setup: vec![event], ..FileReport::default() };
    let text = drawn(&management::setup(&file, 100, 20));
    assert!(text.ends_with("QP_CREATE_REQ  status 0, exchange 0, attempt 0\n"), "{text}");
}

#[test]
fn a_file_without_anomalies_is_reported_as_such() {
    let file = FileReport { roce_packets: 1, ..FileReport::default() };
    let text = drawn(&diagnosis::diagnosis(&file, 100, 20));
    assert!(text.starts_with("  ✓ no anomalies"), "{text}");
}

#[test]
fn truncated_lists_name_the_option_for_the_rest() {
    let mut file = lossy();
    file.anomalies = vec![file.anomalies[0].clone(); 30];
    file.anomaly_counts = [("missing_request", 40)].into();
    let text = drawn(&anomalies::list(&file, 100, 20));
    assert!(text.ends_with("  … and 20 more anomalies: --anomalies\n"), "{text}");
    let text = drawn(&anomalies::list(&file, 100, usize::MAX));
    assert!(text.ends_with("  … and 10 more anomalies\n"), "{text}");
}

#[test]
fn problems_have_positions() {
    let text = "the file is cut short".to_owned();
    let mut file = FileReport { path: "x".into(), problems_total: 3, ..FileReport::default() };
    file.problems.push(ProblemReport { frame: Some(12), offset: Some(3456), text: text.clone() });
    file.problems.push(ProblemReport { frame: None, offset: Some(9), text });
    assert_eq!(
        problem(&file.problems[0]),
        "frame 12 (byte 3456 of the file): the file is cut short"
    );
    assert_eq!(problem(&file.problems[1]), "byte 9 of the file: the file is cut short");
    assert_eq!(
        drawn(&report(&file, &view())),
        "x  not a capture file, 0 B

Problems
  frame   byte  problem
     12  3,456  the file is cut short
             9  the file is cut short
  … and 1 more like these
"
    );
}

#[test]
fn similar_problems_are_limited() {
    let mut file = FileReport { problems_total: 9, ..FileReport::default() };
    for frame in 1..=9 {
        let text = format!("snapped: {frame} of 1024 bytes captured");
        file.problems.push(ProblemReport { frame: Some(frame), offset: Some(frame), text });
    }
    let text = drawn(&head::problems(&file, 100, false));
    assert_eq!(text.lines().count(), 1 + 3 + 1, "{text}");
    assert!(text.ends_with("  … and 6 more like these: --all\n"), "{text}");
    assert_eq!(head::problems(&file, 100, true).len(), 1 + 9);
}

#[test]
fn limits_the_number_of_ladders() {
    let mut file = lossy();
    let first = file.conversations[0].clone();
    file.conversations = (1..=10).map(|id| Conversation { id, ..first.clone() }).collect();
    let ladders = |conversation, all| {
        let ladder = Some(LadderView { conversation, rows: Some(40) });
        let text = drawn(&report(&file, &View { ladder, all, ..view() }));
        (text.matches("\nLadder of conversation").count(), text)
    };
    let (count, text) = ladders(None, false);
    assert!(count == 8 && text.contains("… and 2 more conversations: --ladder=N"), "{text}");
    assert_eq!(ladders(None, true).0, 10);
    assert_eq!(ladders(Some(1), false).0, 1);
    assert!(ladders(Some(11), false).1.ends_with("  there is no conversation 11\n"));
}

#[test]
fn an_empty_file_has_no_sections() {
    let file = FileReport { path: "x".into(), format: "pcap".into(), ..FileReport::default() };
    assert_eq!(drawn(&report(&file, &view())), "x  pcap, 0 B\n  no packets\n");
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    for columns in [60, 80, 100, 120, 160] {
        let ladder = Some(LadderView { conversation: None, rows: Some(40) });
        let view = View { columns, messages: true, packets: true, ladder, ..View::default() };
        for line in report(&lossy(), &view) {
            assert!(line.width() <= columns, "{columns} columns: {line}");
        }
    }
}

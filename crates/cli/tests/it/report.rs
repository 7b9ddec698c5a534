//! `ferroce report` without a browser: files, figures, JSON, statuses. The page itself is tested in `tests/tests/report`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, success, text};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/rxe");

#[test]
fn a_page_is_written_for_its_owner() {
    let scratch = Scratch::new("report-page");
    let path = format!("{CAPTURES}/rnr.pcap");
    let said = success(&scratch.ferroce(&["report", &path]));
    assert!(said.contains("21 packets, all shown"), "{said}");
    assert!(said.contains("The receiver was not ready 3 times"), "{said}");
    assert!(said.contains("written to report.html"), "{said}");
    assert_eq!(scratch.files(), ["report.html"]);
    let mode = fs::metadata(scratch.path("report.html")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it contains payload and keys");
    let page = fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    // To standard output, and from standard input.
    let printed = success(&scratch.ferroce(&["report", "-o", "-", &path]));
    assert_eq!(printed, page);
    let mut command = scratch.command(FERROCE, &["report", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(&path).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let data: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&data["schema"], &data["files"][0]["packets"]),
        (&"ferroce-report/1".into(), &21.into())
    );
}

/// The only fault of this scenario is loss; `analyze` and `report` count it alike, and name no reordering.
#[test]
fn losses_are_one_number_and_anomalies_are_marked_all_the_time() {
    let scratch = Scratch::new("report-losses");
    let options = "--scenario lossy:0.02 --seed 26 --service rc --connections 6 --requests 200 --largest 65536";
    let options = ["simulate", "--capture", "x.pcapng"].into_iter().chain(options.split(' '));
    success(&scratch.ferroce(&options.collect::<Vec<_>>()));
    let data = |command: &str| -> Value {
        let text = success(&scratch.ferroce(&[command, "--json", "x.pcapng"]));
        serde_json::from_str::<Value>(&text).unwrap()["files"][0].take()
    };
    let (analysis, report) = (data("analyze"), data("report"));
    let counts = &analysis["anomaly_counts"];
    assert_eq!(counts["reordered"], Value::Null, "{counts}");
    let topics = report["topics"].as_array().unwrap();
    assert!(topics.iter().all(|topic| topic["id"] != "reordering"));
    let kinds = ["missing_request", "missing_response", "lost_after_capture"];
    let lost: u64 = kinds.iter().map(|kind| counts[kind].as_u64().unwrap()).sum();
    let loss = topics.iter().find(|topic| topic["id"] == "loss").unwrap();
    assert_eq!(loss["count"].as_u64(), Some(lost));
    let losses = analysis["losses"].as_object().unwrap();
    assert_eq!(losses.values().filter_map(Value::as_u64).sum::<u64>(), lost);
    let said = success(&scratch.ferroce(&["analyze", "x.pcapng"]));
    assert!(said.replace(',', "").contains(&format!("{lost} packets lost: ")), "{said}");
    // The charts mark a sample of the anomalies, from all of the time, and say of how many.
    let marks = report["marks"].as_array().unwrap();
    let all: u64 = counts.as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(marks.len() > 2_000 && all > 50_000, "{} of {all}", marks.len());
    assert_eq!(report["marks_left_out"].as_u64(), Some(all - marks.len() as u64));
    let end = report["duration_ns"].as_u64().unwrap();
    for tenth in 0..10 {
        let from = end * tenth / 10;
        let within =
            |mark: &&Value| (from..from + end / 10).contains(&mark["time_ns"].as_u64().unwrap());
        assert!(marks.iter().filter(within).count() > 5, "{tenth}");
    }
    success(&scratch.ferroce(&["report", "--svg", "timeline", "--svg", "psn", "x.pcapng"]));
    let said = format!("{} of ", marks.len());
    for name in ["timeline.svg", "psn.svg"] {
        let figure = fs::read_to_string(scratch.path(name)).unwrap();
        let text = figure.replace(',', "");
        assert!(text.contains(&said) && text.contains("anomalies marked"), "{name}");
    }
}

#[test]
fn every_figure_is_a_document() {
    let scratch = Scratch::new("report-svg");
    let path = format!("{CAPTURES}/loss_requests.pcap");
    let names = ["io", "latency", "in-flight", "psn", "timeline", "ladder", "conversations"];
    let options = names.iter().flat_map(|name| ["--svg", name]);
    let arguments: Vec<_> = ["report", &path].into_iter().chain(options).collect();
    success(&scratch.ferroce(&arguments));
    assert_eq!(scratch.files().len(), names.len(), "figures only: {:?}", scratch.files());
    for name in names {
        let figure = fs::read_to_string(scratch.path(&format!("{name}.svg"))).unwrap();
        assert!(figure.starts_with("<svg xmlns") && figure.ends_with("</svg>\n"), "{name}");
        assert_eq!(figure.matches('<').count(), figure.matches('>').count(), "{name}");
        assert!(figure.len() > 1_500, "{name}: {} bytes", figure.len());
    }
    let ladder = fs::read_to_string(scratch.path("ladder.svg")).unwrap();
    assert!(ladder.contains("RC NAK") && ladder.contains("not in the capture"), "{ladder}");
    let psn = fs::read_to_string(scratch.path("psn.svg")).unwrap();
    assert!(psn.contains("retransmitted"));
    // Another name, and a page as well.
    success(&scratch.ferroce(&["report", &path, "--svg", "io=a.svg", "-o", "b.html"]));
    assert!(["a.svg", "b.html"].iter().all(|name| scratch.files().contains(&(*name).to_owned())));
    let said = failure(&scratch.ferroce(&["report", &path, "--svg", "nonsense"]));
    assert!(said.contains("choose from io, latency"), "{said}");
    let help = success(&scratch.ferroce(&["report", "--help"]));
    assert!(names.iter().all(|name| help.contains(&format!("\n  {name} "))), "{help}");
}

#[test]
fn damaged_and_missing_files_are_reported_and_the_rest_is_shown() {
    let scratch = Scratch::new("report-damaged");
    let whole = fs::read(format!("{CAPTURES}/rnr.pcap")).unwrap();
    fs::write(scratch.path("cut.pcap"), &whole[..whole.len() - 3]).unwrap();
    fs::write(scratch.path("foreign.pcap"), "#!/bin/sh\necho hello\n").unwrap();
    let output = scratch.ferroce(&["report", "cut.pcap", "foreign.pcap"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("cut.pcap: byte ") && said.contains("foreign.pcap: "), "{said}");
    assert!(text(&output.stdout).contains("20 packets, all shown"), "{}", text(&output.stdout));
    let said = failure(&scratch.ferroce(&["report", "none.pcap", "-o", "x.html"]));
    assert!(said.contains("none.pcap: cannot read it: No such file"), "{said}");
    assert!(!scratch.files().contains(&"x.html".to_owned()));
    let said = failure(&scratch.ferroce(&["report", ".", "-o", "x.html"]));
    assert!(said.contains("directory"), "{said}");
}

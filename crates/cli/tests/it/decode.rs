//! `ferroce decode`, man pages and completions: runs the binary.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn ferroce(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
    command.args(arguments).env_remove("NO_COLOR").env("TERM", "xterm").stdin(Stdio::null());
    command
}

/// Runs the command with `input` on its standard input.
fn ferroce_reading(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may stop reading early.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn capture(name: &str) -> String {
    format!("{}/../../tests/data/rxe/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Writes a temporary file and returns its path.
fn scratch(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("decode-{name}"));
    std::fs::write(&path, bytes).unwrap();
    path.into_os_string().into_string().unwrap()
}

/// Returns the bytes of a frame of a little-endian pcap file.
fn frame_bytes(file: &str, number: usize) -> Vec<u8> {
    let bytes = std::fs::read(capture(file)).unwrap();
    let mut at = 24;
    for _ in 1..number {
        at += 16 + length_at(&bytes, at + 8);
    }
    bytes[at + 16..at + 16 + length_at(&bytes, at + 8)].to_vec()
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const WRITE: &str = "write_64_mtu1024.pcap";

#[test]
fn a_frame_is_printed_field_by_field() {
    let file = capture(WRITE);
    let output = ferroce(&["decode", &file, "1"]);
    assert_eq!((status(&output), err(&output)), (0, ""));
    let text = out(&output);
    assert!(text.starts_with("Frame 1  2026-"), "{text}");
    for line in [
        "RC RDMA WRITE Only  QP 0x000023  PSN 0xad863e  64 bytes → 0x00005629969ba000 rkey 0x00001770",
        "BTH  bytes 42–53  RC RDMA WRITE Only  QP 0x000023  PSN 0xad863e",
        "   42  0a                       opcode            0x0a                RC_RDMA_WRITE_ONLY · Opcode: operation \
         and extension headers.",
        "   43  ..00....                 pad               0                   Pad bytes after the payload, to a \
         multiple of 4.",
        "   70  67 d4 14 0b 5a b5 45 12  b0 93 c1 58 4a f1 f2 20  g...Z.E....XJ.. ",
        "ICRC  bytes 134–137  correct",
    ] {
        assert!(text.lines().any(|found| found == line), "missing: {line}\n{text}");
    }
    assert!(!text.contains("reserved"));
    assert!(out(&ferroce(&["decode", "--all", &file, "1"])).contains("reserved1"));
    let named = ferroce(&["decode", "--file", &file, "--frame", "1"]);
    assert_eq!(out(&named), text);
}

#[test]
fn frames_are_listed_without_a_selection() {
    let output = ferroce(&["decode", &capture("rnr.pcap")]);
    assert_eq!((status(&output), err(&output)), (0, ""));
    assert_eq!(out(&output).lines().count(), 21);
    let fourth = out(&output).lines().nth(3).unwrap();
    assert!(fourth.ends_with(
        "10.77.0.11 → 10.77.0.12  RC RNR NAK  QP 0x00003d  PSN 0x001000  wait 1.28 ms  MSN 0"
    ));
}

#[test]
fn ranges_select_frames_in_file_order() {
    let output = ferroce(&["decode", &capture(WRITE), "9-", "2-3", "5"]);
    assert_eq!((status(&output), err(&output)), (0, ""));
    let titles: Vec<_> = out(&output).lines().filter(|line| line.starts_with("Frame ")).collect();
    let numbers: Vec<_> = titles.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(numbers, ["2", "3", "5", "9", "10"]);
}

#[test]
fn hexadecimal_input_is_read_in_every_notation() {
    let bytes = frame_bytes(WRITE, 1);
    let digits = hex(&bytes);
    let spaced: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let plain = ferroce(&["decode", &digits]);
    assert_eq!((status(&plain), err(&plain)), (0, ""));
    assert!(out(&plain).starts_with("138 bytes, read as Ethernet, guessed"));
    assert!(out(&plain).contains("ICRC  bytes 134–137  correct"));
    for text in [spaced.join(" "), spaced.join(":"), format!("0x{digits}"), spaced.join("\n")] {
        assert_eq!(out(&ferroce(&["decode", &text])), out(&plain));
        assert_eq!(out(&ferroce_reading(&["decode", "-"], text.as_bytes())), out(&plain));
    }
    let ip = ferroce(&["decode", &digits[28..]]);
    assert_eq!(status(&ip), 0);
    assert!(out(&ip).starts_with("124 bytes, read as IP, guessed"));
    let ip = ferroce(&["decode", "--link", "ip", &digits[28..]]);
    assert!(out(&ip).starts_with("124 bytes, read as IP\n"));
}

#[test]
fn a_capture_is_read_from_standard_input() {
    let bytes = std::fs::read(capture(WRITE)).unwrap();
    let listed = ferroce_reading(&["decode", "-"], &bytes);
    assert_eq!((status(&listed), err(&listed)), (0, ""));
    assert_eq!(out(&listed), out(&ferroce(&["decode", &capture(WRITE)])));
    let shown = ferroce_reading(&["decode", "-", "3"], &bytes);
    assert_eq!(out(&shown), out(&ferroce(&["decode", &capture(WRITE), "3"])));
}

#[test]
fn json_contains_the_whole_tree() {
    let output = ferroce(&["decode", "--json", &capture(WRITE), "1", "6"]);
    assert_eq!((status(&output), err(&output)), (0, ""));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = json["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[1]["number"], 6);
    let frame = &frames[0];
    assert_eq!((&frame["source"], &frame["captured_len"]), (&"10.77.0.12".into(), &138.into()));
    assert_eq!(frame["problems"], Value::Array(Vec::new()));
    let layers = frame["layers"].as_array().unwrap();
    let layer = |name: &str| layers.iter().find(|layer| layer["name"] == name).unwrap();
    let opcode = &layer("BTH")["fields"][0];
    assert_eq!(opcode["meaning"], "RC_RDMA_WRITE_ONLY");
    assert_eq!((&opcode["bytes"], &opcode["offset"]), (&"0a".into(), &42.into()));
    assert_eq!(layer("ICRC")["fields"][0]["verdict"], "correct");
    // The fields cover all bytes, in order.
    let data = layer("Payload")["data"].as_str().unwrap();
    assert_eq!(data, hex(&frame_bytes(WRITE, 1)[70..134]));

    let digits = hex(&frame_bytes(WRITE, 6));
    let json: Value =
        serde_json::from_slice(&ferroce(&["decode", "--json", &digits]).stdout).unwrap();
    assert_eq!(json["frames"][0]["layers"], frames[1]["layers"]);
}

#[test]
fn invalid_hexadecimal_is_reported_with_its_position() {
    for (text, message) in [
        ("52zz", "\"52zz\" is neither a file nor a frame in hexadecimal: 'z' at character 3"),
        ("525", "odd number of hexadecimal digits (3)"),
        ("", "no hexadecimal digits"),
    ] {
        let output = ferroce(&["decode", text]);
        assert_eq!((status(&output), out(&output)), (2, ""), "{text}");
        assert!(err(&output).starts_with("ferroce: ") && err(&output).contains(message), "{text}");
    }
    let output = ferroce_reading(&["decode", "-"], b"52 54 xy");
    assert_eq!(status(&output), 2);
    assert!(
        err(&output).contains("standard input: not a frame in hexadecimal: 'x' at character 7")
    );
}

#[test]
fn unreadable_files_are_reported_by_name() {
    let output = ferroce(&["decode", "no/such/file.pcap", "1"]);
    assert_eq!((status(&output), out(&output)), (1, ""));
    assert_eq!(
        err(&output),
        "ferroce: no/such/file.pcap: cannot read it: No such file or directory\n"
    );
    let output = ferroce(&["decode", "no-such-file.pcap"]);
    assert_eq!(status(&output), 1);

    let foreign = scratch("foreign.pcap", b"this is not a capture");
    let output = ferroce(&["decode", &foreign, "1"]);
    assert_eq!((status(&output), out(&output)), (2, ""));
    assert!(err(&output).contains("foreign.pcap: not a pcap or pcapng file"), "{}", err(&output));
}

#[test]
fn a_missing_frame_is_reported() {
    let output = ferroce(&["decode", &capture(WRITE), "12"]);
    assert_eq!((status(&output), out(&output)), (1, ""));
    let message = format!("{WRITE}: frame 12 does not exist: the file has 10 frames\n");
    assert!(err(&output).ends_with(&message), "{}", err(&output));

    let output = ferroce(&["decode", &capture(WRITE), "9-14"]);
    assert_eq!(status(&output), 1);
    assert!(out(&output).contains("Frame 10 "));
    assert!(err(&output).contains("frames 11 to 14 do not exist"));
}

#[test]
fn a_truncated_file_is_printed_up_to_the_damage() {
    let bytes = std::fs::read(capture(WRITE)).unwrap();
    let cut = scratch("cut.pcap", &bytes[..500]);
    let output = ferroce(&["decode", &cut]);
    assert_eq!((status(&output), out(&output).lines().count()), (2, 3));
    assert!(
        err(&output).contains("cut.pcap: at byte 486: the file is cut short"),
        "{}",
        err(&output)
    );
    let output = ferroce(&["decode", &cut, "7"]);
    assert_eq!(status(&output), 2);
    assert!(err(&output).contains("frame 7 does not exist: only 3 frames could be read"));
    // The selected frame lies before the damage.
    assert_eq!(status(&ferroce(&["decode", &cut, "3"])), 0);
    let json = ferroce(&["decode", "--json", &cut]);
    assert_eq!(status(&json), 2);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["frames"].as_array().unwrap().len(), 3);
}

#[test]
fn a_malformed_frame_is_printed_with_its_error() {
    let mut bytes = frame_bytes(WRITE, 1);
    bytes[80] ^= 1;
    let output = ferroce(&["decode", &hex(&bytes)]);
    assert_eq!(status(&output), 2);
    assert!(out(&output).contains("✗ at byte 134: the ICRC is 0x51f08064, should be 0x"));
    assert!(err(&output).contains("at byte 134: the ICRC is 0x51f08064, should be 0x"));

    let output = ferroce(&["decode", &hex(&bytes[..60])]);
    assert_eq!(status(&output), 2);
    assert!(out(&output).contains("BTH  bytes 42–53"));
    assert!(err(&output).contains("at byte 54: RETH has 16 bytes, but only 6 were captured"));
}

#[test]
fn color_needs_a_terminal_or_the_option() {
    let file = capture(WRITE);
    assert!(!out(&ferroce(&["decode", &file, "1"])).contains('\x1b'));
    assert!(!out(&ferroce(&["decode", &file, "1", "--color", "never"])).contains('\x1b'));
    let colored = ferroce(&["--color", "always", "decode", &file, "1"]);
    assert!(out(&colored).contains("\x1b["));
    assert!(out(&ferroce(&["--color=always", "decode", "--help"])).contains("\x1b["));
    assert!(!out(&ferroce(&["decode", "--help"])).contains('\x1b'));
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let mut child = command(&["decode", &capture("psn_wrap.pcap"), "1-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), err(&output)), (0, ""));
}

#[test]
fn usage_errors_print_a_hint() {
    for arguments in [
        &["decode"][..],
        &["decode", "--bogus"],
        &["decode", "file.pcap", "zero"],
        &["decode", "file.pcap", "0"],
        &["decode", "--link", "nothing", "5254"],
        &["bogus"],
        &[],
    ] {
        let output = ferroce(arguments);
        assert_eq!((status(&output), out(&output)), (1, ""), "{arguments:?}");
        assert!(err(&output).contains("Usage") || err(&output).contains("--help"));
    }
}

#[test]
fn help_has_examples_and_exit_statuses() {
    for arguments in
        [&["--help"][..], &["decode", "--help"], &["analyze", "--help"], &["man", "-h"]]
    {
        let output = ferroce(arguments);
        assert_eq!((status(&output), err(&output)), (0, ""), "{arguments:?}");
        assert!(out(&output).contains("Exit status:"), "{arguments:?}");
    }
    assert!(out(&ferroce(&["decode", "--help"])).contains("Examples:"));
    let version = ferroce(&["--version"]);
    assert_eq!(out(&version), format!("ferroce {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_man_pages_are_generated() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ferroce(&["completions", shell]);
        assert_eq!((status(&output), err(&output)), (0, ""), "{shell}");
        assert!(out(&output).contains("decode"), "{shell}");
    }
    let page = ferroce(&["man"]);
    assert_eq!((status(&page), err(&page)), (0, ""));
    assert!(out(&page).contains(".TH ferroce 1"));

    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    assert_eq!(status(&ferroce(&["man", "--dir", dir.to_str().unwrap()])), 0);
    for page in ["ferroce.1", "ferroce-decode.1", "ferroce-analyze.1"] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(".SH EXAMPLES") || text.contains(".SH \"EXAMPLES\""), "{page}");
    }
}

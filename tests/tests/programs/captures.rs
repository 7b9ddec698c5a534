//! `--capture` with programs of the table: tshark finds nothing malformed in the file, and our analysis finds every
//! ICRC correct.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferroce_trace::analysis::{Options, analyze};

use super::pair::{self, End};
use ferroce_tests::managed::{self, Ready, Server};
use ferroce_tests::tool;

fn file(test: &str, end: End) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{end:?}.pcapng"));
    let _ = fs::remove_file(&path);
    path
}

fn captured(test: &str, name: &str, arguments: &str) {
    let files = [file(test, End::Server), file(test, End::Client)];
    let said = pair::changed(name, arguments, |end, command| {
        command.env("FERROCE_CAPTURE", &files[usize::from(end == End::Client)]);
    });
    if said.is_some() {
        files.iter().for_each(|path| checked(path));
    }
}

/// Checks a file, and removes it.
fn checked(path: &Path) {
    let input = File::open(path).expect("the capture is there");
    let report = analyze(&path.to_string_lossy(), input, &Options::default(), &mut |_| {});
    assert!(
        report.roce_packets > 0 && report.problems.is_empty(),
        "{}: {:?}",
        path.display(),
        report.problems
    );
    assert_eq!(report.icrc.ok, report.roce_packets, "{}: {:?}", path.display(), report.icrc);
    assert_eq!(tool::tshark_packets(path), report.roce_packets, "{}", path.display());
    fs::remove_file(path).expect("it is there");
}

/// librdmacm closes no device, and the process exits before the capture's buffer would be flushed by its timer.
#[test]
fn capture_is_complete_without_closing_the_device() {
    let files = [file("closes_nothing", End::Server), file("closes_nothing", End::Client)];
    let [server, client] = files.each_ref().map(|path| path.display());
    let said = managed::run(
        &format!("env FERROCE_CAPTURE={server} rping -s -a 127.0.0.1 -C 3"),
        &format!("env FERROCE_CAPTURE={client} rping -c -a 127.0.0.1 -C 3"),
        Ready::Listens(7174),
        Server::Ends,
    );
    if said.is_some() {
        files.iter().for_each(|path| checked(path));
    }
}

/// A file size limit acts like a full disk: the program continues, and reports it at its end.
#[test]
fn a_full_disk_is_reported() {
    let capture = file("full", End::Client);
    let script = capture.with_extension("sh");
    // In blocks of 512 bytes. SIGXFSZ would end the program.
    let lines = format!(
        "trap '' XFSZ; ulimit -f 8; FERROCE_CAPTURE={} exec rping -c -a 127.0.0.1 -C 100",
        capture.display()
    );
    fs::write(&script, lines).expect("the script is written");
    let said = managed::run(
        "rping -s -a 127.0.0.1 -C 100",
        &format!("sh {}", script.display()),
        Ready::Listens(7174),
        Server::Ends,
    );
    if let Some([_, client]) = said {
        let wanted = format!("ferroce: {}: the capture ends after ", capture.display());
        assert!(client.contains(&wanted) && client.contains("File too large"), "{client}");
    }
}

macro_rules! captures {
    ($( $test:ident: $program:literal $arguments:literal; )+) => {$(
        #[test]
        fn $test() {
            captured(stringify!($test), $program, $arguments);
        }
    )+};
}

captures! {
    capture_rc_pingpong:  "ibv_rc_pingpong"   "-n 20 -s 5001";
    capture_ud_pingpong:  "ibv_ud_pingpong"   "-n 20";
    capture_xrc_pingpong: "ibv_xsrq_pingpong" "-n 20";
    capture_write_bw_uc:  "ib_write_bw"       "-c UC -n 20 -s 9001";
    capture_read_bw:      "ib_read_bw"        "-n 20 -s 9001";
    capture_swap_lat:     "ib_atomic_lat"     "-A CMP_AND_SWAP -n 20";
}

mod full {
    use super::*;

    captures! {
        capture_uc_pingpong:  "ibv_uc_pingpong"   "-n 20";
        capture_srq_pingpong: "ibv_srq_pingpong"  "-n 20 -q 4";
        capture_write_bw:     "ib_write_bw"       "-n 20 -s 9001";
        capture_write_xrc:    "ib_write_bw"       "-c XRC -n 20 -s 9001";
        capture_send_ud:      "ib_send_lat"       "-c UD -n 20";
        capture_send_uc:      "ib_send_lat"       "-c UC -n 20";
        capture_atomic_bw:    "ib_atomic_bw"      "-n 20";
    }
}

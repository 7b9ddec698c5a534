//! Third-party programs that ours are compared with. `make setup` installs them.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Heuristic dissectors of payloads, which would make tshark report whole packets as malformed.
const DISABLED_HEURISTICS: [&str; 3] = ["rpcordma", "infiniband.eoib", "infiniband_sdp"];

/// Returns Debian's Python 3, which has Debian's scapy.
pub fn python() -> Command {
    Command::new("/usr/bin/python3")
}

/// Returns tshark's dissection of the InfiniBand packets in a file, as PDML.
pub fn tshark_pdml(capture: &Path) -> String {
    let mut command = Command::new("tshark");
    // -n: numeric addresses. The user's configuration is ignored: a profile may change the output.
    command.args(["-n", "-T", "pdml", "-Y", "infiniband", "-r"]).arg(capture);
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent");
    for protocol in DISABLED_HEURISTICS {
        command.args(["--disable-protocol", protocol]);
    }
    String::from_utf8(run(&mut command)).expect("tshark prints UTF-8")
}

/// How tshark marks a malformed packet of any protocol, and one of InfiniBand.
const MALFORMED: &str = "[Malformed Packet: ";
const MALFORMED_INFINIBAND: &str = "[Malformed Packet: IB]";

/// Whether tshark reports a packet of a protocol other than InfiniBand as malformed. Behind the headers of InfiniBand, that is a wrong
/// guess at the payload: two bytes, which padding makes four, may be one of the 139 EtherTypes that it knows. Neither
/// `--disable-protocol ethertype` nor `-d infiniband,data` prevents it.
pub fn is_other_malformed(text: &str) -> bool {
    text.contains(MALFORMED) && !text.contains(MALFORMED_INFINIBAND)
}

/// Returns the number of packets that tshark dissects as InfiniBand. Panics if one is malformed.
pub fn tshark_packets(capture: &Path) -> u64 {
    let mut command = Command::new("tshark");
    let fields = ["-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed"];
    command.args(["-n", "-r"]).arg(capture).args(fields);
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent");
    for protocol in DISABLED_HEURISTICS {
        command.args(["--disable-protocol", protocol]);
    }
    let mut packets = 0;
    for (line, number) in String::from_utf8_lossy(&run(&mut command)).lines().zip(1..) {
        let (opcode, malformed) = line.split_once('\t').unwrap_or((line, ""));
        let is_guess = !opcode.is_empty() && is_other_malformed(malformed);
        let is_well_formed = malformed.is_empty() || is_guess;
        assert!(is_well_formed, "{}: packet {number}: {malformed}", capture.display());
        packets += u64::from(!opcode.is_empty());
    }
    packets
}

/// Returns the output of a program. Panics if it is missing or fails.
pub fn run(command: &mut Command) -> Vec<u8> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{program} is not installed: run `make setup`"),
        _ => panic!("{program}: {error}"),
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {}: {said}", output.status);
    output.stdout
}

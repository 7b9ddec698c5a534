//! Other people's programs, which ours are compared with. `make setup` installs them.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// What tshark guesses of payloads is no part of the comparison, and makes it call whole packets malformed.
const NO_GUESSES: [&str; 3] = ["rpcordma", "infiniband.eoib", "infiniband_sdp"];

/// Debian's Python 3, which has Debian's scapy.
pub fn python() -> Command {
    Command::new("/usr/bin/python3")
}

/// All that tshark knows of the InfiniBand packets in a file, in its packet details markup language.
pub fn tshark_pdml(capture: &Path) -> String {
    let mut command = Command::new("tshark");
    // -n: addresses as they are. Nothing of the user's own configuration: a profile may change what is printed.
    command.args(["-n", "-T", "pdml", "-Y", "infiniband", "-r"]).arg(capture);
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("HOME", "/nonexistent");
    for protocol in NO_GUESSES {
        command.args(["--disable-protocol", protocol]);
    }
    String::from_utf8(run(&mut command)).expect("tshark prints UTF-8")
}

/// What a program prints. Panics when it is missing or fails.
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

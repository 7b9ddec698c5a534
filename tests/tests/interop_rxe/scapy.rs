//! Checks the ICRC of packets at the bridge, in both directions, with scapy, which shares no code with either side.

use std::fs;
use std::path::Path;

use ferroce_tests::capture::Recorded;
use ferroce_tests::tool;

/// Packets that are checked per cell: each takes a millisecond.
const MAX_PACKETS_PER_CELL: usize = 30;
/// The length of an Ethernet header.
const ETHERNET: usize = 14;

/// Packets, from IP header to ICRC.
#[derive(Default)]
pub(crate) struct Sample {
    packets: Vec<Vec<u8>>,
}

/// Returns the packet without its Ethernet header and padding.
fn packet(frame: &[u8]) -> &[u8] {
    let ip = &frame[ETHERNET..];
    let word = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    let length = if ip[0] >> 4 == 4 { word(2) } else { 40 + word(4) };
    &ip[..length]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Sample {
    /// Adds packets from the whole length of a capture.
    pub(crate) fn add(&mut self, recorded: &[Recorded]) {
        let step = recorded.len().div_ceil(MAX_PACKETS_PER_CELL).max(1);
        // An odd step, so that both directions of a ping-pong are included.
        let some = recorded.iter().step_by(step | 1);
        self.packets.extend(some.map(|one| packet(&one.data).to_vec()));
    }

    /// Compares the ICRCs that were sent with scapy's.
    pub(crate) fn check(&self, file: &Path) {
        let blank = |packet: &Vec<u8>| hex(&packet[..packet.len() - 4]) + "00000000\n";
        fs::write(file, self.packets.iter().map(blank).collect::<String>()).expect("a file");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scapy/icrc.py");
        let printed = tool::run(tool::python().arg(script).arg(file));
        let computed = String::from_utf8(printed).expect("text");
        let computed: Vec<&str> = computed.lines().collect();
        assert_eq!(computed.len(), self.packets.len());
        for (packet, computed) in self.packets.iter().zip(computed) {
            let sent = hex(&packet[packet.len() - 4..]);
            assert_eq!(sent, computed, "{}", hex(packet));
        }
        eprintln!("scapy agrees on the ICRC of {} packets", self.packets.len());
    }
}

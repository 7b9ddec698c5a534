//! The RoCE packets of the captures in `tests/data/rxe`, by no code of the crates under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferroce_wire::icrc::Encapsulation;

/// A packet without what Ethernet puts around it: IP header to ICRC.
pub(crate) struct Packet {
    /// The file it is in, and its number there.
    pub(crate) name: String,
    pub(crate) time: Duration,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) bytes: Vec<u8>,
}

/// The packets of each file, in the order of their names.
pub(crate) fn captures() -> Vec<Vec<Packet>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/rxe");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| packets(path)).collect()
}

/// The packets of a classic pcap file of Ethernet, little-endian, in microseconds or nanoseconds.
fn packets(path: &Path) -> Vec<Packet> {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let fraction_is = match word(0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        magic => panic!("{}: {magic:#x} is no magic number known here", path.display()),
    };
    assert_eq!(word(20), 1, "{}: not Ethernet", path.display());
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < file.len() {
        let length = word(at + 8) as usize;
        let name = format!("{} {}", path.file_stem().unwrap().to_string_lossy(), packets.len() + 1);
        assert_eq!(word(at + 8), word(at + 12), "{name}: cut short");
        let (encapsulation, bytes) = packet(&file[at + 16..at + 16 + length]);
        let time = Duration::new(word(at).into(), word(at + 4) * fraction_is);
        packets.push(Packet { name, time, encapsulation, bytes: bytes.to_vec() });
        at += 16 + length;
    }
    packets
}

/// What a frame carries, without padding behind it. All frames of the captures are RoCEv2.
fn packet(frame: &[u8]) -> (Encapsulation, &[u8]) {
    let length = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    match frame[12..14] {
        [0x08, 0x00] => (Encapsulation::Ipv4, &frame[14..14 + length(14 + 2)]),
        [0x86, 0xdd] => (Encapsulation::Ipv6, &frame[14..14 + 40 + length(14 + 4)]),
        _ => panic!("neither IPv4 nor IPv6"),
    }
}

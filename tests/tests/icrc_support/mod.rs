//! Reads the RoCE packets of the captures in `tests/data/rxe`, without code of the crates under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferroce_wire::icrc::Encapsulation;

/// A packet from its IP header to its ICRC.
pub(crate) struct Packet {
    /// The file it is in, and its number there.
    pub(crate) name: String,
    pub(crate) time: Duration,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the packets of each file, ordered by name.
pub(crate) fn captures() -> Vec<Vec<Packet>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/rxe");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| packets(path)).collect()
}

/// Reads a classic pcap file of Ethernet, little-endian, with microsecond or nanosecond timestamps.
fn packets(path: &Path) -> Vec<Packet> {
    let file = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let fraction_is = match word(0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        magic => panic!("{}: unknown magic number {magic:#x}", path.display()),
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

/// Returns the packet of a frame, without trailing padding. All frames of the captures are RoCEv2.
fn packet(frame: &[u8]) -> (Encapsulation, &[u8]) {
    let length = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    match frame[12..14] {
        [0x08, 0x00] => (Encapsulation::Ipv4, &frame[14..14 + length(14 + 2)]),
        [0x86, 0xdd] => (Encapsulation::Ipv6, &frame[14..14 + 40 + length(14 + 4)]),
        _ => panic!("neither IPv4 nor IPv6"),
    }
}

//! Capture files: those in `tests/data`, and those that a test writes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ferroce_trace::dissect;
use ferroce_trace::file::{CaptureReader, Packet, PcapngWriter, Timestamp};
use ferroce_trace::link::LinkType;
use ferroce_wire::frame::Frame;

/// One packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number in the file, from 1.
    pub number: u64,
    /// The time of capture, if the file has it.
    pub time: Option<Timestamp>,
    /// The link layer of the bytes.
    pub link: LinkType,
    /// Its length on the wire.
    pub original_len: usize,
    /// The bytes captured.
    pub data: Vec<u8>,
}

impl Recorded {
    /// Returns its frame, and the offset of the frame in the record.
    pub fn frame(&self) -> (usize, Frame<'_>) {
        dissect::read(self.link, &self.data, self.original_len)
            .unwrap_or_else(|error| panic!("packet {}: {error}", self.number))
            .unwrap_or_else(|| panic!("packet {} has only a link layer", self.number))
    }
}

/// Returns the captures of the kernel's Soft-RoCE (rdma_rxe), ordered by name: see the README beside them.
pub fn rxe() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/rxe");
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    assert!(!files.is_empty(), "no captures in {}", folder.display());
    files
}

/// Returns the name of a capture without folder and extension.
pub fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads all packets of a file, pcap or pcapng.
pub fn read(path: &Path) -> Vec<Recorded> {
    let fail = |error: &dyn std::error::Error| -> ! { panic!("{}: {error}", path.display()) };
    let file = File::open(path).unwrap_or_else(|error| fail(&error));
    let mut reader = CaptureReader::new(file).unwrap_or_else(|error| fail(&error));
    let mut packets = Vec::new();
    while let Some(record) = reader.next_record().unwrap_or_else(|error| fail(&error)) {
        packets.push(Recorded {
            number: record.number,
            time: record.timestamp,
            link: record.link,
            original_len: record.original_len as usize,
            data: record.data.to_vec(),
        });
    }
    packets
}

/// Writes a pcapng file with one interface per link type of the packets.
pub fn write(path: &Path, packets: &[(LinkType, Vec<u8>)]) {
    let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let written = || -> Result<(), Box<dyn std::error::Error>> {
        let mut writer = PcapngWriter::new(file)?;
        let mut interfaces: Vec<(LinkType, u32)> = Vec::new();
        for (index, (link, data)) in packets.iter().enumerate() {
            let known = interfaces.iter().find(|(known, _)| known == link);
            let interface = match known {
                Some((_, interface)) => *interface,
                None => {
                    let interface = writer.add_interface(*link, link.name())?;
                    interfaces.push((*link, interface));
                    interface
                }
            };
            let time = Timestamp::from_nanoseconds(1_700_000_000_000_000_000 + index as i64 * 1000);
            writer.write(&Packet::new(time, data).on_interface(interface))?;
        }
        writer.finish()?;
        Ok(())
    };
    written().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

//! The writer thread of a capture: builds frames and writes them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ferroce_sys::file_lock;
use ferroce_trace::file::{Batch, LinkType, Packet, PcapngWriter, Timestamp, WriteError};
use ferroce_wire::opcode::Opcode;

use super::capture::Interface;
use super::chunk::{Chunk, real_time};
use super::frame::{self, Comments};
use super::metadata::PacketMetadata;

/// The maximum number of packets per write call: each has two slices, and the system takes 1024.
const MAX_PACKETS_PER_WRITE: usize = 500;

/// The destination of a capture.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    /// The existing file and the new one, which replaces it with the first packet.
    pub(super) replaces: Option<(PathBuf, PathBuf)>,
}

impl Output {
    /// Opens the file with access for its owner only, as it holds payload and keys. The existing content stays until
    /// the first packet is written, so that a program that fails to start destroys nothing.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let there = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
        if there {
            let old = OpenOptions::new().write(true).open(path)?;
            lock(&old)?;
            let target = fs::canonicalize(path)?;
            let mut temporary = target.clone().into_os_string();
            temporary.push(".partial");
            let temporary = PathBuf::from(temporary);
            // If the directory does not allow new files, the file is written in place.
            if let Ok(file) = open_private(&temporary) {
                return Ok(Self { file: own(file)?, replaces: Some((temporary, target)) });
            }
        }
        let file = own(open_private(path)?)?;
        Ok(Self { file, replaces: None })
    }

    /// Reopens a file that this process has written, to append to it.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        lock(&file)?;
        Ok(Self { file, replaces: None })
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).mode(0o600).create(true).truncate(false).open(path)
}

/// Locks a file: two writers would corrupt it. Devices such as /dev/null may have any number of writers. Returns whether it is
/// a file.
fn lock(file: &File) -> io::Result<bool> {
    let is_file = file.metadata()?.is_file();
    if is_file && !file_lock::try_lock_exclusive(file)? {
        return Err(io::Error::other("another process writes it: put %p into its name"));
    }
    Ok(is_file)
}

/// Locks and truncates a file.
fn own(file: File) -> io::Result<File> {
    if lock(&file)? {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Makes frames and writes them.
pub(super) struct Writer {
    file: PcapngWriter<File>,
    replaces: Option<(PathBuf, PathBuf)>,
    interfaces: Vec<Interface>,
    /// Packets written per interface.
    packets: Vec<u64>,
    headers: Vec<u8>,
    comments: Comments,
}

impl Writer {
    pub(super) fn new(output: Output, first: &Interface) -> Result<Self, WriteError> {
        let mut writer = Self {
            file: PcapngWriter::new(output.file)?,
            replaces: output.replaces,
            interfaces: Vec::new(),
            packets: Vec::new(),
            headers: Vec::new(),
            comments: Comments::default(),
        };
        let begun = writer.add(first).and_then(|()| writer.file.flush());
        // A full disk shows up here.
        if let (Err(_), Some((temporary, _))) = (&begun, &writer.replaces) {
            let _ = fs::remove_file(temporary);
        }
        begun.map(|()| writer)
    }

    fn add(&mut self, interface: &Interface) -> Result<(), WriteError> {
        self.file.add_interface(LinkType::ETHERNET, Some(&interface.name))?;
        self.interfaces.push(interface.clone());
        self.packets.push(0);
        Ok(())
    }

    /// Writes a chunk. After an error, nothing of it is in the file, which is valid.
    pub(super) fn write(
        &mut self,
        interfaces: &[Interface],
        chunk: &Chunk,
    ) -> Result<(), WriteError> {
        let (end, packets) = (self.file.get_mut().stream_position(), self.packets.clone());
        let written = self.write_all(interfaces, chunk);
        // The rest of an interface's description would be written later, where the file ends now.
        if let (Err(_), Ok(end), false) = (&written, end, self.file.is_buffering()) {
            let file = self.file.get_mut();
            // A pipe has no end to cut off.
            let _ = file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end)));
            self.packets = packets;
        }
        written
    }

    fn write_all(&mut self, interfaces: &[Interface], chunk: &Chunk) -> Result<(), WriteError> {
        for interface in interfaces {
            self.add(interface)?;
        }
        let mut bytes = &chunk.bytes[..];
        let mut entries = chunk.entries.iter().enumerate().peekable();
        while entries.peek().is_some() {
            let mut batch = Batch::default();
            for (position, entry) in entries.by_ref().take(MAX_PACKETS_PER_WRITE) {
                let (packet, rest) = bytes.split_at(entry.length.min(bytes.len()));
                bytes = rest;
                let index = entry.interface as usize;
                let Some(interface) = self.interfaces.get(index) else { continue };
                frame::headers(interface, &entry.metadata, packet, &mut self.headers);
                let time = i64::try_from(entry.time).unwrap_or(i64::MAX);
                let PacketMetadata { direction, owner, .. } = entry.metadata;
                let opcode = Opcode(packet.first().copied().unwrap_or_default());
                let comment = self.comments.of(direction, owner, opcode);
                let reason = chunk.reasons.iter().find(|(of, _)| *of == position);
                let with_reason = reason.map(|(_, reason)| format!("{comment}\n{reason}"));
                let record = Packet::new(Timestamp::from_nanoseconds(time), &self.headers)
                    .on_interface(entry.interface)
                    .going(direction)
                    .after_dropped(entry.dropped)
                    .with_comment(with_reason.as_deref().unwrap_or(comment));
                batch.add(&record, packet)?;
                self.packets[index] += 1;
            }
            self.file.write_batch(batch)?;
        }
        if chunk.entries.is_empty() { Ok(()) } else { self.take_place() }
    }

    /// Replaces the existing file when the first packet is written.
    fn take_place(&mut self) -> Result<(), WriteError> {
        if let Some((temporary, target)) = self.replaces.take() {
            if let Err(error) = fs::rename(&temporary, target) {
                let _ = fs::remove_file(temporary);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Records dropped packets and ends the file. Without packets, the existing file stays.
    pub(super) fn end(&mut self, dropped: &[u64]) -> Result<(), WriteError> {
        if let Some((temporary, _)) = self.replaces.take() {
            return Ok(fs::remove_file(temporary)?);
        }
        let now = i64::try_from(real_time()).unwrap_or(i64::MAX);
        for (index, &written) in self.packets.iter().enumerate() {
            let missing = dropped.get(index).copied().unwrap_or(0);
            let until = Timestamp::from_nanoseconds(now);
            self.file.write_statistics(index as u32, until, written + missing, missing)?;
        }
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use ferroce_trace::file::CaptureReader;

    use ferroce_wire::transport::Bth;

    use super::super::CapturePolicy;
    use super::super::chunk::Entry;
    use super::super::queue::Shared;
    use super::super::queue::tests::metadata;
    use super::*;

    /// The last record of the packet has the reason; of a packet that is written already, the next record.
    #[test]
    fn a_refused_packet_says_why() {
        let path = std::env::temp_dir().join(format!("ferroce-refused-{}", std::process::id()));
        let interface =
            Interface { name: "ferroce_lo".into(), network: "lo".into(), mac: Some([0; 6]) };
        let shared = Shared::new(CapturePolicy::Block);
        let packet =
            |psn: u8| [&[0x0a, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0, 0, psn][..], &[0; 20]].concat();
        let bth = |psn| Bth::parse(packet(psn).first_chunk().unwrap());
        for psn in [1, 2, 1, 3] {
            shared.push(0, &metadata(), &packet(psn));
        }
        shared.annotate(&bth(1), "no");
        shared.annotate(&bth(9), "late");
        shared.push(0, &metadata(), &packet(4));
        shared.close();
        shared.run(Writer::new(Output::create(&path).unwrap(), &interface).unwrap());
        let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
        let mut reasons = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            let comment = record.comment.unwrap().into_owned();
            reasons.push(comment.split_once('\n').map(|(_, reason)| reason.to_owned()));
        }
        let late = Some("earlier packet with PSN 0x9: late".to_owned());
        assert_eq!(reasons, [None, None, Some("no".to_owned()), None, late]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_file_says_what_is_missing_and_where() {
        let path = std::env::temp_dir().join(format!("ferroce-missing-{}", std::process::id()));
        let interface =
            Interface { name: "ferroce_lo".into(), network: "lo".into(), mac: Some([0; 6]) };
        let mut writer = Writer::new(Output::create(&path).unwrap(), &interface).unwrap();
        let entry =
            |dropped| Entry { interface: 0, metadata: metadata(), time: 1, length: 20, dropped };
        let entries = [0, 7, 0].map(entry).into();
        writer.write(&[], &Chunk { entries, bytes: vec![0; 60], reasons: Vec::new() }).unwrap();
        // Two more were dropped after the last packet.
        writer.end(&[9]).unwrap();
        let mut reader = CaptureReader::new(File::open(&path).unwrap()).unwrap();
        let mut dropped = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            dropped.push(record.dropped);
        }
        assert_eq!((dropped, reader.dropped()), (vec![0, 7, 0], 9));
        fs::remove_file(path).unwrap();
    }
}

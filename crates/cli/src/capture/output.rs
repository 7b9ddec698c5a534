//! The files of a live capture: writing and rotation.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ferroce::live::Comments;
use ferroce_sys::signal::without_file_size_signal;
use ferroce_sys::{clock, file_lock};
use ferroce_trace::file::{
    Batch, Direction, LinkType, Packet, PcapngWriter, Timestamp, WriteError,
};

use super::collector::{Captured, InterfaceInfo, real_time};
use super::pipe::Pipe;

/// The maximum number of packets per write call: each has two slices, and the system takes 1024.
const MAX_PACKETS_PER_WRITE: usize = 500;

/// The bytes of an Ethernet frame up to the BTH, at most: VLAN tag, IPv6, UDP.
const LINK_HEADERS: usize = 128;

/// When to start a new file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rotation {
    pub(crate) size: Option<u64>,
    pub(crate) time: Option<Duration>,
    /// How many files are kept.
    pub(crate) files: Option<u32>,
}

impl Rotation {
    fn is_on(&self) -> bool {
        self.size.is_some() || self.time.is_some()
    }
}

/// A file or standard output, with the number of bytes written.
#[derive(Debug)]
struct Counted {
    file: File,
    /// It was created here, so its end can be cut off.
    is_own: bool,
    /// If its reader may stop reading.
    pipe: Option<Pipe>,
    /// Nothing more is written, after an error.
    ended: bool,
    written: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.ended {
            return Err(io::Error::other("the capture has ended"));
        }
        let count = match &mut self.pipe {
            Some(pipe) => pipe.write(&mut self.file, slices)?,
            None => without_file_size_signal(|| self.file.write_vectored(slices))?,
        };
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What has been written of an interface into the current file.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    packets: u64,
    /// Packets missing in the files before this one.
    dropped_before: u64,
    /// Packets missing before the next packet that is written.
    pending: u64,
}

/// Writes packets to a file, or to one file after the other.
pub(crate) struct Files {
    path: PathBuf,
    rotation: Rotation,
    snap_len: u32,
    writer: PcapngWriter<Counted>,
    /// The end of the last complete block.
    good: u64,
    opened: Instant,
    number: u32,
    kept: VecDeque<PathBuf>,
    tallies: Vec<Tally>,
    comments: Comments,
    /// Packets and bytes of packets written to all files.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Files {
    /// `signals` is readable when the capture is to end.
    pub(crate) fn create(
        path: &Path,
        rotation: Rotation,
        snap_len: u32,
        signals: &impl AsFd,
    ) -> Result<Self, String> {
        let name = numbered(path, &rotation, 1);
        let mut writer = start(&name).map_err(|error| failure(&name, &error))?;
        let output = writer.get_mut();
        if output.file.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
            let pipe = Pipe::new(signals).map_err(|error| failure(&name, &error.into()))?;
            output.pipe = Some(pipe);
        }
        Ok(Self {
            good: writer.get_ref().written,
            writer,
            path: path.to_owned(),
            rotation,
            snap_len,
            opened: Instant::now(),
            number: 1,
            kept: VecDeque::from([name]),
            tallies: Vec::new(),
            comments: Comments::default(),
            packets: 0,
            bytes: 0,
        })
    }

    /// The file that is written.
    pub(crate) fn current(&self) -> &Path {
        self.kept.back().map_or(&self.path, PathBuf::as_path)
    }

    /// The number of files so far.
    pub(crate) fn count(&self) -> u32 {
        self.number
    }

    /// A pipe whose reader takes nothing is given up after this time.
    pub(crate) fn end_at(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(pipe) = &mut self.writer.get_mut().pipe {
            pipe.end_at(clock::now() + left.as_nanos() as u64);
        }
    }

    /// Notes packets that were lost before one that is not written.
    pub(crate) fn skip(&mut self, packet: &Captured<'_>) {
        if let Some(tally) = self.tallies.get_mut(packet.interface) {
            tally.pending += packet.header.dropped;
        }
    }

    /// Describes new interfaces. To be called before their packets are written or skipped.
    pub(crate) fn describe(&mut self, interfaces: &[InterfaceInfo]) -> Result<(), WriteError> {
        for interface in interfaces.iter().skip(self.tallies.len()) {
            describe(&mut self.writer, interface, self.snap_len)?;
            self.tallies.push(Tally::default());
        }
        self.good = self.writer.get_ref().written;
        Ok(())
    }

    /// Writes packets.
    pub(crate) fn write(&mut self, packets: &[Captured<'_>]) -> Result<(), WriteError> {
        for packets in packets.chunks(MAX_PACKETS_PER_WRITE) {
            let mut batch = Batch::default();
            let (before, mut count, mut bytes) = (self.tallies.clone(), 0, 0);
            for packet in packets {
                let header = &packet.header;
                let Some(tally) = self.tallies.get_mut(packet.interface) else { continue };
                let shown = packet.frame.len().min(self.snap_len as usize);
                let frame = &packet.frame[..shown];
                let (start, body) = frame.split_at(shown.min(LINK_HEADERS));
                let time = i64::try_from(header.time).unwrap_or(i64::MAX);
                let direction =
                    if header.received { Direction::Inbound } else { Direction::Outbound };
                let lost = std::mem::take(&mut tally.pending) + header.dropped;
                let mut record = Packet::new(Timestamp::from_nanoseconds(time), start)
                    .on_interface(packet.interface as u32)
                    .going(direction)
                    .after_dropped(lost)
                    .cut_from(header.original.saturating_sub(body.len() as u32));
                if packet.by_process {
                    let opcode = opcode(packet.frame);
                    record = record.with_comment(self.comments.on(header, opcode));
                }
                batch.add(&record, body)?;
                tally.packets += 1;
                count += 1;
                bytes += u64::from(header.original);
            }
            // After an error, `repair` removes the packets of this batch.
            self.writer.write_batch(batch).inspect_err(|_| self.tallies = before)?;
            self.packets += count;
            self.bytes += bytes;
            self.good = self.writer.get_ref().written;
        }
        Ok(())
    }

    /// Starts a new file if it is time.
    pub(crate) fn rotate(&mut self, interfaces: &[InterfaceInfo]) -> Result<(), String> {
        let full = self.rotation.size.is_some_and(|size| self.good >= size);
        let old = self.rotation.time.is_some_and(|time| self.opened.elapsed() >= time);
        if !full && !old {
            return Ok(());
        }
        let named = |files: &Self, error: WriteError| failure(files.current(), &error);
        self.end(interfaces).map_err(|error| named(self, error))?;
        self.number += 1;
        let name = numbered(&self.path, &self.rotation, self.number);
        self.writer = start(&name).map_err(|error| failure(&name, &error))?;
        self.kept.push_back(name);
        self.opened = Instant::now();
        for (tally, interface) in self.tallies.iter_mut().zip(interfaces) {
            *tally = Tally {
                dropped_before: interface.dropped,
                pending: tally.pending,
                ..Tally::default()
            };
            describe(&mut self.writer, interface, self.snap_len)
                .map_err(|error| failure(&self.path, &error))?;
        }
        self.good = self.writer.get_ref().written;
        while self.rotation.files.is_some_and(|files| self.kept.len() > files as usize) {
            if let Some(oldest) = self.kept.pop_front() {
                let _ = fs::remove_file(oldest);
            }
        }
        Ok(())
    }

    /// Records how many packets each interface had and how many are missing, at the end of the file.
    pub(crate) fn end(&mut self, interfaces: &[InterfaceInfo]) -> Result<(), WriteError> {
        self.describe(interfaces)?;
        let now = Timestamp::from_nanoseconds(i64::try_from(real_time()).unwrap_or(i64::MAX));
        for (index, (tally, interface)) in self.tallies.iter().zip(interfaces).enumerate() {
            let dropped = interface.dropped.saturating_sub(tally.dropped_before);
            self.writer.write_statistics(index as u32, now, tally.packets + dropped, dropped)?;
        }
        self.writer.flush()?;
        self.good = self.writer.get_ref().written;
        Ok(())
    }

    /// After a write error: removes the incomplete block at the end, so that the file stays valid.
    pub(crate) fn repair(&mut self) {
        let rest = self.writer.is_buffering();
        let output = self.writer.get_mut();
        // The rest of an incomplete block must not follow.
        output.ended = rest;
        if output.is_own
            && output.file.set_len(self.good).is_ok()
            && output.file.seek(SeekFrom::Start(self.good)).is_ok()
        {
            output.written = self.good;
        }
    }

    /// A message for a write error.
    pub(crate) fn failure(&self, error: &WriteError) -> String {
        failure(self.current(), error)
    }
}

fn failure(path: &Path, error: &WriteError) -> String {
    let why = match error {
        WriteError::Io(cause) => cause.to_string(),
        other => other.to_string(),
    };
    format!("{}: cannot write the capture: {why}", path.display())
}

fn start(path: &Path) -> Result<PcapngWriter<Counted>, WriteError> {
    let output = if path.as_os_str() == "-" {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Counted { file, is_own: false, pipe: None, ended: false, written: 0 }
    } else {
        let mut options = OpenOptions::new();
        // Only for its owner: captures contain payload and keys.
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let is_own = file.metadata()?.is_file();
        if is_own {
            if !file_lock::try_lock_exclusive(&file)? {
                return Err(io::Error::other("another process writes it; choose another").into());
            }
            file.set_len(0)?;
        }
        Counted { file, is_own, pipe: None, ended: false, written: 0 }
    };
    let mut writer = PcapngWriter::new(output)?;
    writer.flush()?;
    Ok(writer)
}

fn describe(
    writer: &mut PcapngWriter<Counted>,
    interface: &InterfaceInfo,
    snap_len: u32,
) -> Result<(), WriteError> {
    let process = interface.process.as_ref();
    let description = process.map(|(number, program)| format!("{program}, process {number}"));
    let name = Some(interface.name.as_str());
    writer.describe_interface(LinkType::ETHERNET, name, description.as_deref(), snap_len)?;
    writer.flush()
}

/// The name of a file of a rotation: `name-00001.pcapng`.
fn numbered(path: &Path, rotation: &Rotation, number: u32) -> PathBuf {
    if !rotation.is_on() {
        return path.to_owned();
    }
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number:05}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The opcode of a frame that a process has built.
fn opcode(frame: &[u8]) -> u8 {
    let at = if frame.get(12..14) == Some(&[0x86, 0xdd]) { 62 } else { 42 };
    frame.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_rotation_are_numbered_before_the_extension() {
        let on = Rotation { size: Some(1), ..Rotation::default() };
        assert_eq!(numbered(Path::new("/a/b.pcapng"), &on, 7), Path::new("/a/b-00007.pcapng"));
        assert_eq!(numbered(Path::new("b"), &on, 123_456), Path::new("b-123456"));
        assert_eq!(numbered(Path::new("b.x"), &Rotation::default(), 1), Path::new("b.x"));
    }
}

//! A capture that is read twice: a file, or standard input kept in a temporary file. Compressed captures are decompressed
//! in each pass, so that neither memory nor the temporary directory has to hold what a small file expands to.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::capture::create_new_private;
use crate::input::{self, ByteCount, DecompressionLimit};

/// A capture.
pub(super) struct Input {
    file: File,
    len: Option<u64>,
    limit: DecompressionLimit,
    /// Counts of the bytes read in each pass.
    passes: Vec<ByteCount>,
}

impl Input {
    pub(super) fn open(path: &Path, limit: DecompressionLimit) -> io::Result<Self> {
        let file =
            if path == Path::new("-") { spool(io::stdin().lock())? } else { File::open(path)? };
        let data = file.metadata()?;
        if data.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // A pipe can be read only once.
        let file = if data.is_file() { file } else { spool(file)? };
        let len = file.metadata().ok().map(|data| data.len());
        Ok(Self { file, len, limit, passes: Vec::new() })
    }

    /// Its length in bytes, before decompression.
    pub(super) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Reads it from the start, decompressed.
    pub(super) fn reader(&mut self) -> io::Result<Box<dyn Read>> {
        self.file.seek(SeekFrom::Start(0))?;
        let reader = input::Input::new(Box::new(self.file.try_clone()?), self.len, self.limit);
        self.passes.push(reader.count());
        Ok(Box::new(reader))
    }

    /// Bytes read in all passes, before decompression: what progress is measured by.
    pub(super) fn bytes_read(&self) -> u64 {
        self.passes.iter().map(ByteCount::get).sum()
    }
}

/// Copies to a file that has no name, which disappears with the process.
fn spool(mut input: impl Read) -> io::Result<File> {
    let name = format!("ferroce-report-{}.tmp", std::process::id());
    let path = std::env::temp_dir().join(name);
    create_new_private(&path)?;
    let opened = fs::OpenOptions::new().read(true).write(true).open(&path);
    fs::remove_file(&path)?;
    let mut file = opened?;
    io::copy(&mut input, &mut file)?;
    Ok(file)
}

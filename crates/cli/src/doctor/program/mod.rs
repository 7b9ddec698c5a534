//! Facts about the program that `ferroce run` is to start: its file, and the libraries it will load.

mod elf;
mod linker;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) use elf::Elf;
#[cfg(test)]
pub(super) use elf::NATIVE;
pub(super) use linker::{Library, Origin};

/// Bytes of a file that are read: tables of larger files beyond this are not seen.
const MAX_FILE: u64 = 256 << 20;

/// Scripts that are interpreted by scripts, and so on (execve(2)).
const MAX_INTERPRETERS: usize = 5;

/// What the file of a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Elf(Elf),
    /// Neither an ELF file nor a script.
    Other,
    Unreadable(String),
}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// As the user wrote it.
    pub(super) name: String,
    /// The file that the kernel executes: for a script, its interpreter.
    pub(super) path: Option<PathBuf>,
    /// The scripts on the way to it.
    pub(super) scripts: Vec<PathBuf>,
    pub(super) kind: Kind,
    pub(super) set_user: bool,
    pub(super) set_group: bool,
    pub(super) capabilities: bool,
    /// Whether the user may execute the file.
    pub(super) executable: bool,
    /// The libraries it loads at start, with those that these load.
    pub(super) libraries: Vec<Library>,
    /// Those of the user's LD_PRELOAD.
    pub(super) preloaded: Vec<Preloaded>,
    /// Copies of libibverbs beside it under another name, as in Python wheels.
    pub(super) bundled: Vec<PathBuf>,
}

/// An entry of LD_PRELOAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preloaded {
    pub(super) path: String,
    /// Its ELF header; `None` if there is no such file, or it is no library.
    pub(super) elf: Option<Elf>,
}

impl Program {
    /// Examines a program by name or path, as it would run with these variables. `folder` is that of Ferroce's
    /// libraries.
    pub(super) fn read(
        name: &OsStr,
        environment: &BTreeMap<String, String>,
        folder: Option<&str>,
    ) -> Self {
        let mut program = Self::missing(name);
        let search = environment.get("PATH").cloned().unwrap_or_default();
        let mut next = find(name, &search);
        while let Some(path) = next.take() {
            let Ok(bytes) = contents(&path) else {
                let error = contents(&path).err().map(|error| error.to_string());
                program.kind = Kind::Unreadable(error.unwrap_or_default());
                program.path = Some(path);
                break;
            };
            let interpreter = interpreter(&bytes, &search);
            if let Some(interpreter) =
                interpreter.filter(|_| program.scripts.len() < MAX_INTERPRETERS)
            {
                program.scripts.push(path);
                next = interpreter;
                continue;
            }
            program.examine(path, &bytes, environment, folder);
        }
        program
    }

    fn missing(name: &OsStr) -> Self {
        Self {
            name: name.to_string_lossy().into_owned(),
            path: None,
            scripts: Vec::new(),
            kind: Kind::Other,
            set_user: false,
            set_group: false,
            capabilities: false,
            executable: false,
            libraries: Vec::new(),
            preloaded: Vec::new(),
            bundled: Vec::new(),
        }
    }

    fn examine(
        &mut self,
        path: PathBuf,
        bytes: &[u8],
        environment: &BTreeMap<String, String>,
        folder: Option<&str>,
    ) {
        if let Ok(found) = fs::metadata(&path) {
            // The bits count only for files that belong to another user or group.
            let own = fs::metadata("/proc/self").ok();
            let mode = found.mode();
            self.set_user =
                mode & 0o4000 != 0 && own.as_ref().is_none_or(|own| own.uid() != found.uid());
            self.set_group =
                mode & 0o2000 != 0 && own.as_ref().is_none_or(|own| own.gid() != found.gid());
            self.executable = mode & 0o111 != 0;
        }
        self.capabilities = ferroce_sys::file_capabilities::has_any(&path);
        self.kind = Elf::parse(bytes).map_or(Kind::Other, Kind::Elf);
        if let Kind::Elf(elf) = &self.kind {
            let paths = linker::Paths::new(environment, folder);
            self.libraries = linker::resolve(&path, elf, &paths);
        }
        let preload = environment.get("LD_PRELOAD").cloned().unwrap_or_default();
        self.preloaded = preload
            .split([':', ' '])
            .filter(|entry| !entry.is_empty() && !is_ours(entry))
            .map(|entry| Preloaded {
                path: entry.to_owned(),
                elf: contents(Path::new(entry)).ok().and_then(|bytes| Elf::parse(&bytes)),
            })
            .collect();
        self.bundled = bundled(&path, &self.libraries);
        self.path = Some(path);
    }
}

/// Whether an outer `ferroce run` has set this entry.
fn is_ours(entry: &str) -> bool {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    name.starts_with("libferroce_")
}

/// The file of a command, as execvp(3) finds it.
fn find(name: &OsStr, search: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 || name.to_string_lossy().contains('/') {
        return path.exists().then(|| path.to_owned());
    }
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    search.split(':').map(|folder| Path::new(folder).join(name)).find(is_program)
}

pub(super) fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The interpreter of a script, if it is one; the inner `None` is one that does not exist.
fn interpreter(bytes: &[u8], search: &str) -> Option<Option<PathBuf>> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line.get(..line.len().min(256))?).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if first.rsplit('/').next() != Some("env") {
        return Some(Some(PathBuf::from(first)).filter(|path| path.exists()));
    }
    // `env -S NAME=VALUE … COMMAND`.
    let command = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    Some(find(OsStr::new(command), search))
}

/// Copies of libibverbs under a name with a hash, in the folders of a program that auditwheel and similar tools create.
fn bundled(path: &Path, libraries: &[Library]) -> Vec<PathBuf> {
    let is_copy = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        ["libibverbs", "librdmacm"]
            .iter()
            .any(|library| name.strip_prefix(library).is_some_and(|rest| rest.starts_with('-')))
    };
    let mut found: Vec<PathBuf> = libraries
        .iter()
        .filter_map(|library| library.path.clone())
        .filter(|path| is_copy(path))
        .collect();
    let folder = path.parent().unwrap_or(Path::new("/"));
    for folder in [folder.to_owned(), folder.join("../lib")] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| is_copy(path)).take(8));
    }
    found.sort();
    found.dedup();
    found
}

//! Environment variables.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::capture::create_private;

/// A variable to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) value: OsString,
}

impl Variable {
    pub(super) fn text(name: &'static str, value: String) -> Self {
        Self { name, value: value.into() }
    }

    pub(super) fn path(name: &'static str, value: PathBuf) -> Self {
        Self { name, value: value.into_os_string() }
    }

    /// A path list with a new first entry. The rest is unchanged, without a duplicate of the entry.
    pub(super) fn before(name: &'static str, path: PathBuf, separators: &[u8]) -> Self {
        let list = std::env::var_os(name).unwrap_or_default();
        Self { name, value: joined([path.as_os_str()], entries(&list, separators)) }
    }

    /// A path list with new last entries, in this order.
    pub(super) fn behind<'a>(
        name: &'static str,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        separators: &[u8],
    ) -> Self {
        let list = std::env::var_os(name).unwrap_or_default();
        let paths = paths.into_iter().map(|path| path.as_os_str());
        Self { name, value: joined(entries(&list, separators), paths) }
    }

    /// Formats it for a shell.
    pub(super) fn exported(&self) -> Vec<u8> {
        let value = self.value.as_bytes().iter().flat_map(|byte| match byte {
            b'\'' => b"'\\''".as_slice(),
            byte => std::slice::from_ref(byte),
        });
        let mut line = format!("export {}='", self.name).into_bytes();
        line.extend(value);
        line.extend(b"'\n");
        line
    }
}

/// An empty entry of LD_LIBRARY_PATH means the working directory, which is never intended.
fn entries<'a>(list: &'a OsStr, separators: &[u8]) -> impl Iterator<Item = &'a OsStr> {
    let entries = list.as_bytes().split(|byte| separators.contains(byte));
    entries.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes)
}

/// Concatenates two lists without duplicates.
fn joined<'a>(
    first: impl IntoIterator<Item = &'a OsStr>,
    then: impl IntoIterator<Item = &'a OsStr>,
) -> OsString {
    let mut all: Vec<&OsStr> = Vec::new();
    for entry in first.into_iter().chain(then) {
        if !all.contains(&entry) {
            all.push(entry);
        }
    }
    all.join(OsStr::new(":"))
}

/// The absolute path of a capture file, after checking that it is writable if its name is known.
pub(super) fn capture(path: &Path) -> Result<PathBuf, String> {
    let refused = |error| format!("{}: cannot write the capture: {error}", path.display());
    let path = std::path::absolute(path).map_err(refused)?;
    if path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"%p") {
        return Ok(path);
    }
    let there = path.exists();
    // Its content stays until something is captured.
    OpenOptions::new().append(true).create(true).open(&path).map_err(refused)?;
    if !there {
        let _ = std::fs::remove_file(&path);
    }
    Ok(path)
}

/// The destination of call traces: the absolute path of this file, which is truncated now, or `-` for standard error.
pub(super) fn trace(path: &Path) -> Result<Variable, String> {
    const NAME: &str = "FERROCE_TRACE";
    if path.as_os_str() == "-" {
        return Ok(Variable::text(NAME, "1".into()));
    }
    let refused = |error| format!("{}: cannot write the trace: {error}", path.display());
    let path = std::path::absolute(path).map_err(refused)?;
    create_private(&path).map_err(refused)?;
    Ok(Variable::path(NAME, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_prepended_without_duplicates() {
        let prepended = |list: &str, separators| {
            joined([OsStr::new("/a")], entries(list.as_ref(), separators)).into_string().unwrap()
        };
        assert_eq!(prepended("", b":"), "/a");
        assert_eq!(prepended("/b:/c", b":"), "/a:/b:/c");
        assert_eq!(prepended("/b::/a:/a b", b":"), "/a:/b:/a b");
        assert_eq!(prepended("/b.so /a", b": "), "/a:/b.so");
        let behind =
            joined(entries("/b.so /c.so".as_ref(), b": "), ["/a".as_ref(), "/b.so".as_ref()]);
        assert_eq!(behind, "/b.so:/c.so:/a", "the user's preloads stay first");
    }

    #[test]
    fn values_are_quoted_for_the_shell() {
        let line = Variable::text("X", "it's $HOME".into()).exported();
        assert_eq!(String::from_utf8(line).unwrap(), "export X='it'\\''s $HOME'\n");
    }
}

//! Variables of the environment.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::capture::create_private;

/// A variable to be set.
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

    /// A list of paths with a new first one. The rest is what it was, and the same path is not in it twice.
    pub(super) fn before(name: &'static str, path: PathBuf, separators: &[u8]) -> Self {
        let list = std::env::var_os(name).unwrap_or_default();
        Self { name, value: joined([path.as_os_str()], entries(&list, separators)) }
    }

    /// A list of paths with new last ones, in this order.
    pub(super) fn behind<'a>(
        name: &'static str,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        separators: &[u8],
    ) -> Self {
        let list = std::env::var_os(name).unwrap_or_default();
        let paths = paths.into_iter().map(|path| path.as_os_str());
        Self { name, value: joined(entries(&list, separators), paths) }
    }

    /// As a shell takes it.
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

/// An empty entry of LD_LIBRARY_PATH is the working folder, which nobody means.
fn entries<'a>(list: &'a OsStr, separators: &[u8]) -> impl Iterator<Item = &'a OsStr> {
    let entries = list.as_bytes().split(|byte| separators.contains(byte));
    entries.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes)
}

/// One list behind the other, and nothing twice.
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

/// A file for captures: as it is found from everywhere, and known to be writable where its name is known.
pub(super) fn capture(path: &Path) -> Result<PathBuf, String> {
    let refused = |error| format!("{}: cannot write the capture: {error}", path.display());
    let path = std::path::absolute(path).map_err(refused)?;
    if path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"%p") {
        return Ok(path);
    }
    let there = path.exists();
    // What is in it stays until somebody captures.
    OpenOptions::new().append(true).create(true).open(&path).map_err(refused)?;
    if !there {
        let _ = std::fs::remove_file(&path);
    }
    Ok(path)
}

/// Where calls are said: in this file, which is emptied now and found from everywhere, or for `-` on the standard
/// error output.
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
    fn a_path_comes_first_and_once() {
        let prepended = |list: &str, separators| {
            joined([OsStr::new("/a")], entries(list.as_ref(), separators)).into_string().unwrap()
        };
        assert_eq!(prepended("", b":"), "/a");
        assert_eq!(prepended("/b:/c", b":"), "/a:/b:/c");
        assert_eq!(prepended("/b::/a:/a b", b":"), "/a:/b:/a b");
        assert_eq!(prepended("/b.so /a", b": "), "/a:/b.so");
        let behind =
            joined(entries("/b.so /c.so".as_ref(), b": "), ["/a".as_ref(), "/b.so".as_ref()]);
        assert_eq!(behind, "/b.so:/c.so:/a", "what the user preloads stays in front");
    }

    #[test]
    fn a_shell_gets_the_value_as_it_is() {
        let line = Variable::text("X", "it's $HOME".into()).exported();
        assert_eq!(String::from_utf8(line).unwrap(), "export X='it'\\''s $HOME'\n");
    }
}

//! Variables of the environment.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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
        Self::before_all(name, [&path], separators)
    }

    /// The same with several new first ones, in this order.
    pub(super) fn before_all<'a>(
        name: &'static str,
        paths: impl IntoIterator<Item = &'a PathBuf, IntoIter: DoubleEndedIterator>,
        separators: &[u8],
    ) -> Self {
        let list = std::env::var_os(name).unwrap_or_default();
        let value = paths
            .into_iter()
            .rfold(list, |list, path| prepended(path.as_os_str(), &list, separators));
        Self { name, value }
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

fn prepended(path: &OsStr, list: &OsStr, separators: &[u8]) -> OsString {
    let mut value = path.as_bytes().to_vec();
    // An empty entry of LD_LIBRARY_PATH is the working folder, which nobody means.
    for entry in list.as_bytes().split(|byte| separators.contains(byte)) {
        if !entry.is_empty() && entry != path.as_bytes() {
            value.push(b':');
            value.extend(entry);
        }
    }
    OsString::from_vec(value)
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
            prepended("/a".as_ref(), list.as_ref(), separators).into_string().unwrap()
        };
        assert_eq!(prepended("", b":"), "/a");
        assert_eq!(prepended("/b:/c", b":"), "/a:/b:/c");
        assert_eq!(prepended("/b::/a:/a b", b":"), "/a:/b:/a b");
        assert_eq!(prepended("/b.so /a", b": "), "/a:/b.so");
    }

    #[test]
    fn a_shell_gets_the_value_as_it_is() {
        let line = Variable::text("X", "it's $HOME".into()).exported();
        assert_eq!(String::from_utf8(line).unwrap(), "export X='it'\\''s $HOME'\n");
    }
}

//! What `/proc` says of a process.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process, and its descriptors that matter here.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) folder: PathBuf,
    /// The published memory.
    pub(crate) pages: Vec<PathBuf>,
    /// The inodes of its sockets.
    sockets: HashSet<u64>,
}

/// The processes whose descriptors this one may see and that publish, by their IDs.
pub(crate) fn find(wanted: impl Fn(u32) -> bool) -> Vec<Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.filter(|pid| wanted(*pid)).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(Found::of).collect()
}

impl Found {
    /// `None` if the process does not publish, has ended, or belongs to another user.
    fn of(pid: u32) -> Option<Self> {
        let link = format!("/memfd:{} (deleted)", crate::layout::NAME);
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let (mut pages, mut sockets) = (Vec::new(), HashSet::new());
        for entry in fs::read_dir(folder.join("fd")).ok()?.flatten() {
            let path = entry.path();
            let Ok(target) = fs::read_link(&path) else { continue };
            let Some(target) = target.to_str() else { continue };
            if target == link {
                pages.push(path);
            } else if let Some(inode) = target.strip_prefix("socket:[") {
                sockets.extend(inode.trim_end_matches(']').parse::<u64>());
            }
        }
        (!pages.is_empty()).then_some(Self { pid, folder, pages, sockets })
    }

    pub(crate) fn name(&self) -> String {
        read(&self.folder.join("comm")).trim_end().to_owned()
    }

    /// The command line, with spaces between its words.
    pub(crate) fn command(&self) -> String {
        let words = read(&self.folder.join("cmdline"));
        words.trim_end_matches('\0').replace('\0', " ")
    }

    pub(crate) fn user(&self) -> u32 {
        fs::metadata(&self.folder).map_or(u32::MAX, |data| data.uid())
    }

    pub(crate) fn network_namespace(&self) -> u64 {
        fs::metadata(self.folder.join("ns/net")).map_or(0, |data| data.ino())
    }

    /// The state, and the age in seconds.
    pub(crate) fn state(&self) -> (char, f64) {
        let text = read(&self.folder.join("stat"));
        // The name, in parentheses, may contain anything.
        let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next().and_then(|state| state.chars().next()).unwrap_or('?');
        // Field 22 is the start time, in hundredths of a second since the boot.
        let started: f64 = fields.nth(18).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0);
        let uptime = read(Path::new("/proc/uptime"));
        let uptime = uptime.split_ascii_whitespace().next().and_then(|text| text.parse().ok());
        (state, (uptime.unwrap_or(0.0) - started / 100.0).max(0.0))
    }

    /// The packets that the kernel dropped because a UDP socket of the process was full.
    pub(crate) fn socket_drops(&self) -> u64 {
        ["net/udp", "net/udp6"]
            .iter()
            .map(|name| drops(&read(&self.folder.join(name)), &self.sockets))
            .sum()
    }
}

/// Adds up the last column of `/proc/net/udp` for these sockets.
fn drops(table: &str, sockets: &HashSet<u64>) -> u64 {
    let of_line = |line: &str| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let inode: u64 = fields.get(9)?.parse().ok()?;
        let drops: u64 = fields.last()?.parse().ok()?;
        sockets.contains(&inode).then_some(drops)
    };
    table.lines().skip(1).filter_map(of_line).sum()
}

/// A file of `/proc`, or nothing: the process may be gone.
fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_added_up_by_inode() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  10: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0000000000000000 7
  11: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4712 2 0000000000000000 9
  12: truncated";
        assert_eq!(drops(table, &HashSet::from([4711])), 7);
        assert_eq!(drops(table, &HashSet::from([4711, 4712, 5])), 16);
        assert_eq!(drops("", &HashSet::from([4711])), 0);
    }
}

//! A record of a process's connections, so that `ferroce run` can disconnect them if the process is killed.
//!
//! `FERROCE_LEDGER` names a folder. Each open device keeps a file there: a ring of fixed-size records of its latest
//! connections. A connection that has ended may still be in it; its peer then just answers the DREQ.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_proto::cm::DisconnectNotice;
use ferroce_sys::signal::without_file_size_signal;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::CommId;
use ferroce_wire::number::Qpn;

/// The number of connections kept.
const MAX_RECORDS: u64 = 4096;

/// The length of a record: both GIDs, both communication IDs, the peer's QPN and the traffic class.
pub(crate) const RECORD_LEN: usize = 16 + 16 + 4 + 4 + 4 + 1;

/// The ledger file, created with the first connection.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    file: OnceLock<Option<(PathBuf, File)>>,
    recorded: AtomicU64,
}

impl Ledger {
    /// Records a connection of this address, if `FERROCE_LEDGER` is set.
    pub(crate) fn record(&self, local: Gid, notice: &DisconnectNotice) {
        let Some((_, file)) = self.file.get_or_init(create) else { return };
        let at = self.recorded.fetch_add(1, Ordering::Relaxed) % MAX_RECORDS;
        // A full disk must not affect the connection.
        let record = emit(local, notice);
        let _ = without_file_size_signal(|| file.write_all_at(&record, at * RECORD_LEN as u64));
    }

    /// Removes the file after an orderly shutdown.
    pub(crate) fn remove(&self) {
        if let Some(Some((path, _))) = self.file.get() {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn create() -> Option<(PathBuf, File)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let folder = std::env::var_os("FERROCE_LEDGER").filter(|folder| !folder.is_empty())?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = Path::new(&folder).join(format!("{}-{number}", std::process::id()));
    let file = File::options().write(true).create_new(true).open(&path).ok()?;
    Some((path, file))
}

fn emit(local: Gid, notice: &DisconnectNotice) -> Vec<u8> {
    let DisconnectNotice { peer, local_id, remote_id, remote_qpn, traffic_class } = notice;
    let numbers = [local_id.0, remote_id.0, remote_qpn.0].map(u32::to_be_bytes);
    [&local.0[..], &peer.0, numbers.as_flattened(), &[*traffic_class]].concat()
}

pub(crate) fn parse(record: &[u8]) -> Option<(Gid, DisconnectNotice)> {
    let word = |at: usize| Some(u32::from_be_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let gid = |at: usize| Some(Gid(record.get(at..at + 16)?.try_into().ok()?));
    let notice = DisconnectNotice {
        peer: gid(16)?,
        local_id: CommId(word(32)?),
        remote_id: CommId(word(36)?),
        remote_qpn: Qpn(word(40)? & 0x00ff_ffff),
        traffic_class: *record.get(44)?,
    };
    Some((gid(0)?, notice))
}

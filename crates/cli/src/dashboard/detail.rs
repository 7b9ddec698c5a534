//! All that is known of one QP.

use ferroce_stat::snapshot::{Device, QueuePair, Snapshot};
use serde::Serialize;

use crate::recent::QpAddress;

/// A QP and where it is.
#[derive(Debug, Serialize)]
pub(super) struct QpDetail {
    pid: u32,
    process: String,
    command: String,
    device: String,
    address: Option<String>,
    qp: QueuePair,
}

/// The parts of the key of a row: `PID/DEVICE/QPN`, where a device that the process opened again is `DEVICE.N`.
fn parts(key: &str) -> Option<(u32, &str, u32)> {
    let (rest, number) = key.rsplit_once('/')?;
    let (pid, device) = rest.split_once('/')?;
    Some((pid.parse().ok()?, device, number.parse().ok()?))
}

/// How packets name the QP with the key of a row. Its last packets are of interest also when it is gone.
pub(super) fn address(snapshot: Option<&Snapshot>, key: &str) -> Option<QpAddress> {
    let (pid, device, number) = parts(key)?;
    let process = snapshot.and_then(|all| all.processes.iter().find(|process| process.pid == pid));
    let device = process.and_then(|process| find_device(&process.devices, device));
    Some(QpAddress { pid, number, address: device.and_then(|device| device.address) })
}

impl QpDetail {
    /// The QP with the key of a row.
    pub(super) fn find(snapshot: &Snapshot, key: &str) -> Option<Self> {
        let (pid, device, number) = parts(key)?;
        let process = snapshot.processes.iter().find(|process| process.pid == pid)?;
        let device = find_device(&process.devices, device)?;
        let qp = device.queue_pairs.iter().find(|qp| qp.number == number)?;
        Some(Self {
            pid,
            process: process.name.clone(),
            command: process.command.clone(),
            device: device.name.clone(),
            address: device.address.map(|address| address.to_string()),
            qp: qp.clone(),
        })
    }
}

fn find_device<'a>(devices: &'a [Device], key: &str) -> Option<&'a Device> {
    let exact = devices.iter().find(|device| device.name == key);
    exact.or_else(|| {
        let (name, ordinal) = key.rsplit_once('.')?;
        devices.iter().filter(|device| device.name == name).nth(ordinal.parse().ok()?)
    })
}

//! What is shown: the last two snapshots, the history of rates, and what the user has chosen.

use std::collections::{HashMap, VecDeque};

use ferroce_stat::snapshot::{Device, Process, QueuePair, Snapshot};

use super::rows::{self, Row};
use crate::recent::{QpAddress, Recent};
use crate::stat::rates::{DeviceRates, Rates, between};
use crate::stat::since::device_key;

/// The rates that sparklines show, one per update.
const HISTORY: usize = 240;

/// The views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Devices,
    QueuePairs,
    CompletionQueues,
    MemoryRegions,
}

impl View {
    pub(super) const ALL: [Self; 4] =
        [Self::Devices, Self::QueuePairs, Self::CompletionQueues, Self::MemoryRegions];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Devices => "Devices",
            Self::QueuePairs => "Queue pairs",
            Self::CompletionQueues => "Completion queues",
            Self::MemoryRegions => "Memory regions",
        }
    }
}

/// Identifies an object from snapshot to snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) pid: u32,
    /// As [`device_key`] returns it.
    pub(super) device: String,
    /// The QPN, the ID of a CQ or the index of an MR; `None` for a device.
    pub(super) object: Option<u64>,
}

/// The rates of one object over time, in bytes per second.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) tx: VecDeque<u64>,
    pub(super) rx: VecDeque<u64>,
}

impl History {
    fn push(&mut self, rates: &Rates) {
        for (list, rate) in [(&mut self.tx, rates.tx_bytes), (&mut self.rx, rates.rx_bytes)] {
            list.push_back(rate as u64);
            if list.len() > HISTORY {
                list.pop_front();
            }
        }
    }
}

/// What is shown of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    Overview,
    /// Its last packets.
    Packets,
    /// The packets around losses, NAKs and congestion marks.
    Recovery,
}

impl Page {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Overview => Self::Packets,
            Self::Packets => Self::Recovery,
            Self::Recovery => Self::Overview,
        }
    }
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) snapshot: Snapshot,
    pub(super) rates: Vec<DeviceRates>,
    /// The history of each device and queue pair that exists.
    history: HashMap<Key, History>,
    /// The history of everything together.
    pub(super) total: History,
    pub(super) view: View,
    /// Only the objects of this device.
    pub(super) only: Option<Key>,
    /// A queue pair in detail.
    pub(super) detail: Option<Key>,
    pub(super) page: Page,
    /// Its packets, or why there are none.
    pub(super) packets: Result<Recent, String>,
    /// The column to sort by, and whether the largest comes first, for each view.
    pub(super) sort: [(usize, bool); 4],
    /// Only rows with this text.
    pub(super) search: String,
    /// The user is typing it.
    pub(super) searching: bool,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The chosen row, which is followed when the order changes.
    pub(super) selected: Option<Key>,
}

impl App {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            rates: Vec::new(),
            history: HashMap::new(),
            total: History::default(),
            view: View::Devices,
            only: None,
            detail: None,
            page: Page::Overview,
            packets: Ok(Recent::default()),
            // By PID; by traffic for queue pairs; by pending completions; by length.
            sort: [(0, false), (8, true), (0, false), (0, false)],
            search: String::new(),
            searching: false,
            paused: false,
            help: false,
            selected: None,
            snapshot,
        }
    }

    /// Takes a new snapshot.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        if self.paused {
            return;
        }
        self.rates = between(&self.snapshot, &snapshot);
        self.snapshot = snapshot;
        let mut kept = HashMap::new();
        let mut sum = Rates::default();
        for device in &self.rates {
            let key = |object| Key { pid: device.pid, device: device.key.clone(), object };
            sum.tx_bytes += device.rates.tx_bytes;
            sum.rx_bytes += device.rates.rx_bytes;
            let pairs =
                device.queue_pairs.iter().map(|pair| (Some(pair.number.into()), &pair.rates));
            for (object, rates) in pairs.chain([(None, &device.rates)]) {
                let mut history = self.history.remove(&key(object)).unwrap_or_default();
                history.push(rates);
                kept.insert(key(object), history);
            }
        }
        self.history = kept;
        self.total.push(&sum);
    }

    pub(super) fn history(&self, key: &Key) -> Option<&History> {
        self.history.get(key)
    }

    /// All devices with their processes, and their places among the devices of the process.
    pub(super) fn devices(&self) -> impl Iterator<Item = (&Process, usize, &Device)> {
        self.snapshot.processes.iter().flat_map(|process| {
            let devices = process.devices.iter().enumerate();
            devices.map(move |(index, device)| (process, index, device))
        })
    }

    /// The rates of a device, or of a queue pair.
    pub(super) fn rates_of(&self, key: &Key) -> Option<&Rates> {
        let same = |one: &&DeviceRates| one.pid == key.pid && one.key == key.device;
        let device = self.rates.iter().find(same)?;
        match key.object {
            None => Some(&device.rates),
            Some(number) => {
                let pair = device.queue_pairs.iter().find(|one| u64::from(one.number) == number);
                pair.map(|pair| &pair.rates)
            }
        }
    }

    /// The queue pair in detail, if it still exists.
    pub(super) fn queue_pair(&self, key: &Key) -> Option<(&Process, &Device, &QueuePair)> {
        let found = self.devices().find(|(process, index, _)| {
            process.pid == key.pid && device_key(process, *index) == key.device
        });
        let (process, _, device) = found?;
        let pair = device.queue_pairs.iter().find(|one| Some(u64::from(one.number)) == key.object);
        pair.map(|pair| (process, device, pair))
    }

    /// The queue pair whose packets are shown.
    pub(super) fn followed(&self) -> Option<QpAddress> {
        let (process, device, pair) = self.queue_pair(self.detail.as_ref()?)?;
        Some(QpAddress::new(process.pid, device, pair))
    }

    /// The column to sort by, and whether the largest comes first.
    pub(super) fn order(&self) -> (usize, bool) {
        self.sort[self.view as usize]
    }

    pub(super) fn order_mut(&mut self) -> &mut (usize, bool) {
        &mut self.sort[self.view as usize]
    }

    /// The rows of the view: those that match the search, in order.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = rows::of(self);
        let search = self.search.to_lowercase();
        rows.retain(|row| search.is_empty() || row.text().to_lowercase().contains(&search));
        let (column, descending) = self.order();
        rows.sort_by(|one, other| {
            let order = one.cells[column].compare(&other.cells[column]);
            let order = if descending { order.reverse() } else { order };
            order.then_with(|| one.key.pid.cmp(&other.key.pid))
        });
        rows
    }

    /// The position of the chosen row; the first if the chosen object is gone.
    pub(super) fn position(&self, rows: &[Row]) -> usize {
        let chosen = self.selected.as_ref();
        chosen.and_then(|key| rows.iter().position(|row| row.key == *key)).unwrap_or(0)
    }
}

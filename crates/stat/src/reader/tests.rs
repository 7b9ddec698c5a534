use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Page, Slot};

/// The page of this process. Other tests of this binary may publish in it as well, but with nextest there are none.
fn own() -> Process {
    let filter = Filter { pid: Some(std::process::id()), ..Filter::default() };
    let snapshot = read_all(&filter);
    snapshot.processes.into_iter().next().expect("this process publishes")
}

fn add_device(page: &std::sync::Arc<Page>, name: &str) -> Slot {
    page.add(Kind::Device, |slot| {
        slot.set_text(Dev::Name as usize, 4, name);
        slot.set_gid(
            Dev::Gid as usize,
            "::ffff:192.0.2.7".parse::<std::net::Ipv6Addr>().unwrap().octets(),
        );
        slot.set(Dev::Active as usize, 1);
        slot.set(Dev::Mtu as usize, 1024);
    })
}

#[test]
fn what_is_published_is_read() {
    let page = Page::of_process();
    let one = add_device(&page, "ferroce_eth0");
    let gone = add_device(&page, "ferroce_eth1");
    let position = one.position();
    one.word(Dev::Counters as usize + 2).fetch_add(9, Ordering::Relaxed);
    let queue_pair = page.add(Kind::QueuePair, |slot| {
        slot.set(Qp::Device as usize, position);
        slot.set(Qp::Number as usize, 0x1234);
        slot.set(Qp::State as usize, 3);
        slot.set(Qp::LastError as usize, 12);
        slot.set(Qp::Histogram as usize + 9, 4);
        slot.set(Qp::Traffic as usize + 18 + 3, 5);
    });
    let region = page.add(Kind::MemoryRegion, |slot| {
        slot.set(Mr::Device as usize, position);
        slot.set(Mr::Length as usize, 4096);
        slot.set(Mr::Access as usize, 3);
    });
    drop(gone);

    let process = own();
    assert_eq!(process.pid, std::process::id());
    assert_eq!(process.library, env!("CARGO_PKG_VERSION"));
    assert_eq!((process.inconsistent, process.unknown_format), (0, false));
    let [device] = &process.devices[..] else { panic!("{:?}", process.devices) };
    assert_eq!((device.name.as_str(), device.active, device.mtu), ("ferroce_eth0", true, 1024));
    assert_eq!(device.address, Some("192.0.2.7".parse().unwrap()));
    assert_eq!((device.counters.get("packets_out"), device.counters.sum()), (9, 9));
    let [found] = &device.queue_pairs[..] else { panic!("{:?}", device.queue_pairs) };
    assert_eq!((found.number, found.service, found.state), (0x1234, "RC", "RTS"));
    assert_eq!((found.last_error, found.remote_number), (Some("RETRY_EXC_ERR"), None));
    assert_eq!((found.latency.count(), found.rx.operations.write.packets), (4, 5));
    assert_eq!(device.memory_bytes, 4096);
    assert_eq!(device.memory_regions[0].access, ["local_write", "remote_write"]);

    // A slot is used again, and shows nothing of its past.
    drop((queue_pair, region));
    let again = page.add(Kind::QueuePair, |slot| slot.set(Qp::Device as usize, position));
    let process = own();
    let [found] = &process.devices[0].queue_pairs[..] else { panic!("{process:?}") };
    assert_eq!((found.number, found.last_error, found.latency.count()), (0, None, 0));
    assert!(process.devices[0].memory_regions.is_empty());

    // With the last object, the process publishes nothing.
    drop((one, again, page));
    let filter = Filter { pid: Some(std::process::id()), ..Filter::default() };
    assert!(read_all(&filter).processes.is_empty());
}

/// Changes of several fields are seen together, however often they change.
#[test]
fn no_read_is_torn() {
    let page = Page::of_process();
    let device = add_device(&page, "ferroce_lo");
    let slot = page.add(Kind::QueuePair, |slot| slot.set(Qp::Device as usize, device.position()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                slot.update(|slot| {
                    slot.set(Qp::Number as usize, count);
                    slot.set(Qp::SqPsn as usize, count);
                    slot.set(Qp::Histogram as usize + BUCKETS - 1, count);
                });
            }
        });
        let mut different = HashSet::new();
        for _ in 0..300 {
            let process = own();
            let queue_pair = &process.devices[0].queue_pairs[0];
            if process.inconsistent > 0 {
                continue; // The writer was preempted for long.
            }
            assert_eq!(queue_pair.number, queue_pair.sq_psn);
            assert_eq!(u64::from(queue_pair.number), queue_pair.latency.buckets[BUCKETS - 1]);
            different.insert(queue_pair.number);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(different.len() > 10, "{}", different.len());
    });
}

/// Memory that an imaginary process writes while it is read: each read changes it.
struct Imaginary {
    words: Vec<u64>,
    /// How many reads see the slot while it is being written.
    torn: Cell<usize>,
    reads: Cell<usize>,
}

impl Imaginary {
    fn new(slot: &[u64], torn: usize) -> Self {
        let mut words = vec![0; HEADER_WORDS];
        words[Header::Magic as usize] = MAGIC;
        words[Header::Version as usize] = VERSION;
        words.extend(slot);
        words[Header::End as usize] = words.len() as u64;
        Self { words, torn: Cell::new(torn), reads: Cell::new(0) }
    }
}

impl Source for Imaginary {
    fn words(&self, start: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut words =
            self.words.get(start..start + count).ok_or(io::ErrorKind::UnexpectedEof)?.to_vec();
        if start + count > HEADER_WORDS {
            self.reads.set(self.reads.get() + 1);
            if self.torn.get() > 0 {
                self.torn.set(self.torn.get() - 1);
                *words.last_mut().unwrap() += 1;
            }
        }
        Ok(words)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.words.len() as u64)
    }
}

fn device_slot() -> Vec<u64> {
    let mut slot = vec![0; Kind::Device.words()];
    slot[SlotHeader::Kind as usize] = Kind::Device.to_word(slot.len());
    slot
}

#[test]
fn a_slot_that_is_being_written_is_read_again() {
    let quiet = Imaginary::new(&device_slot(), 0);
    assert_eq!(PageCopy::read(&quiet).unwrap().inconsistent, 0);
    assert_eq!(quiet.reads.get(), 1);
    let busy = Imaginary::new(&device_slot(), 3);
    let copy = PageCopy::read(&busy).unwrap();
    assert_eq!((copy.inconsistent, copy.devices().len(), busy.reads.get()), (0, 1, 4));
    // A process that was stopped in the middle of a change: shown, and said so.
    let stopped = Imaginary::new(&device_slot(), usize::MAX);
    let copy = PageCopy::read(&stopped).unwrap();
    assert_eq!((copy.inconsistent, copy.devices().len()), (1, 1));
}

#[test]
fn nonsense_is_no_slot() {
    assert!(PageCopy::read(&Imaginary { words: vec![1; 200], ..Imaginary::new(&[], 0) }).is_err());
    assert!(PageCopy::read(&Imaginary { words: vec![], ..Imaginary::new(&[], 0) }).is_err());
    let mut other_version = Imaginary::new(&device_slot(), 0);
    other_version.words[Header::Version as usize] = VERSION + 1;
    let copy = PageCopy::read(&other_version).unwrap();
    assert_eq!((copy.version, copy.devices().len()), (VERSION + 1, 0));
    let mut far_end = Imaginary::new(&device_slot(), 0);
    far_end.words[Header::End as usize] = u64::MAX;
    assert_eq!(PageCopy::read(&far_end).unwrap().devices().len(), 1);
    // Sizes and kinds that do not exist end the walk; devices that do not exist hide their objects.
    for kind in [0, 7 | 16 << 32, 1 | 16 << 32, 1 | 255 << 32, u64::MAX] {
        let mut slot = device_slot();
        slot[SlotHeader::Kind as usize] = kind;
        assert_eq!(PageCopy::read(&Imaginary::new(&slot, 0)).unwrap().slots.len(), 0, "{kind}");
    }
    for fill in [1, 0xffff, u64::MAX / 3, u64::MAX] {
        let mut slots = vec![fill; 2 * Kind::Device.words()];
        let second = Kind::Device.words();
        slots[SlotHeader::Kind as usize] = Kind::Device.to_word(second);
        slots[second + SlotHeader::Kind as usize] = Kind::QueuePair.to_word(second);
        slots[second + Qp::Device as usize] = HEADER_WORDS as u64;
        let copy = PageCopy::read(&Imaginary::new(&slots, 0)).unwrap();
        let devices = copy.devices();
        assert_eq!((devices.len(), devices[0].queue_pairs.len()), (1, 1));
        assert!(!devices[0].name.contains(char::is_control));
    }
}

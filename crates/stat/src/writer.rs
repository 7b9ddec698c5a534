//! The writer's side: the page of a process, and its slots.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferroce_sys::{PublishedMemory, Words, clock};

use crate::layout::{
    HEADER_WORDS, Header, Kind, LARGE, MAGIC, NAME, REASON_TEXT_WORDS, REASON_WORDS, Reason, SMALL,
    SlotHeader, VERSION,
};

/// The published memory of a process. It exists as long as a device is open.
#[derive(Debug)]
pub struct Page {
    /// `None` if the system does not let this process publish.
    shared: Option<Shared>,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    memory: Arc<PublishedMemory>,
    header: Words,
    space: Mutex<Space>,
}

/// Where there is space for slots, in words.
#[derive(Debug)]
struct Space {
    end: usize,
    small: Vec<usize>,
    large: Vec<usize>,
}

/// The page of this process, while it has one.
static CURRENT: Mutex<Weak<Page>> = Mutex::new(Weak::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    /// Returns the page of this process, created if there is none. A forked child gets its own. If the system does not
    /// let the process publish, everything works as if it did, and nobody sees it.
    pub fn of_process() -> Arc<Self> {
        let mut current = lock(&CURRENT);
        let process = std::process::id();
        if let Some(page) = current.upgrade().filter(|page| page.process == process) {
            return page;
        }
        let page = Arc::new(Self { shared: Shared::create().ok(), process });
        *current = Arc::downgrade(&page);
        page
    }

    /// Publishes why a call of this process was refused.
    pub fn set_last_reason(&self, number: u16, text: &str) {
        if let Some(shared) = &self.shared {
            // One thread at a time.
            let _guard = lock(&shared.space);
            store_reason(&shared.header, Header::LastReason as usize, number, text);
        }
    }

    /// Publishes an object; `fill` sets its fields. It is published until the slot is dropped.
    pub fn add(self: &Arc<Self>, kind: Kind, fill: impl FnOnce(&Slot)) -> Slot {
        let count = kind.words();
        let placed = self.shared.as_ref().and_then(|shared| {
            let placed = shared.place(count);
            if placed.is_none() {
                shared.header[Header::Unpublished as usize].fetch_add(1, Ordering::Relaxed);
            }
            placed
        });
        let (words, place) = match placed {
            Some((start, words)) => (words, Some((start, Arc::clone(self)))),
            None => (Words::private(count), None),
        };
        let slot = Slot { words, place };
        slot.update(|slot| {
            let fields = SlotHeader::Kind as usize + 1..count - 1;
            slot.words[fields].iter().for_each(|word| store(word, 0));
            slot.set(SlotHeader::Kind as usize, kind.to_word(count));
            fill(slot);
        });
        if let (Some(shared), Some((start, _))) = (&self.shared, &slot.place) {
            // Release: a reader that sees the end sees the size of the slot.
            let end = &shared.header[Header::End as usize];
            end.fetch_max((start + count) as u64, Ordering::Release);
        }
        slot
    }
}

impl Shared {
    fn create() -> io::Result<Self> {
        let memory = Arc::new(PublishedMemory::create(NAME)?);
        let header = memory.words(0, HEADER_WORDS)?;
        let set = |field: Header, value| store(&header[field as usize], value);
        set(Header::Version, VERSION);
        set(Header::End, HEADER_WORDS as u64);
        set(Header::Opened, clock::now());
        store_text(&header, Header::Library as usize, 4, env!("CARGO_PKG_VERSION"));
        header[Header::Magic as usize].store(MAGIC, Ordering::Release);
        let space = Space { end: HEADER_WORDS, small: Vec::new(), large: Vec::new() };
        Ok(Self { memory, header, space: Mutex::new(space) })
    }

    /// Takes the place of a slot, by preference one that was used before.
    fn place(&self, count: usize) -> Option<(usize, Words)> {
        let mut space = lock(&self.space);
        if let Some(start) = space.free(count).pop() {
            return Some((start, self.memory.words(start, count).ok()?));
        }
        let start = space.end;
        let words = self.memory.words(start, count).ok()?;
        // A slot in front must not hide this one: it is given its size before the end moves.
        store(&words[SlotHeader::Kind as usize], Kind::Free.to_word(count));
        space.end += count;
        Some((start, words))
    }
}

impl Space {
    fn free(&mut self, count: usize) -> &mut Vec<usize> {
        if count == SMALL { &mut self.small } else { &mut self.large }
    }
}

const _: () = assert!(SMALL != LARGE);

/// A published object.
///
/// Its words are independent atomics. [`Slot::update`] makes changes of several fields appear as one to readers.
#[derive(Debug)]
pub struct Slot {
    words: Words,
    /// Where it is in the page; `None` if it is not published.
    place: Option<(usize, Arc<Page>)>,
}

impl Slot {
    /// Returns a slot that is not published.
    pub fn unpublished(kind: Kind) -> Self {
        Self { words: Words::private(kind.words()), place: None }
    }

    /// The position in the page, by which other slots refer to this one.
    pub fn position(&self) -> u64 {
        self.place.as_ref().map_or(0, |(start, _)| *start as u64)
    }

    /// The page that it is in. Objects of one device are in one page.
    pub fn page(&self) -> Arc<Page> {
        self.place.as_ref().map_or_else(Page::of_process, |(_, page)| Arc::clone(page))
    }

    /// Returns a field.
    #[inline]
    pub fn word(&self, field: usize) -> &AtomicU64 {
        &self.words[field]
    }

    /// The first fields, for constant positions: these need no further check. An object with fewer fields has none.
    #[inline]
    pub fn first_words<const N: usize>(&self) -> Option<&[AtomicU64; N]> {
        self.words.first_chunk()
    }

    /// Sets a field.
    #[inline]
    pub fn set(&self, field: usize, value: u64) {
        store(&self.words[field], value);
    }

    /// Sets a field of `count` words to a text, which is cut if it is too long.
    pub fn set_text(&self, field: usize, count: usize, text: &str) {
        store_text(&self.words, field, count, text);
    }

    /// Sets the fields of a [`Reason`] that begin here.
    pub fn set_reason(&self, field: usize, number: u16, text: &str) {
        store_reason(&self.words, field, number, text);
    }

    /// Sets two fields to the 16 bytes of a GID.
    pub fn set_gid(&self, field: usize, gid: [u8; 16]) {
        for (index, bytes) in gid.chunks_exact(8).enumerate() {
            self.set(field + index, word_of(bytes));
        }
    }

    /// Changes fields so that a reader sees all changes or none. Only one thread at a time may do so; the lock of the
    /// object it describes sees to that.
    #[inline]
    pub fn update(&self, change: impl FnOnce(&Self)) {
        let (completed, begun) =
            (&self.words[SlotHeader::Completed as usize], &self.words[self.words.len() - 1]);
        let number = completed.load(Ordering::Relaxed).wrapping_add(1);
        store(begun, number);
        // The fields are written after this number, and before the other.
        fence(Ordering::Release);
        change(self);
        completed.store(number, Ordering::Release);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some((start, page)) = &self.place else { return };
        // A forked child inherited it, and perhaps the lock in a locked state.
        if page.process != std::process::id() {
            return;
        }
        let count = self.words.len();
        self.update(|slot| slot.set(SlotHeader::Kind as usize, Kind::Free.to_word(count)));
        if let Some(shared) = &page.shared {
            lock(&shared.space).free(count).push(*start);
        }
    }
}

/// The count is 0 in between, so that a reader of the header sees no half of a text.
fn store_reason(words: &[AtomicU64], field: usize, number: u16, text: &str) {
    let words = &words[field..field + REASON_WORDS];
    let count = words[Reason::Count as usize].swap(0, Ordering::Relaxed) + 1;
    fence(Ordering::Release);
    store(&words[Reason::Number as usize], number.into());
    store(&words[Reason::Time as usize], clock::now());
    let longest = text.len().min(8 * REASON_TEXT_WORDS);
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    store_text(words, Reason::Text as usize, REASON_TEXT_WORDS, &text[..end]);
    words[Reason::Count as usize].store(count, Ordering::Release);
}

#[inline]
fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn store_text(words: &[AtomicU64], field: usize, count: usize, text: &str) {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(8 * count, 0);
    for (word, bytes) in words[field..].iter().zip(bytes.chunks_exact(8)) {
        store(word, word_of(bytes));
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

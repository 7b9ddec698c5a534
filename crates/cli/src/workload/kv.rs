//! `kv`: a key-value store in the memory of rank 0.
//!
//! GET is a one-sided READ of the entry: the server's program takes no part in it. An entry has its version at the front
//! and at the back, as a seqlock has. A client that finds two versions, or an odd one, has read while the server was
//! changing the entry, and reads again. PUT is a SEND to the server, which changes the entry and answers with its
//! new version. INCREMENT takes a lock by compare-and-swap, READs a counter, WRITEs the next number, and releases the lock:
//! at the end the counter must equal the number of increments.

use ferroce::clock;

use super::fault::{Fault, check};
use super::job::{Job, Traits};
use super::link::Request;
use super::node::Node;
use super::random::{Random, fill, mismatch, mixed};
use super::tally::Tally;

pub(super) const TRAITS: Traits = Traits {
    count: ("operation", " per client", 2000),
    size: Some(("values", 256, 64 << 10)),
    depth: None,
    operations: "operations/s",
    latency: "an operation: of 100, about 80 are GETs, 15 PUTs and 5 locked increments",
    verified: ("values and versions", "those that were put, never an older one; and the counter"),
    delay: false,
    ranks: 4,
};

/// Keys of the store.
const KEYS: u64 = 64;

/// The lock and the counter.
const LOCK: usize = 0;
const COUNTER: usize = 8;
/// Where a client stores the results of atomics.
const ORIGINAL: usize = 16;
/// The entries, on the server.
const TABLE: usize = 64;

/// An entry: version, seed of the value, value, version.
fn entry_bytes(job: &Job) -> usize {
    job.size.next_multiple_of(8) + 24
}

fn entry(job: &Job, key: u64) -> usize {
    TABLE + key as usize * entry_bytes(job)
}

/// Where entries are READ to, and messages sent from.
fn own(job: &Job) -> usize {
    entry(job, KEYS)
}

pub(super) fn memory(job: &Job) -> usize {
    // A message to each client may be in flight.
    own(job) + (job.ranks + 1) * entry_bytes(job)
}

/// A PUT: key and value; the answer: key and version.
pub(super) fn message(job: &Job) -> usize {
    entry_bytes(job)
}

/// The value that a client puts with its operation number: the seed is part of the entry, so a reader can verify it.
fn value_seed(job: &Job, client: usize, operation: u64) -> u64 {
    mixed(job.seed ^ (client as u64) << 48 ^ operation)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// The version of an entry; `None` if the server was changing it.
fn version(entry: &[u8]) -> Option<u64> {
    let (front, back) = (number(entry, 0), number(entry, entry.len() - 8));
    (front == back && front % 2 == 0).then_some(front)
}

/// Changes an entry: readers see an odd version meanwhile.
fn change(node: &Node, job: &Job, key: u64, seed: u64, value: &[u8]) -> Result<u64, Fault> {
    let (at, back) = (entry(job, key), entry(job, key + 1) - 8);
    let version = node.word(at)?;
    node.set_word(at, version + 1)?;
    node.set_word(back, version + 1)?;
    node.set_word(at + 8, seed)?;
    node.memory.write(at + 16, value)?;
    node.set_word(at, version + 2)?;
    node.set_word(back, version + 2)?;
    Ok(version + 2)
}

pub(super) fn run(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    if node.rank == 0 {
        let mut value = vec![0; job.size];
        for key in 0..KEYS {
            fill(key, &mut value);
            change(node, job, key, key, &value)?;
        }
        node.barrier()?;
        return serve(node, job);
    }
    node.barrier()?;
    Client { node, job, versions: vec![0; KEYS as usize], tally: Tally::default(), retries: 0 }
        .run()
}

/// Rank 0: executes PUTs until every client has sent an empty message.
fn serve(node: &mut Node, job: &Job) -> Result<Tally, Fault> {
    let mut clients = node.peers();
    let (mut puts, mut increments) = (0_u64, 0);
    while !clients.is_empty() {
        let (client, bytes) = node.message(&clients, "request")?;
        if bytes.len() == 8 {
            increments += number(&bytes, 0);
            clients.retain(|rank| *rank != client);
            continue;
        }
        check(bytes.len() == 16 + job.size, || format!("a PUT has {} bytes", bytes.len()))?;
        let (key, seed) = (number(&bytes, 0), number(&bytes, 8));
        check(mismatch(seed, &bytes[16..]).is_none(), || {
            format!("rank {client} put a wrong value for key {key}")
        })?;
        let version = change(node, job, key % KEYS, seed, &bytes[16..])?;
        let at = own(job) + client * entry_bytes(job);
        node.set_word(at, key)?;
        node.set_word(at + 8, version)?;
        node.send(client, at, 16)?;
        puts += 1;
    }
    node.finish_all()?;
    let found = node.word(COUNTER)?;
    check(found == increments, || format!("the counter is {found} after {increments} increments"))?;
    let mut tally = Tally { verified: puts + 1, ..Tally::default() };
    tally.detail("puts", puts);
    tally.detail("increments", increments);
    Ok(tally)
}

/// Another rank.
struct Client<'a> {
    node: &'a mut Node,
    job: &'a Job,
    /// The highest version of each key that this client knows to exist.
    versions: Vec<u64>,
    tally: Tally,
    retries: u64,
}

impl Client<'_> {
    fn run(mut self) -> Result<Tally, Fault> {
        let mut random = Random::new(self.job.seed ^ self.node.rank as u64);
        let (mut gets, mut increments, mut waits) = (0_u64, 0, 0);
        for operation in 0..self.job.count {
            let (choice, key) = (random.below(100), random.below(KEYS));
            let start = clock::now();
            match choice {
                0..80 => {
                    self.get(key)?;
                    gets += 1;
                }
                80..95 => self.put(key, operation)?,
                _ => {
                    waits += self.increment()?;
                    increments += 1;
                }
            }
            self.tally.latencies.record(clock::now() - start);
            self.node.tick();
        }
        let at = own(self.job);
        self.node.set_word(at, increments)?;
        self.node.send(0, at, 8)?;
        self.node.finish_all()?;
        self.tally.operations = self.job.count;
        self.tally.detail("gets", gets);
        self.tally.detail("gets_repeated_because_of_a_put", self.retries);
        self.tally.detail("attempts_to_lock_that_failed", waits);
        Ok(self.tally)
    }

    fn get(&mut self, key: u64) -> Result<(), Fault> {
        let (at, length) = (own(self.job), entry_bytes(self.job));
        loop {
            let read = self.node.read(0, at, entry(self.job, key), length)?;
            self.node.finish(read)?;
            let bytes = self.node.load(at, length)?;
            let Some(front) = version(&bytes) else {
                self.retries += 1;
                continue;
            };
            let value = &bytes[16..16 + self.job.size];
            // The versions can be equal while bytes between them change: the front is older than what follows it.
            if mismatch(number(&bytes, 8), value).is_some() {
                let again = self.node.read(0, at, entry(self.job, key), 8)?;
                self.node.finish(again)?;
                let now = self.node.word(at)?;
                check(now != front, || {
                    format!("version {front} of key {key} has a value that nobody put")
                })?;
                self.retries += 1;
                continue;
            }
            let known = self.versions[key as usize];
            check(front >= known, || {
                format!("key {key} has version {front} after version {known}")
            })?;
            self.versions[key as usize] = front;
            self.tally.verified += 1;
            self.tally.bytes += self.job.size as u64;
            return Ok(());
        }
    }

    fn put(&mut self, key: u64, operation: u64) -> Result<(), Fault> {
        let at = own(self.job);
        let seed = value_seed(self.job, self.node.rank, operation);
        let mut value = vec![0; self.job.size];
        fill(seed, &mut value);
        self.node.set_word(at, key)?;
        self.node.set_word(at + 8, seed)?;
        self.node.memory.write(at + 16, &value)?;
        self.node.send(0, at, 16 + value.len())?;
        let (_, answer) = self.node.message(&[0], "answer to a PUT")?;
        check(answer.len() == 16 && number(&answer, 0) == key, || {
            format!("the answer to a PUT of key {key} is about another key")
        })?;
        let (known, version) = (self.versions[key as usize], number(&answer, 8));
        check(version > known, || format!("key {key} got version {version} after {known}"))?;
        self.versions[key as usize] = version;
        self.tally.bytes += self.job.size as u64;
        self.tally.verified += 1;
        Ok(())
    }

    /// Returns how often the lock was taken by another client.
    fn increment(&mut self) -> Result<u64, Fault> {
        let own = self.node.rank as u64;
        let swap =
            |compare, swap| Request::CompareSwap { local: ORIGINAL, remote: LOCK, compare, swap };
        let mut waits = 0;
        while self.node.atomic(0, swap(0, own))? != 0 {
            waits += 1;
        }
        let read = self.node.read(0, COUNTER, COUNTER, 8)?;
        self.node.finish(read)?;
        let next = self.node.word(COUNTER)? + 1;
        self.node.set_word(COUNTER, next)?;
        let write = self.node.write(0, COUNTER, COUNTER, 8)?;
        self.node.finish(write)?;
        let holder = self.node.atomic(0, swap(own, 0))?;
        check(holder == own, || format!("rank {own} released a lock that rank {holder} held"))?;
        Ok(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_being_changed_has_no_version() {
        let entry = |front: u64, back: u64| {
            [&front.to_ne_bytes()[..], &[0; 24], &back.to_ne_bytes()].concat()
        };
        assert_eq!(version(&entry(4, 4)), Some(4));
        for (front, back) in [(4, 6), (6, 4), (5, 5), (5, 4), (4, 5)] {
            assert_eq!(version(&entry(front, back)), None, "{front} {back}");
        }
    }
}

//! What must hold after a run, whatever the network did:
//!
//! - completions come in the order of their requests, exactly one each;
//! - the first that is not a success leaves the queue pair in error, and all behind it are flushed;
//! - a request that succeeded did exactly what it says, and an atomic did it exactly once;
//! - nothing outside what requests name was touched.

use ferroce_proto::work::Status;

use super::host::RdmaHost;
use super::program::{Effect, Program};

/// Adds what does not hold to `violations`. The passive host is missing when it crashed.
pub(super) fn verify(
    program: &Program,
    active: &RdmaHost,
    passive: Option<&RdmaHost>,
    violations: &mut Vec<String>,
) {
    let number = program.number;
    let mut say = |what: String| violations.push(format!("connection {number}: {what}"));
    let end = &active.ends[number];

    let ids: Vec<_> = end.sent.iter().map(|one| one.id.0 as usize).collect();
    if !ids.iter().copied().eq(0..program.len()) {
        say(format!("completions {ids:?} for {} requests", program.len()));
        return;
    }
    let good = end.sent.iter().take_while(|one| one.status == Status::Success).count();
    if good < program.len() {
        if end.qp.fault().is_none() {
            say("a request failed and the queue pair is not in error".to_owned());
        }
        if let Some(late) = end.sent[good + 1..].iter().find(|one| one.status != Status::Flushed) {
            say(format!("{late:?} behind a request that failed"));
        }
    }

    let [ours, theirs] = &program.before;
    let here = &active.memory.regions[number];
    let there = passive.map(|host| &host.memory.regions[number]);
    let mut messages = passive.map(|host| host.ends[number].received.iter());
    let mut counted = 0u64;
    let mut may_count = 0u64;
    // What may have changed: checked for having changed rightly where the request succeeded.
    let mut touched: [Vec<(usize, usize)>; 2] = [Vec::new(), Vec::new()];
    for (index, effect) in program.effects.iter().enumerate() {
        let succeeded = index < good;
        match *effect {
            Effect::Written { from, to, length } => {
                touched[1].push((to, length));
                if succeeded && there.is_some_and(|it| it[to..][..length] != ours[from..][..length])
                {
                    say(format!("request {index}: WRITE succeeded with other bytes"));
                }
            }
            Effect::Read { from, to, length } => {
                touched[0].push((to, length));
                if succeeded && here[to..][..length] != theirs[from..][..length] {
                    say(format!("request {index}: READ succeeded with other bytes"));
                }
            }
            Effect::Received { from, to, length, immediate } => {
                touched[1].push((to, length));
                let message = messages.as_mut().and_then(Iterator::next);
                if succeeded && passive.is_some() {
                    let right = message.is_some_and(|message| {
                        message.status == Status::Success
                            && message.id.0 as usize == index
                            && message.length as usize == length
                            && message.immediate == immediate
                    });
                    if !right {
                        say(format!("request {index}: SEND succeeded, its receive is {message:?}"));
                    }
                    if there.is_some_and(|it| it[to..][..length] != ours[from..][..length]) {
                        say(format!("request {index}: SEND succeeded with other bytes"));
                    }
                }
            }
            Effect::Counted { to } => {
                touched[0].push((to, 8));
                if succeeded && here[to..][..8] != counted.to_ne_bytes() {
                    say(format!("request {index}: an atomic did not see all that were before it"));
                }
                counted += u64::from(succeeded);
                may_count += 1;
            }
        }
    }
    if let Some(there) = there {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&there[program.counter..][..8]);
        let value = u64::from_ne_bytes(bytes);
        let exact = good == program.len();
        if value < counted || value > may_count || (exact && value != counted) {
            say(format!("{counted} of {may_count} atomics succeeded, the counter is {value}"));
        }
        touched[1].push((program.counter, 8));
        untouched(theirs, there, &touched[1], "the peer's memory", &mut say);
    }
    untouched(ours, here, &touched[0], "our memory", &mut say);
}

/// Whether everything outside of `touched` is as it was.
fn untouched(
    before: &[u8],
    after: &[u8],
    touched: &[(usize, usize)],
    whose: &str,
    say: &mut impl FnMut(String),
) {
    let mut expected = before.to_vec();
    for &(at, length) in touched {
        expected[at..at + length].copy_from_slice(&after[at..at + length]);
    }
    if expected != after {
        say(format!("{whose} was changed where no request points"));
    }
}

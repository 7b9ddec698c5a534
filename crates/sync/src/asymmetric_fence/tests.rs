use std::sync::atomic::AtomicUsize;

use super::*;

#[repr(align(128))]
struct Line(AtomicUsize);

/// Two threads store and then load what the other stored: at least one sees the other's store. Without the system
/// call, both occasionally miss it.
#[test]
fn one_of_two_threads_sees_the_other() {
    const ROUNDS: usize = if cfg!(miri) { 10 } else { 100_000 };
    prepare();
    let new = || Line(AtomicUsize::new(0));
    let (stores, starts) = ([new(), new()], [new(), new()]);
    let missed: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let threads = [0, 1].map(|me: usize| {
            let (stores, starts) = (&stores, &starts);
            scope.spawn(move || {
                let look = |round| {
                    starts[me].0.store(round, Ordering::Release);
                    // Both start at the same time, if there are two processors.
                    let mut spins = 0;
                    while starts[1 - me].0.load(Ordering::Acquire) < round {
                        spins += 1;
                        if spins > 1000 {
                            std::thread::yield_now();
                        }
                    }
                    stores[me].0.store(round, Ordering::Relaxed);
                    if me == 0 {
                        light()
                    } else {
                        heavy()
                    }
                    stores[1 - me].0.load(Ordering::Relaxed) < round
                };
                (1..=ROUNDS).map(look).collect()
            })
        });
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let both = missed[0].iter().zip(&missed[1]).filter(|(one, other)| **one && **other);
    assert_eq!(both.count(), 0);
}

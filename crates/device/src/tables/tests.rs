use std::rc::Rc;

use super::*;
use crate::testing::{QueuePair, queue_pair};

fn tables(slot: u8) -> Tables<Rc<QueuePair>, Rc<()>> {
    Tables::new(slot, Arc::default())
}

#[test]
fn a_queue_pair_is_found_by_all_bits_of_its_number() {
    let tables = tables(5);
    let numbers = [0x05_0010, 0x05_0110, 0x05_ffff].map(Qpn);
    numbers.iter().for_each(|number| tables.add_queue_pair(&queue_pair(number.0)));
    tables.check_invariants();
    for number in numbers {
        assert_eq!(tables.queue_pair(number).map(|found| found.number()), Some(number));
        // The same low bits in the slot of another process.
        assert!(tables.queue_pair(Qpn(number.0 ^ 1 << 16)).is_none());
        assert!(!tables.is_foreign(number) && tables.is_foreign(Qpn(number.0 ^ 1 << 16)));
    }
    let found: Vec<_> = tables.queue_pairs().iter().map(|found| found.number()).collect();
    assert_eq!(found, numbers);
}

#[test]
fn a_number_that_is_released_changes_the_version_and_may_be_used_again() {
    let tables = tables(1);
    let number = Qpn(0x01_2345);
    tables.add_queue_pair(&queue_pair(number.0));
    let before = tables.version();
    tables.remove_queue_pair(number);
    assert_ne!(tables.version(), before);
    assert!(tables.queue_pair(number).is_none());
    tables.add_queue_pair(&queue_pair(number.0));
    assert!(tables.queue_pair(number).is_some());
}

#[test]
fn new_numbers_are_those_of_no_queue_pair_and_no_receive_queue() {
    let tables = tables(2);
    tables.add_queue_pair(&queue_pair(0x02_0020));
    tables.add_receive_queue(Qpn(0x02_0021), Rc::new(()));
    // A generator that always draws 0x20, so that the next free one is taken.
    let drawn = || tables.new_number(|| 0x20 - 16);
    assert_eq!(drawn(), Some(Qpn(0x02_0022)));
    tables.remove_receive_queue(Qpn(0x02_0021));
    assert_eq!(drawn(), Some(Qpn(0x02_0021)));
}

#[test]
fn pages_without_a_queue_pair_take_no_memory() {
    let tables = tables(1);
    let mut random = 1_u32;
    for _ in 0..1000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let numbers = [random >> 16, random >> 16 ^ 1].map(|low| Qpn(0x01_0000 | low));
        numbers.iter().for_each(|number| tables.add_queue_pair(&queue_pair(number.0)));
        tables.check_invariants();
        numbers.iter().for_each(|&number| tables.remove_queue_pair(number));
        assert!(tables.queue_pairs().is_empty());
        assert!(tables.queue_pairs.lock().0.iter().all(Option::is_none));
    }
}

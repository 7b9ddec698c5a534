//! QPs without transports.

use std::rc::Rc;
use std::vec::Vec;

use ferroce_wire::number::Qpn;

use crate::handle::{Marks, Schedulable};

#[derive(Debug)]
pub(crate) struct QueuePair {
    number: Qpn,
    marks: Marks,
}

impl Schedulable for QueuePair {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

pub(crate) fn queue_pairs(count: usize) -> Vec<Rc<QueuePair>> {
    (0..count as u32).map(queue_pair).collect()
}

pub(crate) fn queue_pair(number: u32) -> Rc<QueuePair> {
    Rc::new(QueuePair { number: Qpn(number), marks: Marks::default() })
}

//! A QP as the device core sees it: the simulated host is single-threaded, and shares only the marks with its lists.

use std::rc::Rc;

use ferroce_device::{Marks, Membership, Schedulable};
use ferroce_wire::number::Qpn;

/// The part of a QP that the lists of the device core point to.
#[derive(Debug)]
pub(in crate::rdma) struct QpMarks {
    number: Qpn,
    marks: Marks,
}

impl Schedulable for QpMarks {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

/// What the device core remembers about a QP.
#[derive(Debug)]
pub(in crate::rdma) struct Scheduled {
    pub(in crate::rdma) handle: Rc<QpMarks>,
    pub(in crate::rdma) member: Membership,
}

impl Scheduled {
    pub(in crate::rdma) fn new(number: Qpn) -> Self {
        let handle = Rc::new(QpMarks { number, marks: Marks::default() });
        Self { handle, member: Membership::default() }
    }
}

/// The schedule of a simulated host.
pub(in crate::rdma) type Schedule = ferroce_device::schedule::Schedule<Rc<QpMarks>>;

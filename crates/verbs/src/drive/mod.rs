//! Who makes a pass and when: the policy, without threads and clocks. The engine tells it the time and what was found.
//!
//! Threads make passes in this order of preference:
//!
//! | thread | makes a pass | file |
//! |---|---|---|
//! | one that posts | at once; ACKs of received packets may wait for it | `deferral` |
//! | one that polls | if no poll just found nothing; then it may give its core to others | `polling`, `links` |
//! | one that waits | before it sleeps, and again while packets are likely to come soon | `spin` |
//! | the device thread | when packets, timers or other threads wake it; rarely while others make them | `device_thread` |

mod deferral;
mod device_thread;
mod links;
mod polling;
mod spin;

pub(crate) use deferral::Deferral;
pub(crate) use device_thread::{DeviceThread, Due, Pass, Programs, Sleep};
pub(crate) use links::{LinkReads, Links};
pub(crate) use polling::Polling;
pub(crate) use spin::Spin;

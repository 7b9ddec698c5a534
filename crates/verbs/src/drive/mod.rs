//! Who makes a pass and when: the policies, without threads and clocks. The engine tells them the time and what was found.
//!
//! | file | policy |
//! |---|---|
//! | `deferral` | whether ACKs may wait for the program's next call |
//! | `doze` | how the device thread shares the sockets with threads that poll or wait |
//! | `spin` | whether a thread that waits spins before it sleeps |
//! | `yielding` | when a thread that polls in vain gives its core to other threads |

pub(crate) mod deferral;
pub(crate) mod doze;
pub(crate) mod spin;
pub(crate) mod yielding;

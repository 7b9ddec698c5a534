//! Shows Ferroce's devices where programs look for RDMA devices, without privilege.
//!
//! RDMA programs look at `/sys/class/infiniband` and its neighbours, and at `/dev/infiniband`, beside calling the
//! libraries. Those folders belong to the kernel. This library is preloaded (`LD_PRELOAD`) by `ferroce run`, and answers
//! each call that names a path in one of them with the same path below the folder that `FERROCE_VIEW` names. All other
//! paths, and everything when the variable is not set, go through untouched ([decision 8](../../../docs/adr/0008-run.md)).
//!
//! Beside that it leads calls of libibverbs and librdmacm to ours in programs that carry libraries of their own
//! (`src/forward.rs`, [decision 14](../../../docs/adr/0014-bundled-libibverbs.md)).
//!
//! It is in programs that know nothing of it, so it keeps to what a C library may do at any time: it allocates nothing,
//! takes no lock, calls nothing of Rust's standard library that would, and leaves `errno` to the function it stands
//! before.
//!
//! # What it does not reach
//! - Programs that are linked statically, or make system calls themselves, as Go's do.
//! - Programs that the dynamic linker protects from its variables (set-user-ID, file capabilities).
//! - Relative paths that start outside of those folders: `cd /sys/class; ls infiniband`.

#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod forward;
#[cfg(not(test))]
mod glob;
#[cfg(not(test))]
mod next;
mod path;
#[cfg(not(test))]
mod root;
#[cfg(not(test))]
mod variable;

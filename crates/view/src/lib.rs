//! Redirects the paths under which programs look for RDMA devices to a directory of Ferroce, without privileges.
//!
//! Besides calling the libraries, RDMA programs read `/sys/class/infiniband*` and `/dev/infiniband`, which only the kernel can
//! populate. `ferroce run` preloads this library (`LD_PRELOAD`). It interposes on the functions of the C library that take a
//! path and redirects each path in these directories to the same path below the directory in `FERROCE_VIEW`. Other paths
//! are passed through unchanged, as are all paths if the variable is not set
//! ([decision 8](../../../docs/adr/0008-run.md)).
//!
//! It also forwards calls of libibverbs and librdmacm to Ferroce's libraries in programs that bundle their own copies
//! (`src/forward.rs`, [decision 14](../../../docs/adr/0014-bundled-libibverbs.md)).
//!
//! The library runs inside arbitrary programs, at any time and in signal handlers. It therefore does not allocate, takes no
//! lock, uses nothing of Rust's standard library that would, and preserves the `errno` of the function it interposes.
//!
//! # Limitations
//! The library does not reach:
//! - statically linked programs, and programs that make system calls directly, as Go programs do;
//! - programs for which the dynamic linker ignores `LD_PRELOAD` (set-user-ID, file capabilities);
//! - relative paths that start outside these directories: `cd /sys/class; ls infiniband`.

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

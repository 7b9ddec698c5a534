//! Communication libraries from Debian's packages, on our libraries with `ferroce run`: UCX, libfabric, Open MPI with
//! mpi4py, qperf. On one host, and between two (network namespaces with a link).
//!
//! `table` has a line for each; `mpi` runs `examples/mpi/ranks.py`, which compares every byte; `killed` kills one side;
//! `reported` captures some of them; `one_device` has programs that are given no device; `wheels` has Python packages that bundle libraries.

mod hosts;
mod killed;
mod mpi;
mod one_device;
mod pair;
mod reported;
mod table;
mod wheels;
mod workloads;

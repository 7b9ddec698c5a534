//! What programs send messages with, from Debian's packages, over our libraries by `ferroce run`: UCX, libfabric, Open MPI
//! with mpi4py, qperf. On one host, and between two, which are network namespaces with a cable.
//!
//! `table` has a line for each; `mpi` runs `examples/mpi/ranks.py`, which compares every byte; `killed` takes one end away;
//! `one_device` has those that are told of no device; `wheels` has Python packages that bring libraries of their own.

mod hosts;
mod killed;
mod mpi;
mod one_device;
mod pair;
mod table;
mod wheels;

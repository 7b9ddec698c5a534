//! Debian's programs on our libibverbs.so.1 on both sides: binaries linked with the real library run unchanged.
//!
//! `table` has a line for each program and its arguments; `symbols` checks the symbols that they bind.

mod bundled;
mod captures;
mod devinfo;
mod farewell;
mod pair;
mod shown;
mod situations;
mod symbols;
mod table;
mod trace;
mod valgrind;

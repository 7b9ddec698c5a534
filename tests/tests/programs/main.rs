//! Debian's own programs over our libibverbs.so.1, both ends ours: what was linked with the real library runs as it is.
//!
//! `table` has a line for each program and its arguments; `symbols` checks what all of them bind.

mod bundled;
mod captures;
mod devinfo;
mod farewell;
mod pair;
mod shown;
mod symbols;
mod table;
mod trace;
mod valgrind;

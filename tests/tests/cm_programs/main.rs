//! Debian's own programs over our librdmacm.so.1, both ends ours; and what goes wrong with connections, as a program in C
//! sees it.
//!
//! `table` has a line for each pair of programs; `faults` compiles `faults.c` with the headers of librdmacm, which also
//! shows that our structures are theirs.

mod faults;
mod table;

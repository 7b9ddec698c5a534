//! Debian's programs on our librdmacm.so.1 on both sides; and connection failures, as a C program sees them.
//!
//! `table` has a line for each pair of programs; `faults` compiles `faults.c` with the headers of librdmacm, which also
//! checks that our structures match them.

mod faults;
mod table;

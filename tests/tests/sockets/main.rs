//! `ferroce run --sockets`: TCP programs that know nothing of RDMA, with their data compared and the packets counted; and
//! the calls as a program in C makes them.

mod calls;
mod programs;
mod run;

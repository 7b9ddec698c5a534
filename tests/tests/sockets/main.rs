//! `ferroce run --sockets`: unmodified TCP programs, with their data compared and their packets counted; and the socket
//! calls as a C program makes them.

mod calls;
mod programs;
mod run;

//! rsockets of our librdmacm.so.1: Debian's programs with both ends ours, an ordinary TCP program over librspreload, the
//! calls as a program in C has them, and rstream with Linux's `rdma_rxe` on the other side.

mod calls;
mod capture;
#[path = "../programs/libraries.rs"]
mod libraries;
#[allow(dead_code, reason = "none of these programs joins a group")]
#[path = "../cm_programs/pair.rs"]
mod pair;
mod rxe;
mod table;

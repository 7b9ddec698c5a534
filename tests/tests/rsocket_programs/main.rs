//! rsockets of our librdmacm.so.1: Debian's programs with both ends ours, an ordinary TCP program over librspreload, the
//! calls as a program in C has them, and rstream with Linux's `rdma_rxe` on the other side.

mod calls;
mod capture;
mod rxe;
mod table;

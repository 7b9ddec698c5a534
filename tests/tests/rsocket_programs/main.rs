//! rsockets of our librdmacm.so.1: Debian's programs with both ends ours, ordinary TCP and UDP programs over librspreload,
//! the calls as a program in C has them, and rstream and udpong with Linux's `rdma_rxe` on the other side.

mod calls;
mod capture;
mod direct;
mod rxe;
mod rxe_datagrams;
mod table;

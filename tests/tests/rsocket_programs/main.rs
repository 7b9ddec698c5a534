//! rsockets of our librdmacm.so.1: Debian's programs on both sides, TCP and UDP programs over librspreload, the calls
//! from a C program, and rstream and udpong with Linux's `rdma_rxe` as the peer.

mod calls;
mod capture;
mod direct;
mod rxe;
mod rxe_datagrams;
mod table;

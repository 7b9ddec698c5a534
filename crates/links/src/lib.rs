//! The links of a device: the ways its packets take, apart from what they mean.
//!
//! | module | role |
//! |---|---|
//! | [`embedder`] | what the links need from the device that they belong to |
//! | [`faults`] | injected faults: a wrapper around what receives datagrams |
//! | [`packet`] | a packet that was received, and its metadata |
//! | [`route`] | the route of a packet: which address of the device it leaves from, and where it goes |
//! | [`ring`] | shared memory: packets between processes of one user on one host |
//! | [`udp`] | UDP sockets: packets to other hosts, and to local processes that share no memory |
//!
//! The crate knows packets, sockets and shared memory. It does not know the objects of the verbs interface, such as contexts and
//! CQs, nor the connection manager, and it starts no thread: its embedder decides which thread sends and receives.
#![forbid(unsafe_code)]

pub mod embedder;
pub mod faults;
pub mod packet;
pub mod ring;
pub mod route;
pub mod udp;

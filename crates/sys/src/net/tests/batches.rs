//! Batches of packets, with and without offloads of the kernel.

use std::io::IoSlice;
use std::os::fd::AsFd;

use super::namespace;
use super::{at, bytes, open, pattern, plain, receive, send, wait};
use crate::syscall::set_option;
use crate::{Error, Options, ReceiveBatch, Socket};

fn pair(ip: &str, from: Options, to: Options) -> (Socket, Socket) {
    let address = at(&format!("{ip}:0"));
    (Socket::open(address, &from).unwrap(), Socket::open(address, &to).unwrap())
}

/// The packets of a batch of these pieces.
fn cut(pieces: &[&[u8]], segment: usize) -> Vec<Vec<u8>> {
    pieces.concat().chunks(segment).map(<[u8]>::to_vec).collect()
}

fn batches_arrive(ip: &str, from: Options, to: Options) {
    let (sender, receiver) = pair(ip, from, to);
    assert_eq!((sender.gso(), receiver.features().gro), (from.gso, to.gro));
    let data = pattern(65_000);
    // Pieces that end inside packets, that are longer than packets, and that are empty.
    let gathered = [&data[..7], &data[7..3000], &[], &data[3000..3001], &data[3001..20_000]];
    let cases: [(&[&[u8]], usize); 5] = [
        (&[&data], 1040),
        (&gathered, 1040),
        (&[&data[..64 * 512]], 512),
        (&[&data[..100]], 512),
        (&[&data[..6400]], 100),
    ];
    for (pieces, segment) in cases {
        let expected = cut(pieces, segment);
        let pieces: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let batch = plain(receiver.local(), segment, &pieces);
        assert_eq!(sender.send(&batch).unwrap(), expected.len());
        assert_eq!(batch.packets(), expected.len());
        assert!(bytes(receive(&receiver, expected.len())) == expected, "{segment}");
    }
}

#[test]
fn batches_arrive_as_packets() {
    batches_arrive("127.9.1.1", Options::default(), Options::default());
}

#[test]
fn batches_arrive_without_gso() {
    let without = Options { gso: false, ..Options::default() };
    batches_arrive("127.9.1.2", without, Options::default());
}

#[test]
fn batches_arrive_without_gro() {
    let without = Options { gro: false, ..Options::default() };
    batches_arrive("127.9.1.3", Options::default(), without);
}

#[test]
fn batches_arrive_over_ipv6() {
    let options = Options::default();
    batches_arrive("[::1]", options, options);
    batches_arrive("[::1]", Options { gso: false, ..options }, Options { gro: false, ..options });
}

#[test]
fn coalesced_packets_are_one_datagram() {
    let (sender, receiver) = (open("127.9.1.4"), open("127.9.1.4"));
    let data = pattern(10_500);
    let pieces = [IoSlice::new(&data)];
    assert_eq!(sender.send(&plain(receiver.local(), 1000, &pieces)).unwrap(), 11);
    wait(&receiver);
    let mut batch = ReceiveBatch::for_socket(&receiver);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 1);
    let message = batch.messages().next().unwrap();
    assert_eq!((message.info.length, message.info.segment), (10_500, 1000));
    assert_eq!(message.packets().map(<[u8]>::len).collect::<Vec<_>>(), {
        let mut lengths = vec![1000; 10];
        lengths.push(500);
        lengths
    });
    assert_eq!(receiver.receive(&mut batch).unwrap(), 0);
    assert!(batch.is_empty() && batch.messages().next().is_none());
}

#[test]
fn invalid_batches_are_errors() {
    let socket = open("127.9.1.6");
    let data = pattern(65_508);
    let refused = |segment, length, to: &str| {
        let pieces = [IoSlice::new(&data[..length])];
        matches!(socket.send(&plain(at(to), segment, &pieces)), Err(Error::Invalid(_)))
    };
    assert!(refused(65_508, 65_508, "127.9.1.6:9"));
    assert!(refused(0, 10, "127.9.1.6:9"));
    assert!(refused(1, 65, "127.9.1.6:9"));
    assert!(refused(10, 10, "[::1]:9"));
    assert!(!refused(usize::MAX, 10, "127.9.1.6:9"));
    assert!(!refused(1, 64, "127.9.1.6:9"));
    let many = vec![IoSlice::new(&data[..1]); 1025];
    let batch = plain(at("127.9.1.6:9"), 100, &many);
    assert!(matches!(socket.send(&batch), Err(Error::Invalid(_))));
}

#[test]
fn sends_without_segmentation_after_the_kernel_refused_it() {
    let (sender, receiver) = (open("127.9.1.7"), open("127.9.1.7"));
    // The kernel does not segment packets that are sent without a checksum.
    set_option::<i32>(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let data = pattern(3000);
    let pieces = [IoSlice::new(&data)];
    let batch = plain(receiver.local(), 1000, &pieces);
    assert!(matches!(sender.send(&batch), Err(Error::GsoRefused)));
    sender.disable_gso();
    assert!(!sender.gso());
    assert_eq!(sender.send(&batch).unwrap(), 3);
    assert_eq!(bytes(receive(&receiver, 3)), cut(&[&data], 1000));
}

#[test]
fn a_full_buffer_accepts_fewer_packets() {
    namespace::run("a_full_buffer_accepts_fewer_packets", || {
        for gso in [true, false] {
            let options =
                Options { gso, send_buffer: 16_384, force_buffers: false, ..Options::default() };
            let socket = Socket::source(at("10.9.0.1:50000"), &options).unwrap();
            let data = pattern(8000);
            let pieces = [IoSlice::new(&data)];
            // No host has this address, so packets are queued in the kernel.
            let batch = plain(at("10.9.0.77:4791"), 1000, &pieces);
            let sent: Vec<usize> = (0..40).map(|_| socket.send(&batch).unwrap()).collect();
            assert!(sent[0] > 0 && sent.contains(&0), "{sent:?}");
            if gso {
                assert!(sent.iter().all(|&sent| sent == 0 || sent == 8), "{sent:?}");
            }
        }
    });
}

#[test]
fn small_buffers_are_reported() {
    let options = Options {
        receive_buffer: 4096,
        send_buffer: 8192,
        force_buffers: false,
        ..Options::default()
    };
    let (_, small) = pair("127.9.1.8", options, options);
    let large = open("127.9.1.8");
    let (small, large) = (*small.features(), *large.features());
    assert!((4096..20_000).contains(&small.receive_buffer), "{small:?}");
    assert!((8192..20_000).contains(&small.send_buffer), "{small:?}");
    assert!(large.receive_buffer > 10 * small.receive_buffer, "{large:?}");
}

#[test]
fn packets_beyond_the_receive_buffer_are_lost() {
    let options = Options { receive_buffer: 4096, force_buffers: false, ..Options::default() };
    let (sender, receiver) = pair("127.9.1.9", Options::default(), options);
    for packet in 0..100u8 {
        send(&sender, receiver.local(), &[packet; 1000]);
    }
    wait(&receiver);
    let mut batch = ReceiveBatch::new(200, 2000);
    let received = receiver.receive(&mut batch).unwrap();
    assert!((1..100).contains(&received), "{received}");
    let first = batch.messages().next().unwrap();
    assert_eq!(first.data, [0; 1000]);
}

#[test]
fn receives_at_most_the_requested_number() {
    let (sender, receiver) = (open("127.9.1.12"), open("127.9.1.12"));
    let mut batch = ReceiveBatch::for_socket(&receiver);
    // Different lengths, so that GRO does not coalesce them.
    for length in [5, 1, 3] {
        send(&sender, receiver.local(), &pattern(length));
    }
    let mut lengths = Vec::new();
    while lengths.len() < 3 {
        wait(&receiver);
        assert_eq!(receiver.receive_up_to(&mut batch, 1).unwrap(), 1);
        lengths.extend(batch.messages().map(|message| message.data.len()));
    }
    assert_eq!(lengths, [5, 1, 3]);
    // A maximum of 0 is treated as 1: a call that receives nothing would leave the socket readable for ever.
    send(&sender, receiver.local(), b"x");
    wait(&receiver);
    assert_eq!(receiver.receive_up_to(&mut batch, 0).unwrap(), 1);
}

#[test]
fn a_datagram_longer_than_the_buffer_is_marked_truncated() {
    let (sender, receiver) = (open("127.9.1.10"), open("127.9.1.10"));
    send(&sender, receiver.local(), &pattern(3000));
    let mut batch = ReceiveBatch::new(1, 100);
    wait(&receiver);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 1);
    let message = batch.messages().next().unwrap();
    assert!(message.info.truncated);
    assert_eq!(message.data, &pattern(3000)[..message.data.len()]);
}

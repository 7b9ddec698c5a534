//! Many packets from one call and into one, with and without the kernel's help.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use super::namespace::{self};
use super::{at, bytes, is_quiet, open, pattern, plain, receive, send, wait};
use crate::syscall::set_option;
use crate::{Error, Options, ReceiveBatch, Socket};

fn pair(ip: &str, from: Options, to: Options) -> (Socket, Socket) {
    let address = at(&format!("{ip}:0"));
    (Socket::open(address, &from).unwrap(), Socket::open(address, &to).unwrap())
}

/// What a batch of these pieces is when cut into packets.
fn cut(pieces: &[&[u8]], segment: usize) -> Vec<Vec<u8>> {
    pieces.concat().chunks(segment).map(<[u8]>::to_vec).collect()
}

fn batches_arrive(ip: &str, from: Options, to: Options) {
    let (sender, receiver) = pair(ip, from, to);
    assert_eq!((sender.gso(), receiver.features().gro), (from.gso, to.gro));
    let data = pattern(65_000);
    // Pieces that end inside packets, are longer than packets, are empty.
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
fn coalesced_packets_are_one_message() {
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
fn many_batches_in_one_call() {
    for gso in [true, false] {
        let options = Options { gso, ..Options::default() };
        let (sender, receiver) = pair("127.9.1.5", options, Options::default());
        let data = pattern(3000);
        let pieces = [IoSlice::new(&data)];
        let batches = vec![plain(receiver.local(), 700, &pieces); 40];
        assert_eq!(sender.send_many(&batches).unwrap(), 40 * 5);
        assert_eq!(sender.send_many(&[]).unwrap(), 0);
        let expected = vec![cut(&[&data], 700); 40].concat();
        assert!(bytes(receive(&receiver, 40 * 5)) == expected);

        // A batch that cannot be sent ends those before it, and is an error once it is the first.
        let mut batches = batches;
        batches[30].segment = 0;
        assert_eq!(sender.send_many(&batches).unwrap(), 30 * 5);
        assert!(matches!(sender.send_many(&batches[30..]), Err(Error::Unfit(_))));
        receive(&receiver, 30 * 5);
        assert!(is_quiet(&receiver));
    }
}

#[test]
fn what_can_never_be_sent_is_told() {
    let socket = open("127.9.1.6");
    let data = pattern(65_508);
    let refused = |segment, length, to: &str| {
        let pieces = [IoSlice::new(&data[..length])];
        matches!(socket.send(&plain(at(to), segment, &pieces)), Err(Error::Unfit(_)))
    };
    assert!(refused(65_508, 65_508, "127.9.1.6:9"));
    assert!(refused(0, 10, "127.9.1.6:9"));
    assert!(refused(1, 65, "127.9.1.6:9"));
    assert!(refused(10, 10, "[::1]:9"));
    assert!(!refused(usize::MAX, 10, "127.9.1.6:9"));
    assert!(!refused(1, 64, "127.9.1.6:9"));
    let many = vec![IoSlice::new(&data[..1]); 1025];
    let batch = plain(at("127.9.1.6:9"), 100, &many);
    assert!(matches!(socket.send(&batch), Err(Error::Unfit(_))));
}

#[test]
fn a_refusal_to_segment_is_told_and_survived() {
    let (sender, receiver) = (open("127.9.1.7"), open("127.9.1.7"));
    // The kernel does not segment packets that it shall send without a checksum.
    set_option::<i32>(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let data = pattern(3000);
    let pieces = [IoSlice::new(&data)];
    let batch = plain(receiver.local(), 1000, &pieces);
    assert!(matches!(sender.send(&batch), Err(Error::GsoRefused)));
    assert!(matches!(sender.send_many(&[batch, batch]), Err(Error::GsoRefused)));
    sender.disable_gso();
    assert!(!sender.gso());
    assert_eq!(sender.send(&batch).unwrap(), 3);
    assert_eq!(bytes(receive(&receiver, 3)), cut(&[&data], 1000));
}

#[test]
fn a_full_buffer_takes_fewer() {
    namespace::run("a_full_buffer_takes_fewer", || {
        for gso in [true, false] {
            let options =
                Options { gso, send_buffer: 16_384, force_buffers: false, ..Options::default() };
            let socket = Socket::source(at("10.9.0.1:50000"), &options).unwrap();
            let data = pattern(8000);
            let pieces = [IoSlice::new(&data)];
            // Nobody answers for this address, so packets wait in the kernel.
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
fn what_a_small_receive_buffer_cannot_hold_is_lost() {
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
fn no_more_is_received_than_asked_for() {
    let (sender, receiver) = (open("127.9.1.12"), open("127.9.1.12"));
    let mut batch = ReceiveBatch::for_socket(&receiver);
    // Of different lengths, so that they stay apart.
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
    // None is one as well: a call that never receives would be waited for in vain.
    send(&sender, receiver.local(), b"x");
    wait(&receiver);
    assert_eq!(receiver.receive_up_to(&mut batch, 0).unwrap(), 1);
}

#[test]
fn a_short_buffer_is_told() {
    let (sender, receiver) = (open("127.9.1.10"), open("127.9.1.10"));
    send(&sender, receiver.local(), &pattern(3000));
    let mut batch = ReceiveBatch::new(1, 100);
    wait(&receiver);
    assert_eq!(receiver.receive(&mut batch).unwrap(), 1);
    let message = batch.messages().next().unwrap();
    assert!(message.info.truncated);
    assert_eq!(message.data, &pattern(3000)[..message.data.len()]);
}

#[test]
fn a_message_can_be_looked_at_before_it_is_taken() {
    let (sender, receiver) = (open("127.9.1.11"), open("127.9.1.11"));
    let mut head = [0; 12];
    assert_eq!(receiver.peek(&mut head).unwrap(), None);
    assert_eq!(receiver.receive_into(&mut [IoSliceMut::new(&mut head)]).unwrap(), None);
    let data = pattern(2500);
    let pieces = [IoSlice::new(&data)];
    sender.send(&plain(receiver.local(), 1000, &pieces)).unwrap();
    wait(&receiver);
    for _ in 0..2 {
        let seen = receiver.peek(&mut head).unwrap().unwrap();
        assert_eq!((seen.source, seen.length), (sender.local(), 2500));
        assert_eq!((seen.segment, seen.truncated), (1000, true));
        assert_eq!(head, data[..12]);
    }
    // Headers and payload of each packet to different places.
    let (mut headers, mut payload) = (vec![0; 60], vec![0; 3000]);
    let taken = {
        let mut pieces = Vec::new();
        for (header, body) in headers.chunks_mut(20).zip(payload.chunks_mut(980)) {
            pieces.push(IoSliceMut::new(header));
            pieces.push(IoSliceMut::new(body));
        }
        receiver.receive_into(&mut pieces).unwrap().unwrap()
    };
    assert_eq!((taken.length, taken.segment, taken.truncated), (2500, 1000, false));
    assert_eq!(headers[20..40], data[1000..1020]);
    assert_eq!(payload[..980], data[20..1000]);
    assert_eq!(payload[1960..2440], data[2020..]);
    assert!(is_quiet(&receiver));
}

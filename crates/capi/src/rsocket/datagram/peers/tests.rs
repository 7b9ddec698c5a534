use super::*;

fn at(number: usize) -> SocketAddr {
    let [_, _, high, low] = (number as u32).to_be_bytes();
    ([10, 0, high, low], 1).into()
}

/// Whoever can reach the port can make itself known, under as many addresses as it likes.
#[test]
fn no_more_are_known_than_may_be() {
    let mut peers = Peers::default();
    for number in 0..2 * MOST {
        peers.add(at(number), Peer::new(0, number));
        assert!(peers.known.len() <= MOST && peers.order.len() == peers.known.len());
    }
    assert!(peers.get(at(MOST - 1)).is_none());
    assert_eq!(peers.get(at(MOST)).map(|peer| peer.longest), Some(MOST));
    assert!(peers.get(at(2 * MOST - 1)).is_some());
}

#[test]
fn one_that_is_known_is_not_known_twice() {
    let mut peers = Peers::default();
    for longest in 0..3 {
        peers.add(at(1), Peer::new(0, longest));
    }
    assert_eq!((peers.known.len(), peers.order.len()), (1, 1));
    assert_eq!(peers.get(at(1)).map(|peer| peer.longest), Some(2));
}

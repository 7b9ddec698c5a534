//! A filter by queue pair after a first pass selects every packet of the queue pair's conversations.

use std::fs;
use std::sync::Arc;

use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::Reth;

use super::capture_builder::{A, B, CaptureBuilder};
use super::rxe::{captures, path};
use crate::analysis::report::JoinedBy;
use crate::analysis::{Options, analyze, connected_pairs};
use crate::filter::Filter;

#[test]
fn either_queue_pair_selects_the_whole_conversation() {
    let (mut conversations, mut late) = (0, 0);
    for name in captures() {
        let bytes = fs::read(path(&name)).unwrap();
        let all = Options { packet_list: true, ..Options::default() };
        let whole = analyze(&name, &*bytes, &all, &mut |_| ());
        for conversation in whole.conversations.iter().filter(|it| it.transport != "UD") {
            let (Some(a), Some(b)) = (conversation.a.qpn, conversation.b.qpn) else { continue };
            for qpn in [a, b] {
                let filter = Filter { queue_pairs: vec![Qpn(qpn)], ..Filter::default() };
                let once = Options { filter, ..all.clone() };
                let pairs = Arc::new(connected_pairs(&*bytes, &once, &mut |_| ()));
                let twice = Options { pairs, ..once.clone() };
                let selected = |options: &Options| -> Vec<_> {
                    let report = analyze(&name, &*bytes, options, &mut |_| ());
                    let rows = report.packet_list.into_iter();
                    rows.filter(|row| row.conversation == Some(conversation.id)).collect()
                };
                let expected = selected(&all);
                assert_eq!(selected(&twice), expected, "{name}: QP {qpn:#x}");
                late += usize::from(selected(&once).len() < expected.len());
            }
            conversations += usize::from(conversation.joined_by == JoinedBy::Acknowledgement);
        }
    }
    // The first pass is what makes the difference.
    assert!(conversations > 10 && late > 10, "{late} of {conversations}");
}

/// How many responses a READ has is unknown without the path MTU, but not whether they are millions.
#[test]
fn a_read_does_not_expect_responses_of_another_queue_pair() {
    let mut wire = CaptureBuilder::new();
    wire.send_with(A, 2, Opcode::RC_RDMA_READ_REQUEST, 0, 0, |extensions| {
        extensions.reth = extensions.reth.map(|reth| Reth { length: 3000, ..reth });
    });
    wire.send(A, 3, Opcode::RC_SEND_ONLY, 1_000_000, 8).ack(B, 1, 1_000_000);
    let report = wire.report();
    assert_eq!(report.anomalies, []);
    assert_eq!(report.conversations[1].joined_by, JoinedBy::Acknowledgement);
}

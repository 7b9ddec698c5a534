//! A filter by queue pair after a first pass selects every packet of the queue pair's conversations.

use std::fs;
use std::sync::Arc;

use ferroce_wire::number::Qpn;

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

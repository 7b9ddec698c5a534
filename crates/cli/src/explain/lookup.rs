//! Finding a topic by the many names it has.

use ferroce_wire::opcode::{Opcode, Operation};

use super::topic::{Group, Topic};
use super::topics;

/// A topic that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) topic: &'static Topic,
    /// The opcode, if one was asked for.
    pub(super) opcode: Option<Opcode>,
}

impl From<&'static Topic> for Found {
    fn from(topic: &'static Topic) -> Self {
        Self { topic, opcode: None }
    }
}

/// Finds a topic; otherwise returns similar names.
pub(super) fn find(query: &str) -> Result<Found, Vec<&'static str>> {
    let query = query.trim();
    exact(query)
        .or_else(|| opcode(query))
        .or_else(|| without_words(query))
        .ok_or_else(|| similar(query))
}

/// Lower case, without punctuation and without the prefixes of libibverbs.
fn plain(text: &str) -> String {
    let text: String =
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let prefixes = [
        "ibvwcstatus",
        "ibvwc",
        "ibvwr",
        "ibvqps",
        "ibvqpt",
        "ibvsend",
        "ibv",
        "rdmacmevent",
        "wcstatus",
    ];
    let rest = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    match rest.filter(|rest| !rest.is_empty()) {
        // "ibv_wc_status 12" is "status 12".
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("status{number}")
        }
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

fn names(topic: &'static Topic) -> impl Iterator<Item = &'static str> {
    std::iter::once(topic.name).chain(topic.aliases.iter().copied())
}

fn exact(query: &str) -> Option<Found> {
    let wanted = plain(query);
    if wanted.is_empty() {
        return None;
    }
    let by = |matches: &dyn Fn(&'static str) -> bool| {
        topics::all().find(|topic| names(topic).any(matches)).map(Found::from)
    };
    // A name that is written exactly takes precedence: "error" is a state, "IBV_WC_RECV" a receive.
    by(&|name| name.eq_ignore_ascii_case(query)).or_else(|| by(&|name| plain(name) == wanted))
}

/// A bare number is a status; hexadecimal, or after the word, an opcode.
fn opcode(query: &str) -> Option<Found> {
    let lower = query.to_ascii_lowercase();
    let rest = lower.strip_prefix("opcode").map(|rest| rest.trim_matches([' ', '=', ':']));
    let text = rest.unwrap_or(&lower);
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok()?,
        None if rest.is_some() => text.parse().ok()?,
        None => return exact(&format!("status {}", text.parse::<u8>().ok()?)),
    };
    let opcode = Opcode(number);
    let info = opcode.info()?;
    let name = match info.operation {
        Operation::Send => "send",
        Operation::Write => "write",
        Operation::ReadRequest | Operation::ReadResponse => "read",
        Operation::Acknowledge => "ack",
        Operation::AtomicAcknowledge => "atomicacketh",
        Operation::CompareSwap => "cmp_swap",
        Operation::FetchAdd => "fetch_add",
        Operation::Resync => "opcode",
        Operation::Flush => "flush",
        Operation::AtomicWrite => "atomic_write",
        Operation::CongestionNotification => "cnp",
    };
    exact(name).map(|found| Found { opcode: Some(opcode), ..found })
}

/// "counter packet_seq_err", "qp state RTR", "the BTH header".
fn without_words(query: &str) -> Option<Found> {
    let groups: Vec<_> = Group::ALL.iter().flat_map(|group| group.singular().split(' ')).collect();
    let noise =
        ["the", "a", "an", "what", "is", "of", "qp", "error", "wc", "ibv_wc_status", "code"];
    let is_noise = |word: &&str| {
        let word = word.to_ascii_lowercase();
        let word = word.trim_end_matches('s');
        groups.iter().any(|group| group.trim_end_matches('s') == word) || noise.contains(&word)
    };
    let words: Vec<_> = query.split_whitespace().filter(|word| !is_noise(word)).collect();
    let rest = words.join(" ");
    if rest.is_empty() || rest.len() == query.len() {
        return None;
    }
    exact(&rest).or_else(|| opcode(&rest))
}

/// Up to five names that are close to the query.
fn similar(query: &str) -> Vec<&'static str> {
    let wanted = plain(query);
    let mut close: Vec<(usize, &'static str)> = topics::all()
        .filter_map(|topic| {
            let best = names(topic).map(|name| {
                let name = plain(name);
                let part = wanted.len() >= 3
                    && (name.contains(&wanted) || wanted.contains(&name) && name.len() >= 3);
                if part { 1 } else { distance(&wanted, &name) }
            });
            let best = best.min()?;
            (best <= (wanted.len() / 3).max(1)).then_some((best, topic.name))
        })
        .collect();
    close.sort_by_key(|(distance, _)| *distance);
    close.into_iter().map(|(_, name)| name).take(5).collect()
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(a != b);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && one[i - 1] == *b && other[j - 1] == *a {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn name(query: &str) -> &'static str {
        find(query).unwrap_or_else(|close| panic!("{query}: {close:?}")).topic.name
    }

    #[test]
    fn topics_have_many_spellings() {
        for (query, topic) in [
            ("write", "write"),
            ("RDMA_WRITE", "write"),
            ("IBV_WR_RDMA_WRITE", "write"),
            ("rdma write", "write"),
            ("ibv_wc_status 12", "retry_exc_err"),
            ("status 12", "retry_exc_err"),
            ("12", "retry_exc_err"),
            ("RETRY_EXC_ERR", "retry_exc_err"),
            ("IBV_WC_RETRY_EXC_ERR", "retry_exc_err"),
            ("status=12", "retry_exc_err"),
            ("bth", "bth"),
            ("the BTH header", "bth"),
            ("RTR", "rtr"),
            ("IBV_QPS_RTR", "rtr"),
            ("state RTR", "rtr"),
            ("rnr", "rnr"),
            ("packet_seq_err", "packet_seq_err"),
            ("counter packet_seq_err", "packet_seq_err"),
            ("0x0a", "write"),
            ("opcode 10", "write"),
            ("0x11", "ack"),
            ("0x81", "cnp"),
            ("0X64", "send"),
            ("R_Key", "rkey"),
            ("IBV_QPT_UD", "ud"),
            ("queue pair", "qp"),
            ("nack", "nak"),
            ("IBV_WC_WR_FLUSH_ERR", "wr_flush_err"),
            ("error", "err"),
            ("IBV_WR_FLUSH", "flush"),
            ("RDMA_CM_EVENT_ESTABLISHED", "established"),
        ] {
            assert_eq!(name(query), topic, "{query}");
        }
        assert_eq!(find("0x0a").unwrap().opcode, Some(Opcode(0x0a)));
    }

    #[test]
    fn similar_names_are_suggested() {
        for (query, topic) in [
            ("wirte", "write"),
            ("retry_exec_err", "retry_exc_err"),
            ("packet_seq", "packet_seq_err"),
            ("rkeys", "rkey"),
        ] {
            let close = find(query).unwrap_err();
            assert!(close.contains(&topic), "{query}: {close:?}");
        }
        assert_eq!(find("xyzzyplugh").unwrap_err(), [""; 0]);
        assert!(find("").is_err() && find("0x1f").is_err());
    }

    #[test]
    fn no_two_topics_share_a_spelling() {
        let mut seen = HashMap::new();
        for topic in topics::all() {
            for name in names(topic) {
                if let Some(other) = seen.insert(name.to_ascii_lowercase(), topic.name) {
                    assert_eq!(other, topic.name, "{name}");
                }
            }
        }
    }

    #[test]
    fn related_topics_exist() {
        for topic in topics::all() {
            for related in topic.see {
                assert_eq!(name(related), *related, "of {}", topic.name);
            }
        }
    }

    #[test]
    fn distances() {
        assert_eq!(
            [distance("write", "wirte"), distance("", "ab"), distance("rkey", "lkey")],
            [1, 2, 1]
        );
    }
}

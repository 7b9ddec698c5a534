//! Reasons: the numbers in `vendor_err`, with the topic that says more.

use std::io::{self, Write};

use ferroce::{REASONS, ReasonEntry};

use super::{ExplainArgs, lookup};
use crate::exit::ExitStatus;
use crate::style::{Role, Screen};

/// The reason that is asked for: `vendor_err 4`, or its name.
pub(super) fn find(query: &str) -> Option<&'static ReasonEntry> {
    let query = query.trim().to_ascii_lowercase();
    let number = ["vendor_err", "vendor_error", "reason"].iter().find_map(|word| {
        let rest = query.strip_prefix(word)?.trim_matches([' ', '=', ':']);
        match rest.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok(),
            None => rest.parse().ok(),
        }
    });
    REASONS.iter().find(|entry| number == Some(entry.number) || entry.name == query)
}

/// Prints the reason, and its topic.
pub(super) fn explain(reason: &ReasonEntry, args: &ExplainArgs, screen: &Screen) -> ExitStatus {
    let Ok(found) = lookup::find(reason.topic) else { return ExitStatus::Failure };
    if !args.json {
        let title = format!("vendor_err {}", reason.number);
        let title = screen.paint.role(Role::Title, &title);
        let text = format!("{title}  {}: {}\n", reason.name, reason.meaning);
        if let Err(error) = writeln!(io::stdout().lock(), "{text}") {
            return ExitStatus::of_output(Err(error), screen);
        }
    }
    super::explain(&found, args, screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_number_and_name() {
        let name = |query: &str| find(query).map(|entry| entry.name);
        assert_eq!(name("vendor_err 4"), Some("key_outside"));
        assert_eq!(name("vendor_err=0x29"), Some("psn_out_of_window"));
        assert_eq!(name("cq_overrun"), Some("cq_overrun"));
        assert_eq!((name("vendor_err 999"), name("status 4"), name("reason")), (None, None, None));
    }

    #[test]
    fn each_reason_has_a_topic() {
        for entry in REASONS {
            assert!(lookup::find(entry.topic).is_ok(), "{entry:?}");
        }
    }
}

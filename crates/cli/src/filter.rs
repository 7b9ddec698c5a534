//! `--plane`, `--qp`, `--host` and `--op`: the packet filter that several commands share.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ferroce_trace::filter::{Filter, Host, OperationKind, Plane};
use ferroce_wire::number::Qpn;

/// The largest QPN: 24 bits.
const MAX_QPN: u32 = 0xff_ffff;

/// The options of the packet filter, for `#[command(flatten)]`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Only this plane: control (connection manager, other MADs, set-up exchange) or data (everything else)
    #[arg(long, value_name = "PLANE", value_delimiter = ',', value_parser = planes(), hide_possible_values = true)]
    plane: Vec<Plane>,

    /// Only packets of these queue pairs, such as 17 or 0x000011
    #[arg(long, value_name = "QPN", value_delimiter = ',', value_parser = queue_pair)]
    qp: Vec<Qpn>,

    /// Only packets from or to these addresses; 192.0.2.0/24 stands for a range
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    host: Vec<Host>,

    /// Only these operations: send, write, read, atomic, atomic-write, flush, ack, nak, rnr, cnp, cm, mad, setup
    #[arg(long, value_name = "OP", value_delimiter = ',', value_parser = operations(), hide_possible_values = true)]
    op: Vec<OperationKind>,
}

impl FilterArgs {
    /// The filter.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            planes: self.plane.clone(),
            queue_pairs: self.qp.clone(),
            hosts: self.host.clone(),
            operations: self.op.clone(),
        }
    }
}

fn planes() -> impl TypedValueParser<Value = Plane> {
    let values = Plane::ALL.iter().map(|plane| possible(plane.name(), plane.meaning()));
    PossibleValuesParser::new(values).try_map(|name| Plane::from_name(&name).ok_or("no such plane"))
}

fn operations() -> impl TypedValueParser<Value = OperationKind> {
    let values = OperationKind::ALL.iter().map(|kind| possible(kind.name(), kind.meaning()));
    PossibleValuesParser::new(values)
        .try_map(|name| OperationKind::from_name(&name).ok_or("no such operation"))
}

fn possible(name: &'static str, meaning: &'static str) -> PossibleValue {
    PossibleValue::new(name).help(meaning)
}

fn queue_pair(text: &str) -> Result<Qpn, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number <= MAX_QPN => Ok(Qpn(number)),
        _ => {
            Err("expected a queue pair number from 0 to 16777215, in decimal or as 0x000011".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn parsed(words: &[&str]) -> Result<Filter, String> {
        let words = std::iter::once(&"test").chain(words);
        Command::try_parse_from(words)
            .map(|command| command.filter.filter())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_separated_by_commas_or_repeated() {
        let filter =
            parsed(&["--qp", "17,0x12", "--qp=1", "--op", "write,ack", "--plane", "data"]).unwrap();
        assert_eq!(filter.queue_pairs, [Qpn(17), Qpn(0x12), Qpn(1)]);
        assert_eq!(filter.operations, [OperationKind::Write, OperationKind::Ack]);
        assert_eq!(filter.planes, [Plane::Data]);
        let hosts = parsed(&["--host", "10.0.0.1,fe80::/64"]).unwrap().hosts;
        assert_eq!(
            hosts.iter().map(Host::to_string).collect::<Vec<_>>(),
            ["10.0.0.1", "fe80::/64"]
        );
        assert!(parsed(&[]).unwrap().is_empty());
    }

    #[test]
    fn errors_list_what_is_valid() {
        let error = parsed(&["--plane", "both"]).unwrap_err();
        assert!(error.contains("[possible values: control, data]"), "{error}");
        let error = parsed(&["--op", "wite"]).unwrap_err();
        assert!(error.contains("send, write, read, atomic, atomic-write"), "{error}");
        for wrong in ["", "x", "16777216", "0x1000000", "-1", "0xg"] {
            let error = parsed(&[&format!("--qp={wrong}")]).unwrap_err();
            assert!(error.contains("from 0 to 16777215"), "{error}");
        }
        for wrong in ["server", "10.0.0.1/33", "10.0.0.1:7", "::/129", "10.0.0.1/"] {
            let error = parsed(&["--host", wrong]).unwrap_err();
            assert!(error.contains("expected one such as") || error.contains("prefix"), "{error}");
        }
    }

    #[test]
    fn the_help_names_every_operation() {
        let help = <Command as clap::CommandFactory>::command().render_long_help().to_string();
        for kind in OperationKind::ALL {
            assert!(help.contains(kind.name()), "{}", kind.name());
        }
    }
}

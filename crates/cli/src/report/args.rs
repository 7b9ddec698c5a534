//! Arguments of `ferroce report`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, ValueHint};
use ferroce_report::figures::Figure;

use crate::input::DecompressionLimit;

/// Part of the help text.
pub(crate) const EXAMPLES: &str = "\
Examples:
  ferroce report capture.pcapng                writes report.html
  ferroce report rdma.pcapng tcp.pcap -o comparison.html
  ferroce report --packets 10000 large.pcapng -o large.html
  ferroce report capture.pcapng --svg io --svg ladder=first.svg
  tcpdump -w - udp port 4791 | ferroce report - -o live.html
  ferroce report --json capture.pcapng | jq '.files[].topics[].title'

Figures:
  io             traffic over time, by conversation; with several files, RDMA and TCP of each
  latency        latency distribution by operation
  in-flight      bytes sent and not yet acknowledged over time
  psn            PSNs sent and acknowledged over time, and retransmissions
  timeline       when each conversation was active, with its anomalies
  ladder         the packets of the conversation with the most severe anomalies
  conversations  bytes of each conversation";

/// Arguments of `ferroce report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Capture files, pcap or pcapng, also compressed with gzip or zstd; - reads standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// The page; - writes it to standard output
    ///
    /// By default report.html, or no page if --svg or --json is given.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,

    /// Write a figure as SVG, to NAME.svg unless a file is given; the figures are listed below
    #[arg(long, value_name = "NAME[=FILE]", value_parser = parse_figure)]
    pub(crate) svg: Vec<FigureFile>,

    /// Packets shown one by one, of each file; all are counted
    ///
    /// In a larger capture, these are the packets around anomalies, and the first and last ones of each conversation.
    /// The page states how many are not shown. Packets beyond 14 MB of data are listed without their bytes, so that a
    /// page is smaller than 20 MB.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = packets())]
    pub(crate) packets: usize,

    /// Print the data of the page as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show no progress bar
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) decompression: DecompressionLimit,
}

/// A figure and the file it is written to.
#[derive(Clone, Debug)]
pub(crate) struct FigureFile {
    pub(crate) figure: Figure,
    pub(crate) path: PathBuf,
}

fn parse_figure(text: &str) -> Result<FigureFile, String> {
    let (name, path) = match text.split_once('=') {
        Some((name, path)) => (name, path.into()),
        None => (text, format!("{text}.svg").into()),
    };
    let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
    let names = Figure::ALL.map(Figure::name).join(", ");
    let figure =
        figure.ok_or_else(|| format!("there is no figure {name:?}: choose from {names}"))?;
    Ok(FigureFile { figure, path })
}

/// At most so many that the list alone keeps within the size of a page.
fn packets() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(1..=20_000).map(|count| count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_a_name_and_a_file() {
        let figure = parse_figure("in-flight").unwrap();
        assert_eq!((figure.figure, figure.path), (Figure::InFlight, "in-flight.svg".into()));
        let figure = parse_figure("io=a=b.svg").unwrap();
        assert_eq!((figure.figure, figure.path), (Figure::Io, "a=b.svg".into()));
        assert!(parse_figure("nonsense").unwrap_err().contains("choose from io, latency"));
    }

    #[test]
    fn every_figure_is_explained_in_the_help() {
        for figure in Figure::ALL {
            assert!(EXAMPLES.contains(&format!("\n  {} ", figure.name())), "{}", figure.name());
        }
    }
}

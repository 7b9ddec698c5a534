//! Arguments of `ferroce decode`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use ferroce_trace::link::LinkType;

use super::numbers::Numbers;
use crate::filter::FilterArgs;
use crate::input::DecompressionLimit;

/// Arguments of `ferroce decode`.
#[derive(Args, Debug)]
pub(crate) struct DecodeArgs {
    /// A frame in hexadecimal, or a capture file; - reads standard input
    ///
    /// Hexadecimal digits may be separated by spaces, colons, commas and newlines, and prefixed with 0x. Anything else
    /// is a file name, as is everything if frame numbers follow.
    #[arg(value_name = "HEX|FILE", required_unless_present = "file", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<String>,

    /// The numbers of the frames to show, from 1: N, N-M, or N- for N and all following
    ///
    /// Without numbers, all frames of the file are listed, one line each.
    #[arg(value_name = "N")]
    pub(crate) numbers: Vec<Numbers>,

    /// The capture file, for names that look like hexadecimal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "numbers"], value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// A frame to show, with --file; can be repeated
    #[arg(long = "frame", value_name = "N", requires = "file")]
    pub(crate) frames: Vec<Numbers>,

    /// The link layer of a frame in hexadecimal
    ///
    /// By default Ethernet or IP is guessed. Capture files contain it.
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["file", "numbers"])]
    pub(crate) link: Option<Link>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Also show reserved fields that are zero, and complete payloads
    #[arg(long)]
    pub(crate) all: bool,

    /// Explain each frame in words
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) decompression: DecompressionLimit,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// The link layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// Ethernet, starting with the destination address
    Ethernet,
    /// IPv4 or IPv6
    Ip,
    /// Linux cooked capture, version 1
    Sll,
    /// Linux cooked capture, version 2
    Sll2,
    /// BSD loopback: an address family in the machine's byte order
    Null,
    /// OpenBSD loopback: an address family in network byte order
    Loop,
    /// Endace extensible record format
    Erf,
    /// InfiniBand, starting with the local route header
    Infiniband,
}

impl Link {
    /// The link type number of capture files.
    pub(crate) const fn link_type(self) -> LinkType {
        match self {
            Self::Ethernet => LinkType::ETHERNET,
            Self::Ip => LinkType::RAW,
            Self::Sll => LinkType::LINUX_SLL,
            Self::Sll2 => LinkType::LINUX_SLL2,
            Self::Null => LinkType::NULL,
            Self::Loop => LinkType::LOOP,
            Self::Erf => LinkType::ERF,
            Self::Infiniband => LinkType::INFINIBAND,
        }
    }
}

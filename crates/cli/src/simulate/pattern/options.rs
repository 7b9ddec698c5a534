//! The options of `ferroce simulate --pattern`, on the command line or in a file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use ferroce_sim::rdma::Congestion;
use ferroce_sim::rdma::traffic::{Experiment, Layout, Pattern};
use ferroce_sim::{Marking, Probability};
use serde::{Deserialize, Deserializer, de};

use super::units::{Ecn, Speed};
use crate::duration::Interval;
use crate::session::bytes::Size;

/// Hosts of an experiment.
const HOSTS: std::ops::RangeInclusive<u32> = 2..=1024;

/// One definition for the command line and the file: the keys of the file are the names of the options.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[command(next_help_heading = "Traffic patterns")]
pub(crate) struct Options {
    /// Measure a traffic pattern on a topology: incast, permutation, all-to-all, allreduce, parameter-server or storage
    #[arg(long, value_name = "NAME", group = "traffic", conflicts_with_all = super::OTHER_OPTIONS)]
    #[serde(deserialize_with = "text")]
    pub(super) pattern: Option<Pattern>,

    #[arg(skip)]
    #[serde(deserialize_with = "text")]
    pub(super) hosts: Option<u32>,

    #[arg(skip)]
    #[serde(deserialize_with = "text")]
    pub(super) congestion: Option<Congestion>,

    #[arg(skip)]
    #[serde(deserialize_with = "text")]
    pub(super) seed: Option<u64>,

    /// How hosts are connected: pair, star (one switch) or leaf-spine (ECMP by UDP source port) [default: star]
    #[arg(long, value_name = "KIND", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    topology: Option<Layout>,

    /// Hosts of each leaf switch [default: 8]
    #[arg(long, value_name = "COUNT", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    hosts_per_leaf: Option<u32>,

    /// Spine switches [default: 4]
    #[arg(long, value_name = "COUNT", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    spines: Option<u32>,

    /// Speed of each link in bits per second, such as 100G [default: 40G]
    #[arg(long, value_name = "SPEED", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    link_speed: Option<Speed>,

    /// Propagation delay of each link [default: 1us]
    #[arg(long, value_name = "TIME", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    link_delay: Option<Interval>,

    /// Bytes that each port of a switch queues before it drops [default: 1M]
    #[arg(long, value_name = "BYTES", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    buffer: Option<Size>,

    /// Queued bytes from which a port marks packets: KMIN:KMAX:PMAX, a threshold, or off [default: 5000:200000:0.01]
    #[arg(long, value_name = "BYTES", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    ecn: Option<Ecn>,

    /// Share of the packets that the links from the hosts lose [default: 0]
    #[arg(long, value_name = "SHARE", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    loss: Option<Probability>,

    /// Bytes of each flow; with allreduce, of the data that is reduced [default: 1M]
    #[arg(long, value_name = "BYTES", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    flow_size: Option<Size>,

    /// Repetitions of the pattern [default: 1]
    #[arg(long, value_name = "COUNT", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    rounds: Option<u32>,

    /// Bytes in flight of each queue pair with window or DCQCN, counting 768 more per packet [default: 96K]
    #[arg(long, value_name = "BYTES", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    window: Option<Size>,

    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: 1024]
    #[arg(long, value_name = "BYTES", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    mtu: Option<u16>,

    /// ACK timeout of the queue pairs [default: 16ms]
    #[arg(long, value_name = "TIME", requires = "traffic")]
    #[serde(deserialize_with = "text")]
    ack_timeout: Option<Interval>,
}

/// Reads a value as the command line does. A number may be written without quotes.
fn text<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    struct Text;

    impl de::Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a number")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }

    let text = deserializer.deserialize_any(Text)?;
    text.parse().map(Some).map_err(de::Error::custom)
}

impl Options {
    /// Takes what is not given here from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            pattern: self.pattern.or(other.pattern),
            hosts: self.hosts.or(other.hosts),
            congestion: self.congestion.or(other.congestion),
            seed: self.seed.or(other.seed),
            topology: self.topology.or(other.topology),
            hosts_per_leaf: self.hosts_per_leaf.or(other.hosts_per_leaf),
            spines: self.spines.or(other.spines),
            link_speed: self.link_speed.or(other.link_speed),
            link_delay: self.link_delay.or(other.link_delay),
            buffer: self.buffer.or(other.buffer),
            ecn: self.ecn.or(other.ecn),
            loss: self.loss.or(other.loss),
            flow_size: self.flow_size.or(other.flow_size),
            rounds: self.rounds.or(other.rounds),
            window: self.window.or(other.window),
            mtu: self.mtu.or(other.mtu),
            ack_timeout: self.ack_timeout.or(other.ack_timeout),
        }
    }

    /// Returns the experiment, with defaults for what is not given.
    pub(super) fn experiment(&self) -> Result<Experiment, String> {
        let mut experiment = Experiment::default();
        let network = &mut experiment.network;
        set(&mut experiment.pattern, self.pattern);
        set(&mut network.layout, self.topology);
        if network.layout == Layout::Pair {
            experiment.hosts = 2;
        }
        set(&mut experiment.hosts, self.hosts);
        set(&mut experiment.congestion, self.congestion);
        set(&mut experiment.seed, self.seed);
        set(&mut network.hosts_per_leaf, self.hosts_per_leaf);
        set(&mut network.spines, self.spines);
        set(&mut network.speed, self.link_speed.map(|speed| speed.0));
        set(&mut network.delay, self.link_delay.map(duration));
        set(&mut network.loss, self.loss);
        set(&mut network.marking, self.ecn.map(|ecn| ecn.0));
        set(&mut experiment.rounds, self.rounds);
        set(&mut experiment.mtu, self.mtu);
        set(&mut experiment.timeout, self.ack_timeout.map(duration));
        set(&mut network.buffer, number(self.buffer, "buffer", usize::MAX as u64)?);
        set(&mut experiment.window, number(self.window, "window", 1 << 30)?);
        set(&mut experiment.bytes, number(self.flow_size, "flow-size", 1 << 31)?);
        check(&experiment)?;
        Ok(experiment)
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn duration(interval: Interval) -> Duration {
    Duration::from_nanos(interval.nanoseconds)
}

/// Converts a size of at most `max`.
fn number<T: TryFrom<u64>>(size: Option<Size>, name: &str, max: u64) -> Result<Option<T>, String> {
    let Some(size) = size else { return Ok(None) };
    let number = Some(size.0).filter(|size| *size <= max).and_then(|size| size.try_into().ok());
    number.map(Some).ok_or_else(|| format!("{name}: must be at most {}", Size(max)))
}

/// Checks what the types of the options do not.
fn check(experiment: &Experiment) -> Result<(), String> {
    let Experiment { hosts, rounds, mtu, network, .. } = experiment;
    if !HOSTS.contains(hosts) {
        return Err(format!("hosts: must be from {} to {}", HOSTS.start(), HOSTS.end()));
    }
    if network.layout == Layout::Pair && *hosts != 2 {
        return Err("hosts: a pair has 2 hosts; use --topology star for more".to_owned());
    }
    if !mtu.is_power_of_two() || !(256..=4096).contains(mtu) {
        return Err("mtu: must be 256, 512, 1024, 2048 or 4096".to_owned());
    }
    for (name, value) in [
        ("rounds", *rounds),
        ("spines", network.spines),
        ("hosts-per-leaf", network.hosts_per_leaf),
    ] {
        if !(1..=4096).contains(&value) {
            return Err(format!("{name}: must be from 1 to 4096"));
        }
    }
    // The largest packet has 100 bytes of headers; one that never fits would be sent again until the QP fails.
    let packet = usize::from(*mtu) + 100;
    if network.buffer < packet {
        return Err(format!("buffer: must hold a packet, at least {packet} bytes"));
    }
    if let Some(Marking { start, full, .. }) = network.marking {
        if start > full {
            return Err("ecn: KMIN must not exceed KMAX".to_owned());
        }
    }
    Ok(())
}

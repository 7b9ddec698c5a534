//! Named network configurations.
//!
//! Random faults are on the uplinks only, so that a frame is exposed to them once; queues that overflow and mark are on
//! the downlinks, where senders meet.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use ferroce_proto::time::Instant;

use crate::fault::{Crash, Directions, FaultPlan, Partition, Pause, WhilePaused};
use crate::host::HostId;
use crate::probability::Probability;
use crate::random::Random;
use crate::settings::{
    Bandwidth, BurstLoss, Corruption, LinkConfig, Marking, Reordering, Settings,
};

/// A network by name. With a seed and a number of hosts it becomes [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// 100 Gbit/s, 1 µs each way, no fault.
    Clean,
    /// Each frame is lost with this probability, 1 % by default.
    Lossy(Probability),
    /// Rare bursts in which most frames are lost.
    Bursty,
    /// One frame in 20 is overtaken by others, and jitter reorders too.
    Reordering,
    /// One frame in 20 arrives twice.
    Duplicating,
    /// One frame in 50 arrives with 1 to 8 bits flipped.
    Corrupting,
    /// Downlinks ten times slower than uplinks, with short queues that mark and then drop.
    Congested,
    /// Sets of hosts that cannot reach each other for a while.
    Partitioned,
    /// Hosts that pause for a while.
    Pausing,
    /// A host that crashes, and may restart.
    Crashing,
    /// A host that crashes within the first 60 µs, with much in flight, and may restart.
    Crash,
    /// A mix of all, drawn from the seed; half of the hosts have memory that takes time.
    Hostile,
    /// Loss, reordering and duplication, drawn from the seed, under programs that create, reset and destroy queue pairs; half
    /// of the hosts have memory that takes time.
    Churn,
    /// The programs of [`Scenario::Churn`] in processes of machines that several share: packets go through transmit queues
    /// or over the network, which may give a frame to the wrong process of its address; processes pause, end, and begin again.
    Machines,
}

/// The time from the start within which the failures of a plan happen.
const FAILURE_WINDOW: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_millis(50);

impl Scenario {
    /// One of each.
    pub const ALL: [Self; 14] = [
        Self::Clean,
        Self::Lossy(Probability::percent(1)),
        Self::Bursty,
        Self::Reordering,
        Self::Duplicating,
        Self::Corrupting,
        Self::Congested,
        Self::Partitioned,
        Self::Pausing,
        Self::Crashing,
        Self::Crash,
        Self::Hostile,
        Self::Churn,
        Self::Machines,
    ];

    /// [`Scenario::Lossy`] with this share of frames lost.
    pub fn lossy(share: f64) -> Self {
        Self::Lossy(Probability::new(share))
    }

    /// Returns the name, without parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Lossy(_) => "lossy",
            Self::Bursty => "bursty",
            Self::Reordering => "reordering",
            Self::Duplicating => "duplicating",
            Self::Corrupting => "corrupting",
            Self::Congested => "congested",
            Self::Partitioned => "partitioned",
            Self::Pausing => "pausing",
            Self::Crashing => "crashing",
            Self::Crash => "crash",
            Self::Hostile => "hostile",
            Self::Churn => "churn",
            Self::Machines => "machines",
        }
    }

    /// Returns a one-line description.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Clean => "100 Gbit/s, 1 µs each way, no fault",
            Self::Lossy(_) => {
                "each frame is lost with probability P, independently; lossy:0.05 is 5 %"
            }
            Self::Bursty => "rare bursts in which most frames are lost",
            Self::Reordering => "frames overtake each other",
            Self::Duplicating => "frames arrive twice",
            Self::Corrupting => "frames arrive with flipped bits",
            Self::Congested => "slow downlinks with short queues that mark and then drop",
            Self::Partitioned => "hosts that cannot reach each other for a while",
            Self::Pausing => "hosts that pause for a while",
            Self::Crashing => "a host crashes, and may restart",
            Self::Crash => "a host crashes with much in flight, and may restart",
            Self::Hostile => "a mix of all, drawn from the seed",
            Self::Churn => {
                "queue pairs and regions that come and go, with loss, reordering and duplication"
            }
            Self::Machines => {
                "churn of processes that share machines, end and begin again, with transmit queues between them"
            }
        }
    }

    /// Returns the settings for this seed and number of hosts. Callers may change them.
    pub fn settings(self, seed: u64, hosts: u32) -> Settings {
        let random = Random::new(seed).stream("scenario");
        let link = LinkConfig {
            bandwidth: Bandwidth::gigabits(100),
            latency: Duration::from_nanos(500),
            ..LinkConfig::default()
        };
        let mut settings = Settings { uplink: link.clone(), downlink: link, ..Settings::default() };
        let (up, down) = (&mut settings.uplink, &mut settings.downlink);
        match self {
            Self::Clean => {}
            Self::Lossy(share) => up.loss = share,
            Self::Bursty => up.burst = Some(bursts(Probability::new(0.002))),
            Self::Reordering => {
                (up.jitter, up.jitter_reorders) = (Duration::from_micros(2), true);
                up.reordering = Some(extra_delays(Probability::percent(5)));
            }
            Self::Duplicating => {
                up.duplication = Probability::percent(5);
                up.jitter = Duration::from_micros(2);
            }
            Self::Corrupting => {
                up.corruption =
                    Some(Corruption { probability: Probability::percent(2), max_bits: 8 });
            }
            Self::Congested => congest(down),
            Self::Partitioned => {
                settings.faults.partitions = partitions(&mut random.stream("partitions"), hosts);
            }
            Self::Pausing => settings.faults.pauses = pauses(&mut random.stream("pauses"), hosts),
            Self::Crashing => {
                settings.faults.crashes = crashes(&mut random.stream("crashes"), hosts);
            }
            Self::Crash => {
                let mut random = random.stream("crash");
                settings.faults.crashes = crashes(&mut random, hosts);
                let soon = random.duration(Duration::ZERO..=Duration::from_micros(60));
                for crash in &mut settings.faults.crashes {
                    let back = crash.restart.map(|restart| restart.since(crash.at));
                    crash.at = Instant::ZERO + soon;
                    crash.restart = back.map(|back| crash.at + back);
                }
            }
            Self::Hostile => hostile(&mut settings, &random, hosts),
            Self::Churn => churn(up, &random),
            Self::Machines => {
                churn(up, &random);
                let share = random.stream("missteering").below(200_000_000) as u32;
                settings.missteering = Probability::from_parts_per_billion(share);
            }
        }
        settings
    }
}

fn bursts(begin: Probability) -> BurstLoss {
    BurstLoss {
        begin,
        end: Probability::percent(10),
        loss_when_good: Probability::NEVER,
        loss_when_bad: Probability::percent(80),
    }
}

fn extra_delays(probability: Probability) -> Reordering {
    let (min_delay, max_delay) = (Duration::from_micros(1), Duration::from_micros(50));
    Reordering { probability, min_delay, max_delay }
}

fn congest(downlink: &mut LinkConfig) {
    downlink.bandwidth = Bandwidth::gigabits(10);
    downlink.queue_limit = Some(128 << 10);
    let max_probability = Probability::percent(20);
    downlink.marking = Some(Marking { start: 16 << 10, full: 64 << 10, max_probability });
}

fn moment(random: &mut Random) -> Instant {
    Instant::ZERO + random.duration(FAILURE_WINDOW)
}

fn some_host(random: &mut Random, hosts: u32) -> HostId {
    HostId(random.below(u64::from(hosts)) as u32)
}

fn partitions(random: &mut Random, hosts: u32) -> Vec<Partition> {
    let count = random.between(1..=3);
    let draw = |_| {
        let from = moment(random);
        let length = random.duration(Duration::from_micros(100)..=Duration::from_millis(10));
        let mut side_a: Vec<HostId> =
            (0..hosts).map(HostId).filter(|_| random.chance(Probability::percent(50))).collect();
        if side_a.is_empty() {
            side_a.push(some_host(random, hosts));
        }
        let directions = match random.below(4) {
            0 => Directions::AToB,
            1 => Directions::BToA,
            _ => Directions::Both,
        };
        Partition { from, until: from + length, side_a, side_b: None, directions }
    };
    (0..count).map(draw).collect()
}

fn pauses(random: &mut Random, hosts: u32) -> Vec<Pause> {
    let count = random.between(1..=5);
    let draw = |_| {
        let from = moment(random);
        let length = random.duration(Duration::from_micros(10)..=Duration::from_millis(5));
        let drops = random.chance(Probability::percent(50));
        let arriving = if drops { WhilePaused::Drop } else { WhilePaused::Wait };
        Pause { host: some_host(random, hosts), from, until: from + length, arriving }
    };
    (0..count).map(draw).collect()
}

fn crashes(random: &mut Random, hosts: u32) -> Vec<Crash> {
    let at = moment(random);
    let back = random.duration(Duration::from_micros(100)..=Duration::from_millis(20));
    let restart = random.chance(Probability::percent(50)).then_some(at + back);
    vec![Crash { host: some_host(random, hosts), at, restart }]
}

/// Draws which kinds of faults are present and how severe they are. Each kind draws from its own stream, so that a new
/// kind leaves the others of a seed unchanged.
fn hostile(settings: &mut Settings, random: &Random, hosts: u32) {
    let up_to = |random: &mut Random, max: u32| {
        Probability::from_parts_per_billion(random.between(1..=u64::from(max)) as u32)
    };
    const PERCENT: u32 = 10_000_000;
    let with = |name: &str, percent: u32| {
        let mut random = random.stream(name);
        random.chance(Probability::percent(percent)).then_some(random)
    };
    let Settings { uplink, downlink, faults, .. } = settings;
    if let Some(mut random) = with("latency", 75) {
        uplink.latency = random.duration(Duration::ZERO..=Duration::from_micros(100));
        downlink.latency = random.duration(Duration::ZERO..=Duration::from_micros(10));
    }
    if let Some(mut random) = with("jitter", 50) {
        uplink.jitter = random.duration(Duration::ZERO..=Duration::from_micros(20));
        uplink.jitter_reorders = random.chance(Probability::percent(50));
    }
    if let Some(mut random) = with("loss", 50) {
        uplink.loss = up_to(&mut random, 10 * PERCENT);
    }
    if let Some(mut random) = with("burst", 25) {
        uplink.burst = Some(bursts(up_to(&mut random, PERCENT)));
    }
    if let Some(mut random) = with("corruption", 30) {
        let probability = up_to(&mut random, 5 * PERCENT);
        let max_bits = random.between(1..=16) as u32;
        uplink.corruption = Some(Corruption { probability, max_bits });
    }
    if let Some(mut random) = with("duplication", 40) {
        uplink.duplication = up_to(&mut random, 10 * PERCENT);
    }
    if let Some(mut random) = with("reordering", 40) {
        uplink.reordering = Some(extra_delays(up_to(&mut random, 10 * PERCENT)));
    }
    if with("congestion", 30).is_some() {
        congest(downlink);
    }
    let [mut cut, mut pause, mut crash] =
        [("partitions", 20), ("pauses", 25), ("crashes", 5)].map(|(name, often)| with(name, often));
    *faults = FaultPlan {
        partitions: cut.as_mut().map_or_else(Vec::new, |random| partitions(random, hosts)),
        pauses: pause.as_mut().map_or_else(Vec::new, |random| pauses(random, hosts)),
        crashes: crash.as_mut().map_or_else(Vec::new, |random| crashes(random, hosts)),
    };
}

/// Draws faults that queue pairs recover from. One network in eight has none.
fn churn(uplink: &mut LinkConfig, random: &Random) {
    let mut random = random.stream("churn");
    let kinds = random.below(8);
    if kinds & 1 != 0 {
        uplink.loss = Probability::from_parts_per_billion(random.below(50_000_000) as u32);
    }
    if kinds & 2 != 0 {
        uplink.reordering = Some(extra_delays(Probability::percent(5)));
    }
    if kinds & 4 != 0 {
        uplink.duplication = Probability::percent(5);
    }
    uplink.latency = random.duration(Duration::ZERO..=Duration::from_micros(20));
}

/// Writes the name, with the parameter if it has one: `lossy:0.01`.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lossy(share) => write!(f, "lossy:{share}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// The error of an unknown scenario name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScenario(pub String);

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown scenario \"{}\"; choose one of", self.0)?;
        for (at, scenario) in Scenario::ALL.into_iter().enumerate() {
            write!(f, "{} {}", if at == 0 { "" } else { "," }, scenario.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownScenario {}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, UnknownScenario> {
        let unknown = || UnknownScenario(text.into());
        if let Some(share) = text.strip_prefix("lossy:") {
            return share.parse().map(Self::Lossy).map_err(|_| unknown());
        }
        Self::ALL.into_iter().find(|scenario| scenario.name() == text).ok_or_else(unknown)
    }
}

//! `small-server` and `small-client`: messages of 64 bytes, one after another, as `ib_send_lat` and `ib_write_bw` send them.
//!
//! A core that shares its execution units with a busy sibling hyperthread, which may belong to another virtual machine, computes at half
//! the speed, for milliseconds or for minutes. So the figures are taken of short chunks: their median says what a program gets on this
//! machine, and their best 2 % what the code takes when the siblings are idle, which repeats within one or two percent.

use std::time::{Duration, Instant};

use clap::Args;
use ferroce::{
    CompletionKind, Data, Operation, RKey, ReceiveRequest, RemoteAddress, SendRequest, Sge, Status,
    VirtualAddress, WorkId,
};

use super::control::Control;
use super::end::{End, Setup, text};
use crate::parse::sample;
use crate::statistics::quantile;

/// Bytes of a message.
const SIZE: u32 = 64;

/// Send requests in flight, of which each [`SIGNALED`]th generates a completion, as with perftest.
const DEPTH: u32 = 128;
const SIGNALED: u64 = 100;

/// Receive requests, which are posted before the first message and after each.
const RECEIVES: u32 = 512;

/// Round trips of a chunk, and how long a chunk of WRITEs is.
const ROUND_TRIPS: usize = 2_000;
const WRITES: Duration = Duration::from_millis(2);

/// The quantile of chunks that counts as undisturbed.
const UNDISTURBED: f64 = 0.02;

/// How long to wait for a message or a completion.
const STALLED: Duration = Duration::from_secs(20);

/// The options of both.
#[derive(Args, Clone, Debug)]
pub(crate) struct Small {
    /// TCP port of the control connection
    #[arg(long, default_value_t = 7000)]
    port: u16,
    /// Round trips to measure
    #[arg(long, default_value_t = 400_000)]
    round_trips: usize,
    /// How long to write
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

impl Small {
    fn end(&self) -> Result<End, String> {
        let setup = Setup {
            port: self.port,
            qps: 1,
            footprint: 1 << 16,
            receive_buffer: None,
            shards: None,
        };
        End::with_receives(&setup, DEPTH, RECEIVES)
    }
}

/// Serves one client.
pub(crate) fn serve(small: &Small) -> Result<(), String> {
    let end = small.end()?;
    let listener = Control::listen(small.port)?;
    let mut control = Control::accept(&listener)?;
    let remote = end.region.remote(0);
    control.send(&format!("{} {}", remote.address.0, remote.key.0))?;
    control.send(&end.numbers())?;
    end.connect(&control.numbers::<u32>()?)?;
    let messages = Messages::new(&end)?;
    control.send("ready")?;
    for number in 0..small.round_trips as u64 {
        messages.receive()?;
        messages.send(number)?;
    }
    control.expect("bye")
}

/// Runs the client, and prints the figures.
pub(crate) fn run(small: &Small) -> Result<(), String> {
    let end = small.end()?;
    let mut control = Control::connect(small.port)?;
    let remote = control.numbers::<u64>()?;
    let [address, key] = remote[..] else { return Err("no remote address".to_owned()) };
    let remote = RemoteAddress { address: VirtualAddress(address), key: RKey(key as u32) };
    let peers = control.numbers::<u32>()?;
    control.send(&end.numbers())?;
    end.connect(&peers)?;
    let messages = Messages::new(&end)?;
    control.expect("ready")?;
    let mut times = messages.ping_pong(small.round_trips)?;
    let mut rates = messages.write(remote, Duration::from_secs_f64(small.seconds))?;
    control.send("bye")?;
    super::print(&sample([
        ("typical", quantile(&mut times, 0.5)),
        ("undisturbed", quantile(&mut times, UNDISTURBED)),
        ("messages", quantile(&mut rates, 0.5)),
        ("undisturbed_messages", quantile(&mut rates, 1.0 - UNDISTURBED)),
    ]))
}

/// The messages of one end.
#[derive(Debug)]
struct Messages<'a> {
    end: &'a End,
    sent: Sge,
    received: Sge,
}

impl<'a> Messages<'a> {
    fn new(end: &'a End) -> Result<Self, String> {
        let [sent, received] = [0, 4096].map(|offset| end.region.sge(offset, SIZE));
        let messages = Self { end, sent, received };
        (0..RECEIVES).try_for_each(|_| messages.post_receive())?;
        Ok(messages)
    }

    fn post_receive(&self) -> Result<(), String> {
        let request = ReceiveRequest { id: WorkId(0), sg_list: self.received.into() };
        self.end.qps[0].post_receive(request).map_err(text)
    }

    fn post(&self, number: u64, operation: Operation) -> Result<(), String> {
        let data = Data::SgList(self.sent.into());
        let signaled = number % SIGNALED == SIGNALED - 1;
        let request = SendRequest { signaled, ..SendRequest::new(WorkId(0), operation, data) };
        self.end.qps[0].post_send(request).map_err(text)
    }

    fn send(&self, number: u64) -> Result<(), String> {
        self.post(number, Operation::SEND)
    }

    /// Polls until there is a completion of this kind.
    fn await_completion(&self, receive: bool) -> Result<(), String> {
        let mut deadline = None;
        for polls in 1_u64.. {
            if let Some(done) = self.end.cq.poll_one() {
                if done.status != Status::Success {
                    return Err(format!("a request failed: {:?}", done.status));
                }
                if (done.kind == CompletionKind::Receive) == receive {
                    return Ok(());
                }
            }
            if polls % 100_000 == 0 {
                let now = Instant::now();
                if now > *deadline.get_or_insert(now + STALLED) {
                    break;
                }
            }
        }
        Err(format!("no completion for {STALLED:?}"))
    }

    fn receive(&self) -> Result<(), String> {
        self.await_completion(true)?;
        self.post_receive()
    }

    /// Exchanges messages. Returns half of a round trip in µs: the median of each chunk.
    fn ping_pong(&self, round_trips: usize) -> Result<Vec<f64>, String> {
        let mut chunk = Vec::with_capacity(ROUND_TRIPS);
        let mut medians = Vec::new();
        let mut last = Instant::now();
        for number in 0..round_trips {
            self.send(number as u64)?;
            self.receive()?;
            let now = Instant::now();
            chunk.push((now - last).as_secs_f64() * 1e6 / 2.0);
            last = now;
            if chunk.len() == ROUND_TRIPS {
                medians.push(quantile(&mut chunk, 0.5));
                chunk.clear();
                last = Instant::now();
            }
        }
        Ok(medians)
    }

    /// Writes one message per call, with a full send queue. Returns millions of messages per second: the rate of each chunk.
    fn write(&self, remote: RemoteAddress, time: Duration) -> Result<Vec<f64>, String> {
        let mut rates = Vec::new();
        let (mut posted, mut done) = (0, 0);
        let begin = Instant::now();
        let (mut chunk, mut done_before) = (begin, 0);
        while begin.elapsed() < time {
            while posted - done < u64::from(DEPTH) {
                self.post(posted, Operation::Write { remote, immediate: None })?;
                posted += 1;
            }
            self.await_completion(false)?;
            done += SIGNALED;
            let passed = chunk.elapsed();
            if passed >= WRITES {
                rates.push((done - done_before) as f64 / passed.as_secs_f64() / 1e6);
                (chunk, done_before) = (Instant::now(), done);
            }
        }
        // The rest, so that nothing is in flight when the end is dropped.
        while done + SIGNALED <= posted {
            self.await_completion(false)?;
            done += SIGNALED;
        }
        Ok(rates)
    }
}

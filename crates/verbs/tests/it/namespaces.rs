//! Two hosts, as connected network namespaces: Ethernet MTU and jumbo frames, IPv4 and IPv6.
//!
//! Needs root and `ip` of iproute2, and is skipped without them. A host is this test binary, running the ignored test `host`
//! in its namespace.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::{ACCESS, bring_up, options, pattern};
use ferroce::*;

/// Two connected namespaces, removed on drop.
struct Link {
    names: [String; 2],
}

fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

impl Link {
    fn new(tag: &str, mtu: u32) -> Option<Self> {
        let names = ["a", "b"].map(|side| format!("ferroce-{}-{tag}{side}", std::process::id()));
        let [a, b] = &names;
        if !ip(&format!("netns add {a}")) {
            ferroce_test_support::skip("no network namespace can be created here (ip)");
            return None;
        }
        let link = Self { names: names.clone() };
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!(
            "-n {a} link add eth0 mtu {mtu} type veth peer name eth0 netns {b} mtu {mtu}"
        )));
        for (name, number) in [(a, 1), (b, 2)] {
            assert!(ip(&format!("-n {name} address add 10.9.0.{number}/24 dev eth0")));
            // Without duplicate address detection, it is usable at once.
            assert!(ip(&format!("-n {name} address add fd00::{number}/64 dev eth0 nodad")));
            assert!(ip(&format!("-n {name} link set eth0 up")));
        }
        Some(link)
    }

    fn host(&self, side: usize, job: &str) -> Host {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.names[side]])
            .arg(std::env::current_exe().unwrap())
            .args(["namespaces::host", "--exact", "--ignored", "--nocapture"])
            .env("FERROCE_TEST_JOB", job)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Host { child, input, output }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| assert!(ip(&format!("netns delete {name}"))));
    }
}

struct Host {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn line(&mut self) -> String {
        let mut lines = self.output.by_ref().map(Result::unwrap);
        let line = lines.find_map(|line| Some(line.split_once('@')?.1.to_owned()));
        line.expect("the host ended without output")
    }
}

const REGION_SIZE: usize = 40 << 20;

/// In place of faults: the send buffer holds two packets.
const SMALL_SEND_BUFFER: &str = "small-send-buffer";

/// Runs a host: `passive` or `active`, the address family, the faults.
#[test]
#[ignore = "run by the other tests, in another namespace"]
fn host() {
    let Ok(job) = std::env::var("FERROCE_TEST_JOB") else { return };
    let words: Vec<&str> = job.split_whitespace().collect();
    let [role, family, faults] = words[..] else { panic!("a job has three words") };
    let mut options = options();
    match faults {
        "-" => {}
        SMALL_SEND_BUFFER => {
            let sockets = ferroce_sys::Options {
                send_buffer: 8 << 10,
                force_buffers: false,
                ..ferroce_sys::Options::default()
            };
            options.sockets = sockets;
        }
        faults => options.faults = Some(faults.parse().unwrap()),
    }
    let context = Context::open(&Device::named("eth0").unwrap(), &options).unwrap();
    let wanted = if family == "v6" { "fd00::" } else { "10.9.0." };
    let gids = context.device().gids();
    let index = gids.iter().position(|entry| entry.address.ip().to_string().starts_with(wanted));
    let index = index.expect("no GID of the family");
    let pd = context.protection_domain();
    let region = pd.allocate(REGION_SIZE, ACCESS).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(256, Some(&channel)).unwrap();
    let queue_pair = pd
        .queue_pair(&QueuePairOptions::new(ServiceType::ReliableConnection, &completions))
        .unwrap();
    let place = region.remote(0);
    println!(
        "@{} {} {} {}",
        queue_pair.number().0,
        place.address.0,
        place.key.0,
        gids[index].address.ip()
    );
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let peer = lines.next().unwrap();
    let peer: Vec<&str> = peer.split_whitespace().collect();
    let remote = RemoteAddress {
        address: VirtualAddress(peer[1].parse().unwrap()),
        key: RKey(peer[2].parse().unwrap()),
    };
    let mtu = context.mtu();
    let all = QueuePairAttributes {
        path: Some(AddressVector {
            port: 1,
            source_index: index as u8,
            destination: Gid::from_ip(peer[3].parse().unwrap()),
            ..AddressVector::default()
        }),
        path_mtu: Some(mtu),
        ..crate::support::attributes(&context, index as u8, Qpn(peer[0].parse().unwrap()), 256)
    };
    bring_up(&queue_pair, &all);
    let mtu = mtu.bytes().unwrap();
    let lengths = [0, 1, 33, mtu - 1, mtu, mtu + 1, 65_536, 16 << 20];
    if role == "passive" {
        // One receive per send.
        for (number, &length) in lengths.iter().enumerate() {
            let sg_list = region.sge(20 << 20, length as u32).into();
            queue_pair.post_receive(ReceiveRequest { id: WorkId(number as u64), sg_list }).unwrap();
        }
        println!("@ready");
        for (number, &length) in lengths.iter().enumerate() {
            let received = completions.wait().unwrap();
            assert_eq!((received.id.0, received.status), (number as u64, Status::Success));
            let mut found = vec![0; length];
            region.read(20 << 20, &mut found).unwrap();
            assert!(found == pattern(number as u64, length), "SEND of {length}");
            println!("@received");
            assert_eq!(lines.next().unwrap(), "next");
        }
        if faults == SMALL_SEND_BUFFER {
            // A packet that was dropped for want of space would have left a gap.
            let counted = context.statistics();
            assert_eq!(counted.out_of_sequence, 0, "{counted:?}");
        }
        return;
    }
    assert_eq!(lines.next().unwrap(), "ready");
    println!("@mtu {mtu}");
    for (number, &length) in lengths.iter().enumerate() {
        let bytes = pattern(number as u64, length);
        region.write(0, &bytes).unwrap();
        let here = |offset: u64| Data::SgList(region.sge(offset, length as u32).into());
        let act = |operation, data| {
            queue_pair.post_send(SendRequest::new(WorkId(7), operation, data)).unwrap();
            let done = completions.wait().unwrap();
            assert_eq!(done.status, Status::Success, "{operation:?} of {length}");
        };
        act(Operation::Write { remote, immediate: None }, here(0));
        act(Operation::Read { remote }, here(20 << 20));
        let mut found = vec![0; length];
        region.read(20 << 20, &mut found).unwrap();
        assert!(found == bytes, "WRITE and READ of {length}");
        act(Operation::SEND, here(0));
        println!("@sent");
        assert_eq!(lines.next().unwrap(), "next");
    }
}

fn run(link: &Link, family: &str, faults: &str, mtu: usize) {
    let mut passive = link.host(0, &format!("passive {family} {faults}"));
    let mut active = link.host(1, &format!("active {family} {faults}"));
    let (ours, theirs) = (active.line(), passive.line());
    writeln!(passive.input, "{ours}").unwrap();
    writeln!(active.input, "{theirs}").unwrap();
    assert_eq!(passive.line(), "ready");
    writeln!(active.input, "ready").unwrap();
    assert_eq!(active.line(), format!("mtu {mtu}"));
    for _ in 0..8 {
        assert_eq!(active.line(), "sent");
        assert_eq!(passive.line(), "received");
        writeln!(passive.input, "next").unwrap();
        writeln!(active.input, "next").unwrap();
    }
    for mut host in [active, passive] {
        assert!(host.child.wait().unwrap().success());
    }
}

#[test]
fn transfers_over_ethernets_mtu() {
    let Some(link) = Link::new("e", 1500) else { return };
    run(&link, "v4", "-", 1024);
    run(&link, "v6", "-", 1024);
}

#[test]
fn transfers_over_a_jumbo_mtu() {
    let Some(link) = Link::new("j", 4200) else { return };
    run(&link, "v4", "-", 4096);
    run(&link, "v6", "-", 4096);
}

#[test]
fn transfers_over_a_lossy_link() {
    let Some(link) = Link::new("b", 1500) else { return };
    run(&link, "v4", "loss=0.5%,duplication=1%,reordering=1%", 1024);
}

/// The link takes packets slowly, so the send buffer is full most of the time. The kernel refuses packets then, and those
/// that have a PSN already must not be dropped.
#[test]
fn a_full_send_buffer_loses_nothing() {
    let Some(link) = Link::new("s", 4200) else { return };
    for name in &link.names {
        let slow = ["qdisc", "add", "dev", "eth0", "root", "tbf"];
        let rate = ["rate", "2gbit", "burst", "64kb", "limit", "4mb"];
        let added = Command::new("ip")
            .args(["netns", "exec", name, "tc"])
            .args(slow.iter().chain(&rate))
            .stderr(Stdio::null())
            .status();
        if !added.is_ok_and(|status| status.success()) {
            return ferroce_test_support::skip("the kernel has no token bucket filter (tc)");
        }
    }
    run(&link, "v4", SMALL_SEND_BUFFER, 4096);
}

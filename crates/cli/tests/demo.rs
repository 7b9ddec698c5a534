//! `ferroce demo`, `ferroce server` and `ferroce client`: the real command, in processes of its own.

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::skip;
use ferroce_trace::analysis::{Options, analyze};
use serde_json::Value;
use support::Server;

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

/// A directory of one test's own, which any user may write to.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("ferroce-demo-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command.env("LC_ALL", "C.UTF-8").env_remove("FERROCE_CAPTURE").output().unwrap()
    }

    fn ferroce(&self, arguments: &[&str]) -> Output {
        self.run(FERROCE, arguments)
    }

    /// Runs a command in a network namespace of its own, with a loopback alone: nobody else's packets are there, and
    /// nobody else's process that ends takes any with it. `None` where that cannot be.
    fn alone(&self, program: &str, arguments: &[&str]) -> Option<Output> {
        let words = in_a_namespace(program, arguments)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        Some(self.run(words[0], &words[1..]))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The output of a command that has done its job.
fn success(output: &Output) -> String {
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{errors}");
    out
}

/// The complaint of a command that has not.
fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

fn has_ipv6() -> bool {
    let found = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !found {
        skip("the loopback has no IPv6 address");
    }
    found
}

/// Every packet is whole, and nothing is out of the ordinary.
fn check_capture(path: &Path) {
    let report = analyze("demo", fs::File::open(path).unwrap(), &Options::default(), &mut |_| {});
    assert_eq!(report.icrc.bad, 0);
    assert_eq!(report.icrc.ok, report.packets);
    assert!(report.packets > 20, "{}", report.packets);
    assert_eq!((&report.problems[..], &report.anomalies[..]), (&[][..], &[][..]));
    for operation in ["RDMA_WRITE", "RDMA_READ", "SEND", "COMPARE_SWAP", "FETCH_ADD"] {
        let found = report.opcodes.keys().any(|name| name.contains(&format!("RC_{operation}")));
        assert!(found, "no {operation} in {:?}", report.opcodes);
    }
}

#[test]
fn the_demonstration_shows_every_step() {
    let scratch = Scratch::new("steps");
    let Some(output) = scratch.alone(FERROCE, &["demo"]) else { return };
    let out = success(&output);
    for part in [
        "A server and a client process on 127.0.0.1: 16 KiB, connected by the connection manager",
        "[client cm] ADDR_RESOLVED",
        "[client cm] ROUTE_RESOLVED",
        "[client dump_qp] QP dump: qpn=0x",
        "[server dump_mr] MR(remote): addr=0x",
        "[client main] Got remote addr=0x",
        "SGE(RDMA_WRITE): addr=0x",
        "opcode=RDMA_WRITE signaled=1 num_sge=1 remote_addr=0x",
        "READ complete: 16384 of 16384 bytes match",
        "[server main] 16384 of 16384 bytes match the client's pattern",
        "[server main] RECV complete: 'client-sent-this'",
        "FETCH_ADD complete: original value 4791",
        "[client cm] DISCONNECTED",
        "│◀══ CM REP",
        "├─── RC RDMA READ request",
        "every ICRC right, no anomaly",
        "all 32,808 bytes verified",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    assert!(!out.contains('\u{1b}'), "colour without a terminal");
    check_capture(&scratch.path("demo.pcapng"));
    // The ladder's title, its rows and the summary count the same packets.
    let counted = |before: &str| {
        let rest = out.split(before).nth(1).unwrap_or_else(|| panic!("no {before:?} in\n{out}"));
        rest.split_once(" packets").map(|(count, _)| count.to_owned())
    };
    let is_packet =
        |line: &&str| line.contains("├───") || line.contains("├═══") || line.contains("│◀");
    let rows = out.lines().filter(is_packet).count().to_string();
    assert_eq!(counted("On the wire, connection (RC): "), Some(rows.clone()));
    assert_eq!(counted("  demo.pcapng: "), Some(rows));
}

#[test]
fn the_demonstration_is_for_programs_too() {
    let scratch = Scratch::new("json");
    let arguments = ["demo", "--json", "--size", "100000", "--capture", "here.pcapng"];
    let Some(output) = scratch.alone(FERROCE, &arguments) else { return };
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(json["schema"], "ferroce-demo-1");
    assert_eq!(json["verified"], true);
    assert_eq!(json["verified_bytes"], 200_040);
    assert_eq!(json["operations"].as_array().unwrap().len(), 7);
    assert!(json["steps"].as_array().unwrap().len() > 50);
    let capture = &json["capture"];
    assert_eq!((&capture["path"], &capture["icrc_bad"]), (&"here.pcapng".into(), &0.into()));
    check_capture(&scratch.path("here.pcapng"));
    // It has payload and keys in it.
    let mode = fs::metadata(scratch.path("here.pcapng")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// One server of the exchange is at an address, in all processes: in a namespace there is no other.
#[test]
fn the_set_up_exchange_is_timed_by_phase() {
    let scratch = Scratch::new("exchange");
    let run = |more: &[&str]| {
        let arguments = [&["demo", "--set-up", "exchange"], more].concat();
        scratch.alone(FERROCE, &arguments).map(|output| success(&output))
    };
    let Some(out) = run(&[]) else { return };
    for part in [
        "[client setup] DEVICE_DISCOVERY_REQ to 127.0.0.1",
        "│◀── DEVICE_DISCOVERY_RESP",
        "├─── CONNECTION_CONFIRM",
        "phase 4 Connection",
        "all 32,808 bytes verified",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    let json: Value = serde_json::from_str(&run(&["--json"]).unwrap()).unwrap();
    assert_eq!((&json["set_up"], &json["verified"]), (&"exchange".into(), &true.into()));
    let phases = json["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 4, "{phases:?}");
    assert!(phases.iter().all(|phase| phase["duration_ns"].as_u64().unwrap() > 0));
}

#[test]
fn over_ipv6() {
    if has_ipv6() {
        let scratch = Scratch::new("ipv6");
        let Some(output) = scratch.alone(FERROCE, &["demo", "--address", "::1"]) else { return };
        let out = success(&output);
        assert!(out.contains("all 32,808 bytes verified"), "{out}");
        check_capture(&scratch.path("demo.pcapng"));
    }
}

#[test]
fn a_place_that_cannot_be_written_is_no_reason_to_stop() {
    let scratch = Scratch::new("unwritable");
    // Even root cannot write to a directory of this name.
    fs::create_dir(scratch.path("demo.pcapng")).unwrap();
    let Some(output) = scratch.alone(FERROCE, &["demo"]) else { return };
    assert!(success(&output).contains("all 32,808 bytes verified"));
    let note = text(&output.stderr);
    assert!(note.contains("cannot write demo.pcapng here"), "{note}");
    let elsewhere = PathBuf::from(note.trim_end().rsplit(' ').next().unwrap());
    check_capture(&elsewhere);
    fs::remove_file(elsewhere).unwrap();
}

/// It cannot be read back, and is not ours to remove. A link stands for it here, lest a failure harm the machine.
#[test]
fn a_capture_that_is_no_file_stays() {
    let scratch = Scratch::new("null");
    let link = scratch.path("null");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let out = success(&scratch.ferroce(&["demo", "--capture", "null"]));
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/null"));
}

#[test]
fn what_cannot_be_is_said_at_once() {
    let scratch = Scratch::new("errors");
    let nowhere = failure(&scratch.ferroce(&["demo", "--capture", "nowhere/demo.pcapng"]));
    assert!(nowhere.contains("cannot write the capture nowhere/demo.pcapng"), "{nowhere}");
    fs::write(scratch.path("demo.pcapng"), "what an earlier run has left").unwrap();
    let output = scratch.ferroce(&["demo", "--address", "192.0.2.1"]);
    assert_eq!(text(&output.stdout), "");
    let foreign = failure(&output);
    assert!(foreign.contains("no interface of this machine has the address"), "{foreign}");
    let left = fs::read(scratch.path("demo.pcapng")).unwrap();
    assert_eq!(text(&left), "what an earlier run has left");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    let large = failure(&scratch.ferroce(&["demo", "--size", "2G"]));
    assert!(large.contains("limited to 1 GiB"), "{large}");
    let chunk = failure(&scratch.ferroce(&["client", "127.0.0.1", "bulk", "--chunk", "1000"]));
    assert!(chunk.contains("not a multiple of 4 KiB"), "{chunk}");
    for (job, option) in [("bulk", "--count"), ("write-read", "--chunk"), ("imm", "--chunk")] {
        let refused = failure(&scratch.ferroce(&["client", "127.0.0.1", job, option, "4096"]));
        assert!(refused.contains(&format!("{option} does not apply to {job}: ")), "{refused}");
    }
}

/// A command line that runs a program in a network namespace with nothing but a loopback, as far as this machine allows.
fn in_a_namespace(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let up = "ip link set lo up && exec \"$@\"";
    // Without privilege, a namespace of users gives the right to make one of networks.
    for flags in ["-n", "-rn"] {
        let prefix = ["unshare", flags, "sh", "-c", up, "sh"];
        let works = Command::new(prefix[0]).args(&prefix[1..]).arg("true").output();
        if works.is_ok_and(|output| output.status.success()) {
            let all = [&prefix[..], &[program], arguments].concat();
            return Some(all.into_iter().map(str::to_owned).collect());
        }
    }
    skip("no network namespace can be made here (unshare, ip)");
    None
}

/// With all the others there are: root's and ours, which come and go.
#[test]
fn on_the_loopback_that_all_share() {
    let scratch = Scratch::new("shared");
    let out = success(&scratch.ferroce(&["demo"]));
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    assert!(out.contains("every ICRC right"), "{out}");
}

/// In a namespace, for on the loopback that all share, root's processes have the port.
#[test]
fn without_any_privilege() {
    let scratch = Scratch::new("nobody");
    // Where nobody may reach it.
    let program = scratch.path("ferroce");
    fs::copy(FERROCE, &program).unwrap();
    let program = program.to_str().unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let mut arguments: Vec<&str> = nobody.into();
    arguments.extend([program, "demo"]);
    if !scratch.run("setpriv", &[&nobody[..], &["true"]].concat()).status.success() {
        return skip("not allowed to become another user");
    }
    let Some(output) = scratch.alone("setpriv", &arguments) else { return };
    let out = success(&output);
    assert!(out.contains("all 32,808 bytes verified"), "{out}");
    check_capture(&scratch.path("demo.pcapng"));
}

#[test]
fn wireshark_reads_the_capture() {
    let scratch = Scratch::new("tshark");
    success(&scratch.ferroce(&["demo"]));
    let read = |filter: &str| {
        let output = Command::new("tshark")
            .args(["-r", "demo.pcapng", "-Y", filter])
            .current_dir(&scratch.0)
            .output();
        output.ok().map(|output| success(&output))
    };
    let Some(malformed) = read("_ws.malformed") else {
        return skip("tshark is not installed: run `make setup`");
    };
    assert_eq!(malformed, "");
    let all = read("infiniband").unwrap();
    assert!(all.lines().count() > 20, "{all}");
    assert!(all.contains("CM: ConnectRequest") && all.contains("RDMA Write"), "{all}");
}

fn server(listen: &str) -> Server {
    Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", listen]))
}

fn all_jobs(listen: &str) {
    let scratch = Scratch::new(&format!("jobs-{}", listen.len()));
    let mut server = server(listen);
    let address = server.address.clone();
    for (job, size, verified) in [
        (&["write-read", "--size", "100001"][..], 100_001, 100_001),
        (&["write-read", "--size", "1000", "--count", "5"], 1000, 5000),
        (&["imm", "--count", "10"], 4096, 40_960),
        // The last chunk is not a whole one.
        (&["bulk", "--size", "20000001", "--chunk", "64K"], 20_000_001, 20_000_001),
    ] {
        let capture = format!("{}.pcapng", job[0]);
        let mut arguments = vec!["client", &address];
        arguments.extend(job);
        arguments.extend(["--json", "--capture", &capture]);
        let json: Value = serde_json::from_str(&success(&scratch.ferroce(&arguments))).unwrap();
        assert_eq!((&json["job"], &json["size"]), (&job[0].into(), &size.into()), "{json}");
        assert_eq!(json["verified_bytes"], verified, "{json}");
        let count = job.iter().position(|word| *word == "--count").map_or("1", |at| job[at + 1]);
        assert_eq!(json["operations"][0]["count"].to_string(), count, "{json}");
        let file = fs::File::open(scratch.path(&capture)).unwrap();
        let report = analyze("capture", file, &Options::default(), &mut |_| {});
        assert_eq!((report.icrc.bad, &report.problems[..]), (0, &[][..]));
        assert!(report.packets > 10);
        assert_eq!(server.event("connected")["bytes"], size);
        let left = server.event("left");
        assert_eq!((&left["verified_bytes"], &left["failure"]), (&verified.into(), &Value::Null));
    }
    let out = success(&scratch.ferroce(&["client", &address]));
    assert!(out.contains("MiB/s") && out.contains("16 KiB, every byte"), "{out}");
    let greedy = failure(&scratch.ferroce(&["client", &address, "bulk", "--size", "100G"]));
    assert!(greedy.contains("the server refused the request: 100 GiB are more than"), "{greedy}");
    // Its port is taken.
    let second = failure(&scratch.ferroce(&["server", "--listen", &address]));
    assert!(second.contains("another server listens"), "{second}");
}

#[test]
fn every_job_over_ipv4() {
    all_jobs("127.0.0.1:0");
}

#[test]
fn every_job_over_ipv6() {
    if has_ipv6() {
        all_jobs("[::1]:0");
    }
}

/// A client that asks for so many bytes and never confirms its connections. They last as long as the result.
fn unconfirmed(server: &str, connections: u32, size: u64) -> Vec<ferroce::cm::CmId> {
    use ferroce::cm::{CmId, ConnectParameters, EventChannel, EventKind, PortSpace};
    let channel = EventChannel::new().unwrap();
    let next = || channel.wait(None).unwrap().unwrap().kind;
    let patience = std::time::Duration::from_secs(5);
    // "FeS" and the version, then the wish.
    let wish = [&0x4665_5301_u32.to_be_bytes()[..], &size.to_be_bytes()].concat();
    let connect = |number: u32| {
        let id = CmId::new(&channel, PortSpace::Tcp).unwrap();
        id.resolve_address(None, server.parse().unwrap(), patience).unwrap();
        assert!(matches!(next(), EventKind::AddressResolved));
        id.resolve_route(patience).unwrap();
        assert!(matches!(next(), EventKind::RouteResolved));
        let wish = ConnectParameters {
            private_data: wish.clone(),
            // A queue pair of the program's own, which it never brings up.
            queue_pair: Some(ferroce::Qpn(0x1234 + number)),
            ..ConnectParameters::default()
        };
        id.connect(&wish).unwrap();
        assert!(matches!(next(), EventKind::ConnectResponse(_)), "connection {number}");
        id
    };
    (0..connections).map(connect).collect()
}

#[test]
fn a_request_that_is_not_confirmed_takes_no_memory() {
    let scratch = Scratch::new("unconfirmed");
    let mut server = server("127.0.0.1:0");
    // 4 GiB less 16 bytes: nearly all that the server has.
    let _greedy = unconfirmed(&server.address, 1, 0xffff_fff0);
    success(&scratch.ferroce(&["client", &server.address, "write-read", "--size", "1M"]));
    assert_eq!(server.event("connected")["bytes"], 1 << 20);
    server.event("left");
}

#[test]
fn clients_that_do_not_confirm_lock_nobody_out() {
    let scratch = Scratch::new("flood");
    let mut server = server("[::]:0");
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    // As many as the server offers connections to at a time, all from one address.
    let _flood = unconfirmed(&format!("[::1]:{port}"), 128, 1 << 20);
    let other = format!("127.0.0.1:{port}");
    success(&scratch.ferroce(&["client", &other, "write-read", "--size", "1M"]));
    // The oldest of them has made room.
    for event in ["refused", "connected", "left"] {
        server.event(event);
    }
}

/// Packets that come back to the client are lost: what its transport counted is told.
#[test]
fn the_client_tells_what_its_transport_counted() {
    let scratch = Scratch::new("counters");
    let server = server("127.0.0.1:0");
    let client = |more: &[&str]| {
        let mut command = Command::new(FERROCE);
        command.args(["client", &server.address, "write-read", "--size", "300K"]).args(more);
        let output = command.env("FERROCE_FAULTS", "loss=20%,seed=3").current_dir(&scratch.0);
        success(&output.output().unwrap())
    };
    let json: Value = serde_json::from_str(&client(&["--json"])).unwrap();
    let counters = json["hw_counters"].as_object().unwrap();
    assert_eq!(counters.len(), 10, "{json}");
    // A fifth of the READ's responses is lost.
    assert!(counters["implied_nak_seq_err"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(counters["np_cnp_sent"], 0, "{json}");
    let out = client(&[]);
    assert!(out.contains("  counters ") && out.contains("implied_nak_seq_err"), "{out}");
    assert!(!out.contains("np_cnp_sent"), "{out}");
}

/// A client here and a server in another namespace, with a cable between them.
const TWO_HOSTS: &str = r#"
    set -e
    ip link set lo up
    unshare -n sleep 1000 &
    other=$!
    trap "kill $other" EXIT
    while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
    there() { nsenter -t $other -n "$@"; }
    ip link add here type veth peer name there netns $other || exit 77
    ip address add 10.7.0.1/24 dev here
    ip link set here up
    there ip address add 10.7.0.2/24 dev there
    there ip link set there up
    there "$1" server --json --once > server.txt &
    server=$!
    until grep -q listening server.txt; do :; done
    "$1" discover --json > found.txt
    "$1" client 10.7.0.2 bulk --size 10M --json
    wait $server
"#;

#[test]
fn two_hosts() {
    let scratch = Scratch::new("hosts");
    let arguments = ["-c", TWO_HOSTS, "sh", FERROCE];
    let Some(output) = scratch.alone("sh", &arguments) else { return };
    if output.status.code() == Some(77) {
        return skip(format_args!("no virtual cable can be made here: {}", text(&output.stderr)));
    }
    let json: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(json["verified_bytes"], 10 << 20);
    assert_eq!(json["server"], "10.7.0.2:7471");
    let server = fs::read_to_string(scratch.path("server.txt")).unwrap();
    let left: Value = serde_json::from_str(server.lines().last().unwrap()).unwrap();
    assert_eq!((&left["verified_bytes"], &left["failure"]), (&(10 << 20).into(), &Value::Null));
    // Its server is found by who asks everybody.
    let found = fs::read_to_string(scratch.path("found.txt")).unwrap();
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["hosts"][0]["device"], "ferroce_here", "{found}");
}

#[test]
fn a_loopback_that_is_down() {
    let scratch = Scratch::new("down");
    for (command, wanted) in
        [(&["demo"][..], "`ip link set lo up`"), (&["discover"], "no network interface is up")]
    {
        // A namespace in the other, of which nobody has brought up the loopback.
        let arguments = [&["-n", FERROCE], command].concat();
        let Some(output) = scratch.alone("unshare", &arguments) else { return };
        let said = text(&output.stderr);
        assert!(said.contains(wanted), "{command:?}: {said}");
    }
}

#[test]
fn nobody_listens_there() {
    let scratch = Scratch::new("port");
    let error = failure(&scratch.ferroce(&["client", "127.0.0.1:9"]));
    assert!(error.contains("no server listens on 127.0.0.1:9"), "{error}");
    let error = failure(&scratch.ferroce(&["server", "--listen", "192.0.2.1:7471"]));
    assert!(error.contains("no interface of this machine has the address 192.0.2.1"), "{error}");
}

fn resident_pages(process: &Child) -> u64 {
    let memory = fs::read_to_string(format!("/proc/{}/statm", process.id())).unwrap();
    memory.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_server_that_is_killed_is_missed() {
    let mut server = server("127.0.0.1:0");
    let mut client = Command::new(FERROCE);
    client.args(["client", &server.address, "bulk", "--size", "3G", "--chunk", "1M"]);
    let client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    server.event("connected");
    // In the middle: what the client writes takes memory.
    while resident_pages(&server.child) < (64 << 20) / 4096 {
        std::thread::yield_now();
    }
    server.child.kill().unwrap();
    let start = Instant::now();
    let output = client.wait_with_output().unwrap();
    let error = failure(&output);
    assert!(
        error.contains("not acknowledged") || error.contains("closed the connection"),
        "{error}"
    );
    // By itself it takes 4 seconds; what more there is, is for a machine that is very busy.
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

//! Interoperability with Linux's `rdma_rxe`: first the peer alone, in one machine and between two; then our programs
//! with the machine's, in the matrix. See `docs/interop.md`.

mod bench;
mod cells;
mod differences;
mod halves;
mod managed;
mod matrix;
mod messages;
mod ours;
mod programs;
mod scapy;
mod table;
mod wireshark;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_tests::capture;
use ferroce_tests::peer::{self, Direction, Options, Peer};
use ferroce_tests::tool;
use ferroce_trace::analysis::{self, report::FileReport};

/// The timeout of operations that are quick on an idle computer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Anomalies that rdma_rxe causes on a busy computer without packet loss: retransmissions and their consequences.
const RETRANSMISSION_ANOMALIES: [&str; 7] = [
    "timeout",
    "retransmission",
    "probe",
    "lost_after_capture",
    "repeated_acknowledge",
    "repeated_response",
    "duplicate",
];

/// Returns a file of this test.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Starts a peer. Returns `None` where that is not possible.
fn start(options: Options) -> Option<Peer> {
    Peer::start(options).expect("a peer")
}

fn analyze(path: &Path) -> FileReport {
    let name = path.to_string_lossy();
    let input = File::open(path).expect("the capture");
    analysis::analyze(&name, input, &analysis::Options::default(), &mut |_| {})
}

/// Runs both sides of a tool that exchanges its QP attributes over TCP. Both must succeed and print `proof`.
fn pair(peer: &Peer, line: &str, proof: &str) {
    let (server, client) = (peer.machine(1), peer.machine(2));
    let serving = server.spawn(line).expect("a server");
    server.wait_for_tcp(18515, TIMEOUT).expect("a server that listens");
    let asking = client.run(&format!("{line} {}", server.control_v4()));
    let asked = asking.and_then(peer::Output::success).expect("a client that succeeds");
    let served = serving.wait().and_then(peer::Output::success).expect("a server that succeeds");
    for output in [asked, served] {
        assert!(output.contains(proof), "{output}");
    }
}

/// Asserts that a capture has only RoCE packets, at least `least` of them, all with a correct ICRC.
fn sound(report: &FileReport, least: u64, name: &str) {
    assert_eq!(report.problems, [], "{name}");
    assert!(report.roce_packets >= least, "{name}: {} packets", report.roce_packets);
    assert_eq!(report.packets, report.roce_packets, "{name}");
    assert_eq!(report.icrc.ok, report.roce_packets, "{name}: {:?}", report.icrc);
}

#[test]
fn one_machine() {
    let Some(peer) = start(Options::default()) else { return };
    let everything = peer.capture_filtered(file("one-machine.pcap"), "").expect("a capture");

    let device = peer.run("ibv_devinfo -d rxe0").and_then(peer::Output::success).expect("a device");
    assert!(device.contains("PORT_ACTIVE"), "{device}");
    assert!(device.contains("active_mtu:\t\t4096"), "{device}");

    // Commands: status, both outputs, input, and several concurrently.
    let output = peer.run("echo out; echo err >&2; exit 3").expect("an output");
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str(), output.status),
        ("out\n", "err\n", 3)
    );
    let data: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    peer.machine(1).write("/tmp/data", &data).expect("a file there");
    let mut copy = peer.machine(1).command(&["cat", "/tmp/data"], TIMEOUT);
    assert_eq!(tool::run(&mut copy), data);
    let missing =
        peer.machine(1).command(&["no-such-program"], TIMEOUT).output().expect("an answer");
    assert_eq!(missing.status.code(), Some(127));
    let slow = peer.machine(1).command(&["sleep", "100"], Duration::from_secs(1)).output();
    assert_eq!(slow.expect("an answer").status.code(), Some(124));
    // A process that is dropped here ends there.
    drop(peer.spawn("exec sleep 12345").expect("a process"));
    peer.machine(1).wait_until("! pgrep -f 'sleep [1]2345'", TIMEOUT).expect("no process");

    // The kernel's Soft-RoCE with itself.
    let address = peer.address_v4();
    let serving = peer.spawn(&format!("rping -s -a {address} -C 3")).expect("a server");
    peer.machine(1).wait_for_cm(7174, TIMEOUT).expect("a server that listens");
    let line = format!("rping -c -a {address} -C 3 -v");
    let pinged = peer.run(&line).and_then(peer::Output::success).expect("a client that succeeds");
    assert_eq!(pinged.matches("ping data: rdma-ping").count(), 3, "{pinged}");
    // The server does not treat a disconnect as success.
    serving.wait().expect("a server that ends");

    // From our side.
    for address in [IpAddr::from(address), IpAddr::from(peer.address_v6())] {
        let mut ping = peer.busybox_here("ping");
        tool::run(ping.args(["-c", "1", "-w", "20", &address.to_string()]));
    }
    let interfaces = tool::run(peer.command_here("ip").args(["-o", "address", "show", "eth0"]));
    let interfaces = String::from_utf8_lossy(&interfaces);
    assert!(interfaces.contains(&peer::OUR_V4.to_string()), "{interfaces}");
    enter(&peer);

    let path = everything.finish().expect("a capture");
    let packets = capture::read(&path);
    assert!(packets.len() > 10, "{} packets on the bridge", packets.len());
    // The last packet sent is in the capture, and the end marker is not.
    assert!(packets.iter().any(|packet| packet.data.ends_with(b"the last of all")));
    let mark = b"ferroce-";
    assert!(!packets.iter().any(|packet| packet.data.windows(mark.len()).any(|data| data == mark)));
}

/// Sends over TCP and UDP from our side, by the test below in its own process.
fn enter(peer: &Peer) {
    let listening = peer.spawn("nc -l -p 5000 -e cat").expect("a listener");
    peer.machine(1).wait_for_tcp(5000, TIMEOUT).expect("a listener");
    tool::run(&mut peer.test_here("on_our_side").expect("this program"));
    drop(listening);
}

#[test]
#[ignore = "a child process of another test"]
fn on_our_side() {
    assert!(peer::inside(), "see the test above");
    let address = SocketAddr::from(([10, 47, 91, 11], 5000));
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    stream.write_all(b"to and fro").expect("a request");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"to and fro");

    let socket = UdpSocket::bind((peer::OUR_V4, 0)).expect("a socket");
    // No host has this address; it is in our neighbour table, so the datagram is sent, and there is no response.
    socket.send_to(b"the last of all", ("10.47.91.254", 5000)).expect("a datagram");
}

fn two_machines() {
    let Some(peer) = start(Options { machines: 2, ..Options::default() }) else { return };
    for (version, gid) in [(4, 1), (6, 2)] {
        for (name, line, proof, least) in [
            // Each message is two packets, in both directions, plus acknowledgements.
            ("send", format!("ib_send_lat -F -x {gid} -m 4096 -n 20 -s 5000"), "#bytes", 80),
            ("pingpong", format!("ibv_rc_pingpong -g {gid} -m 4096 -n 5 -s 5000"), "iters in", 20),
        ] {
            let name = format!("{name}-ipv{version}");
            let recording = peer.capture(file(&format!("{name}.pcap"))).expect("a capture");
            pair(&peer, &line, proof);
            let report = analyze(&recording.finish().expect("a capture"));
            sound(&report, least, &name);
            assert!(
                report.anomaly_counts.keys().all(|kind| RETRANSMISSION_ANOMALIES.contains(kind)),
                "{:?}",
                report.anomalies
            );
        }
    }

    // Packet loss in each direction of the first machine: lost packets are retransmitted.
    for direction in [Direction::Leaving, Direction::Arriving] {
        peer.machine(1).impair(direction, "loss 10%").expect("netem");
        let recording = peer.capture(file(&format!("two-machines-{direction:?}.pcap")));
        let recording = recording.expect("a capture");
        pair(&peer, "ib_send_lat -F -x 1 -m 1024 -n 100 -s 4096", "#bytes");
        let report = analyze(&recording.finish().expect("a capture"));
        assert_eq!((report.icrc.bad, report.icrc.unverifiable), (0, 0), "{direction:?}");
        assert!(!report.anomalies.is_empty(), "{direction:?}: nothing was lost");
        peer.machine(1).repair().expect("a good network");
    }
}

fn every_mtu() {
    // The other tests use 4200.
    for (mtu, active) in [(1500, 1024), (9000, 4096)] {
        let Some(peer) = start(Options { mtu, ..Options::default() }) else { return };
        let device = peer.run("ibv_devinfo -d rxe0").and_then(peer::Output::success);
        let device = device.expect("a device");
        assert!(device.contains(&format!("active_mtu:\t\t{active} ")), "{mtu}: {device}");
        // A ping that fills a frame: 28 bytes are headers.
        let mut ping = peer.busybox_here("ping");
        let size = (mtu - 28).to_string();
        tool::run(ping.args(["-c", "1", "-w", "20", "-s", &size, &peer.address_v4().to_string()]));
    }
}

/// No process is left when a peer ends, or is killed.
#[test]
fn no_process_is_left_when_a_peer_ends() {
    let Some(peer) = start(Options::default()) else { return };
    let process = PathBuf::from(format!("/proc/{}", peer.first_process()));
    assert!(process.exists());
    drop(peer);
    assert!(!process.exists());

    let Some(peer) = start(Options::default()) else { return };
    let process = PathBuf::from(format!("/proc/{}", peer.first_process()));
    tool::run(
        std::process::Command::new("kill").args(["-KILL", &peer.first_process().to_string()]),
    );
    let deadline = Instant::now() + TIMEOUT;
    while process.exists() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(!process.exists());
    let mut command = peer.machine(1).command(&["true"], TIMEOUT);
    assert!(!command.output().expect("an answer").status.success());
}

/// Our side of a cell of the matrix, in its own process.
#[test]
#[ignore = "a child process of another test"]
fn our_half() {
    assert!(peer::inside(), "see `matrix`");
    ours::run();
}

/// One row of every kind of the three matrices, each in one column.
mod quick {
    use crate::bench::Scope;
    use crate::cells::Column;
    use crate::{managed, matrix, programs};

    #[test]
    fn matrix() {
        matrix::column(Column { ipv6: false, mtu: 1024 }, Scope::Quick);
    }

    #[test]
    fn programs_matrix() {
        programs::column(Column { ipv6: true, mtu: 4096 }, Scope::Quick);
    }

    #[test]
    fn managed_matrix() {
        managed::column(Column { ipv6: false, mtu: 1024 }, Scope::Quick);
    }
}

/// All rows and columns: `make test-all` and `make interop`.
mod full {
    use crate::bench::Scope;
    use crate::cells::Column;
    use crate::{managed, matrix, programs};

    macro_rules! columns {
        ($( $test:ident: $table:ident $ipv6:literal $mtu:literal; )+) => {$(
            #[test]
            fn $test() {
                $table::column(Column { ipv6: $ipv6, mtu: $mtu }, Scope::Full);
            }
        )+};
    }

    #[test]
    fn two_machines() {
        crate::two_machines();
    }

    #[test]
    fn every_mtu() {
        crate::every_mtu();
    }

    columns! {
        matrix_ipv4_1024:          matrix false 1024;
        matrix_ipv6_1024:          matrix true 1024;
        matrix_ipv4_4096:          matrix false 4096;
        matrix_ipv6_4096:          matrix true 4096;
        programs_matrix_ipv4_1024: programs false 1024;
        programs_matrix_ipv6_4096: programs true 4096;
        managed_matrix_ipv4_1024:  managed false 1024;
        managed_matrix_ipv6_4096:  managed true 4096;
    }
}

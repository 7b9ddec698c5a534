//! The program in `tests/conformance`, which checks what the specification requires of libibverbs: with our library on
//! both sides, with ours on one side and Linux's `rdma_rxe` on the other, and with `rdma_rxe` on both, for reference.

mod differences;
mod program;
mod sides;

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use ferroce_tests::peer::{Direction, OUR_V4, OUR_V6, Options, Peer};
use ferroce_tests::running;

use differences::{DIFFERENCES, Role};
use sides::{Findings, Run};

/// Runs both sides on one host, with our library.
fn on_loopback(address: IpAddr, mtu: u16, faults: Option<&str>, arguments: &str) {
    let Some(program) = program::file() else { return };
    let port = running::free_port();
    let arguments = format!("-m {mtu} -p {port} {arguments}");
    let side = |to: &[&str]| {
        let mut command = Command::new(program);
        program::ours(&mut command, address, &arguments);
        if let Some(faults) = faults {
            command.env("FERROCE_FAULTS", faults);
        }
        command.args(to);
        command
    };
    let findings = sides::run(side(&[]), side(&["localhost"]));
    assert!(findings.wrong.is_empty(), "{findings}");
    assert!(!findings.good.is_empty(), "no case ran");
}

#[test]
fn ours_ipv4() {
    on_loopback(Ipv4Addr::LOCALHOST.into(), 1024, None, "");
}

#[test]
fn ours_ipv6() {
    on_loopback(Ipv6Addr::LOCALHOST.into(), 4096, None, "");
}

#[test]
fn ours_with_packet_loss() {
    let faults = "loss=2%,duplication=1%,reordering=2%,seed=5";
    on_loopback(Ipv4Addr::LOCALHOST.into(), 1024, Some(faults), "-c rc_mix -n 200");
}

/// With `rdma_rxe` as either side, over IPv4, with and without packet loss.
#[test]
fn with_rxe() {
    check_rxe(1, &[(false, 1024)]);
}

mod full {
    /// All combinations, over both families: `rdma_rxe` with itself is the reference.
    #[test]
    fn with_rxe() {
        super::check_rxe(2, &[(false, 1024), (true, 4096)]);
    }
}

/// Compares the findings with the known deviations of `rdma_rxe`. `columns`: whether it is IPv6, and the MTU.
fn check_rxe(machines: u8, columns: &[(bool, u16)]) {
    let Some(program) = program::file() else { return };
    let Some(peer) = Peer::start(Options { machines, ..Options::default() }).expect("a peer")
    else {
        return;
    };
    let bytes = fs::read(program).expect("the program");
    for number in 1..=machines {
        peer.machine(number.into()).write("/tmp/conformance", &bytes).expect("the program there");
    }
    let mut table = String::new();
    let mut failures = Vec::new();
    for &(ipv6, mtu) in columns {
        let ours = if ipv6 { IpAddr::from(OUR_V6) } else { OUR_V4.into() };
        let theirs = |number: usize| match ipv6 {
            true => IpAddr::from(peer.machine(number).address_v6()),
            false => peer.machine(number).address_v4().into(),
        };
        let theirs = [theirs(1), theirs(machines.into())];
        let run = Run { peer: &peer, program, ours, theirs, mtu };
        let mut judged = |name: &str, rxe: &[Role], findings: &Findings| {
            let title = format!("IPv{}, MTU {mtu}: {name}", if ipv6 { 6 } else { 4 });
            check(&title, rxe, findings, &mut table, &mut failures);
        };
        if machines > 1 {
            judged(
                "rdma_rxe asks rdma_rxe",
                &[Role::Requester, Role::Responder],
                &run.rxe_to_rxe(),
            );
        }
        judged("Ferroce asks rdma_rxe", &[Role::Responder], &run.we_request(""));
        judged("rdma_rxe asks Ferroce", &[Role::Requester], &run.we_respond(sides::EXCLUDED_CASES));
    }
    // On a network that loses packets in both directions.
    for direction in [Direction::Arriving, Direction::Leaving] {
        peer.machine(1).impair(direction, "loss 2%").expect("netem");
    }
    let run = Run {
        peer: &peer,
        program,
        ours: OUR_V4.into(),
        theirs: [peer.address_v4().into(); 2],
        mtu: 1024,
    };
    for (name, findings) in [
        ("2 % lost: Ferroce asks rdma_rxe", run.we_request("-c rc_mix -n 60")),
        ("2 % lost: rdma_rxe asks Ferroce", run.we_respond("-c rc_mix -n 60")),
    ] {
        check(name, &[], &findings, &mut table, &mut failures);
    }
    println!("\nWhat libibverbs promises, case by case:\n{table}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Adds a run to the table, and to the failures all findings that neither match the specification nor are known
/// deviations of the roles that `rdma_rxe` has.
fn check(
    title: &str,
    rxe: &[Role],
    findings: &Findings,
    table: &mut String,
    failures: &mut Vec<String>,
) {
    let known = || DIFFERENCES.iter().filter(|one| rxe.contains(&one.role));
    let _ = writeln!(table, "{title}: {} cases as the specification wants", findings.good.len());
    for line in &findings.wrong {
        let known = known().any(|one| line == &one.line());
        let _ =
            writeln!(table, "    {}{line}", if known { "rdma_rxe differs: " } else { "WRONG: " });
        if !known {
            failures.push(format!("{title}: {line}"));
        }
    }
    for one in known().filter(|one| !findings.wrong.contains(&one.line())) {
        failures.push(format!("{title}: on the list, and did not happen: {}", one.line()));
    }
    if findings.good.is_empty() {
        failures.push(format!("{title}: no case went well"));
    }
}

/// The document has the list, line by line.
#[test]
fn known_deviations_are_documented() {
    let chapter = ferroce_tests::document::differences_from_rxe("What programs see");
    let rows: Vec<_> = chapter.lines().filter(|line| line.starts_with("| `")).collect();
    let wanted: Vec<_> = DIFFERENCES.iter().map(ToString::to_string).collect();
    assert_eq!(rows, wanted);
}

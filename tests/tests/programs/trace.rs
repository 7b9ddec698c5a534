//! The call trace of programs, one call per line: `FERROCE_TRACE`, which `ferroce run --trace` sets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pair::{self, End};
use ferroce_tests::libraries::program;

/// Returns a file for the trace of one side.
fn file(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}"));
    let _ = fs::remove_file(&path);
    path
}

/// Sets the trace file of a program. `FERROCE_RUN` is this process, which started it.
fn trace(command: &mut Command, path: &Path) {
    command.env("FERROCE_TRACE", path).env("FERROCE_RUN", std::process::id().to_string());
}

/// Runs a pair, and returns the calls of the client.
fn traced(name: &str, arguments: &str) -> Option<Vec<String>> {
    let path = file(&format!("{name}-{}", std::process::id()));
    pair::changed(name, arguments, |end, command| {
        if end == End::Client {
            trace(command, &path);
        }
    })?;
    Some(calls(&path))
}

/// Returns the lines of a trace, without their timestamps.
fn calls(path: &Path) -> Vec<String> {
    let calls = fs::read_to_string(path).expect("the trace is there");
    calls.lines().map(untimed).collect()
}

/// Removes the timestamp of a line: `12:34:56.123456 ibv_…`.
fn untimed(line: &str) -> String {
    let (time, call) = line.split_once(' ').expect("a time and a call");
    let shape: String =
        time.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
    assert_eq!(shape, "00:00:00.000000", "{line}");
    call.to_owned()
}

/// Asserts that lines with all these words occur in this order.
fn in_order(calls: &[String], wanted: &[&[&str]]) {
    let mut rest = calls.iter();
    for words in wanted {
        let found = rest.any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?} is missing, or too early, in\n{}", calls.join("\n"));
    }
}

fn count(calls: &[String], name: &str) -> usize {
    calls.iter().filter(|line| line.starts_with(&format!("{name}("))).count()
}

/// Counts the completions in a trace.
fn completions(calls: &[String]) -> usize {
    calls
        .iter()
        .map(|line| line.matches("{wr_id=").count() * usize::from(line.starts_with("ibv_poll_cq(")))
        .sum()
}

/// Asserts that each line is a call with a duration; only functions without a result have none.
fn well_formed(calls: &[String]) {
    for line in calls {
        let name = line.split('(').next().unwrap_or_default();
        assert!(name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_'), "{line}");
        assert!(line.contains(" <") && line.ends_with("s>"), "{line}");
    }
}

#[test]
fn a_pingpong_is_traced_call_by_call() {
    let Some(calls) = traced("ibv_rc_pingpong", "-n 5 -r 10 -m 1024") else { return };
    well_formed(&calls);
    in_order(
        &calls,
        &[
            &["ibv_get_device_list(", ") = 0x"],
            &["ibv_open_device(device=0x", ") = 0x"],
            &["ibv_alloc_pd(context=0x"],
            &["ibv_reg_mr(", "length=4096, access=LOCAL_WRITE) = 0x"],
            &["ibv_create_cq(", "cqe=11, cq_context=NULL, channel=NULL, comp_vector=0) = 0x"],
            &["ibv_create_qp(", "{qp_type=RC, ", "cap={max_send_wr=1, max_recv_wr=10, ", ") = 0x"],
            &["ibv_modify_qp(", "{qp_state=INIT, ", "port_num=1", ") = 0 <"],
            &["ibv_post_recv(", "wr=[{wr_id=0x1, [{addr=0x", "length=4096, lkey=0x", ") = 0 <"],
            &[
                "ibv_modify_qp(",
                "{qp_state=RTR, path_mtu=1024, dest_qp_num=0x",
                "dgid=::ffff:127.0.0.1",
                ") = 0 <",
            ],
            &["ibv_modify_qp(", "{qp_state=RTS, sq_psn=0x", "timeout=14", ") = 0 <"],
            &[
                "ibv_post_send(",
                "wr=[{wr_id=0x2, SEND, [{addr=0x",
                "length=4096",
                "SIGNALED}]",
                ") = 0 <",
            ],
            &["ibv_poll_cq(", "SUCCESS", "byte_len=4096, qp_num=0x"],
            &["ibv_destroy_qp(qp=0x", ") = 0 <"],
            &["ibv_destroy_cq(cq=0x", ") = 0 <"],
            &["ibv_dereg_mr(mr=0x", ") = 0 <"],
            &["ibv_dealloc_pd(pd=0x", ") = 0 <"],
            &["ibv_close_device(context=0x", ") = 0 <"],
        ],
    );
    assert_eq!(count(&calls, "ibv_post_send"), 5);
    assert_eq!(completions(&calls), 10, "five sent and five received");
    // It polls continuously, but only polls that found a completion are traced.
    assert!(count(&calls, "ibv_poll_cq") <= 10 + 2, "{}", calls.join("\n"));
}

#[test]
fn writes_are_traced_with_their_remote_address() {
    let Some(calls) = traced("ib_write_bw", "-n 100 -s 8192") else { return };
    well_formed(&calls);
    let write = [
        "ibv_post_send(",
        "RDMA_WRITE, [{addr=0x",
        "length=8192, lkey=0x",
        "remote_addr=0x",
        "rkey=0x",
    ];
    in_order(
        &calls,
        &[
            &["ibv_query_port(", "{state=ACTIVE, active_mtu=4096", "link_layer=2", ") = 0 <"],
            &["ibv_modify_qp(", "qp_access_flags=REMOTE_WRITE"],
            &["ibv_query_gid(", "gid=::ffff:127.0.0.1) = 0 <"],
            &write,
            &["ibv_poll_cq(", "SUCCESS, RDMA_WRITE", "qp_num=0x"],
            &["ibv_close_device("],
        ],
    );
    assert_eq!(count(&calls, "ibv_post_send"), 100);
}

#[test]
fn events_are_traced_with_their_cq() {
    let Some(calls) = traced("ibv_rc_pingpong", "-n 5 -e") else { return };
    in_order(
        &calls,
        &[
            &["ibv_create_comp_channel(context=0x", ") = 0x"],
            &["ibv_req_notify_cq(cq=0x", "solicited_only=0) = 0 <"],
            &["ibv_get_cq_event(channel=0x", "cq=0x", "cq_context=NULL) = 0 <"],
            &["ibv_ack_cq_events(cq=0x", "nevents="],
            &["ibv_destroy_comp_channel(channel=0x", ") = 0 <"],
        ],
    );
}

#[test]
fn failures_are_traced_with_the_errno_name() {
    // More completions than a CQ can have.
    let Some(mut command) = program("ibv_rc_pingpong") else { return };
    let path = file("failure");
    trace(&mut command, &path);
    let status = command
        .args(["-d", "ferroce_lo", "-g", "0", "-r", "2000000000"])
        .output()
        .expect("it runs")
        .status;
    assert!(!status.success());
    let calls = calls(&path);
    let failed = calls.iter().find(|line| line.starts_with("ibv_create_cq(")).expect("the call");
    assert!(failed.contains("cqe=2000000001") && failed.contains(") = NULL E"), "{calls:?}");
}

#[test]
fn traces_of_several_processes_are_distinguished() {
    let Some(mut command) = program("ibv_devices") else { return };
    let path = file("several");
    trace(&mut command, &path);
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert!(shell.output().expect("it runs").status.success());
    };
    // With `exec`, the program is the process that was started; otherwise they are two others.
    shell("exec ibv_devices");
    let one = calls(&path);
    assert!(one.iter().any(|line| line.starts_with("ibv_get_device_list(")), "{one:?}");
    assert!(one.iter().all(|line| line.starts_with("ibv_")), "{one:?}");
    fs::remove_file(&path).expect("it is there");
    shell("ibv_devices; ibv_devices; true");
    let two = calls(&path);
    let mut owners: Vec<_> =
        two.iter().map(|line| line.split("] ").next().unwrap_or_default()).collect();
    owners.dedup();
    assert!(owners.len() == 2 && owners.iter().all(|owner| owner.starts_with('[')), "{two:?}");
}

#[test]
fn nothing_is_traced_by_default() {
    let Some(mut command) = program("ibv_devices") else { return };
    let output = command.output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty());
}

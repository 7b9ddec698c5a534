//! The programs of `examples/c`, built by their Makefile with Debian's headers and libraries and run by `ferroce run`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::{built, skip};
use ferroce_tests::running::{Running, free_port, turn};
use ferroce_tests::tool;

const LIMIT: Duration = Duration::from_secs(100);

/// Builds both programs, in a directory for this test. Returns `None`, after a skip, without the headers.
fn build(test: &str) -> Option<PathBuf> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").is_file() {
        skip("librdmacm-dev is not installed: run `make setup`");
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples_c").join(test);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut make = Command::new("make");
    make.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c"));
    make.arg("--always-make").arg(format!("BUILD={}", folder.display()));
    make.arg("CFLAGS=-O2 -g -Wall -Wextra -Werror");
    // Not influenced by an outer make.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    tool::run(&mut make);
    Some(folder)
}

fn example(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(["run", "--"]).arg(program).args(arguments).stdin(Stdio::null());
    for name in ["FERROCE_CAPTURE", "FERROCE_DEVICES", "FERROCE_FAULTS", "FERROCE_TRACE"] {
        command.env_remove(name);
    }
    command
}

/// Runs server and client, and checks that each printed these lines and exited successfully.
fn pair(program: &Path, address: &str, server_lines: &[&str], client_lines: &[&str]) {
    let until = Instant::now() + LIMIT;
    let port = free_port().to_string();
    let mut server = Running::start(example(program, &["-p", &port]));
    server.wait_for(|line| line.starts_with("waiting for a client"), until);
    let client = Running::start(example(program, &["-p", &port, address]));
    let (client, server) = (client.finish(until), server.finish(until));
    for (said, lines) in [(&server, server_lines), (&client, client_lines)] {
        for line in lines {
            assert!(said.lines().any(|l| l == *line), "'{line}' is missing in\n{said}");
        }
    }
}

/// Runs a client that must fail: with this status, and this message.
fn fails(program: &Path, arguments: &[&str], status: i32, message: &str) {
    let (ended, said) = Running::start(example(program, arguments)).end(Instant::now() + LIMIT);
    assert_eq!(ended.and_then(|ended| ended.code()), Some(status), "{said}");
    assert!(said.contains(message), "'{message}' is missing in\n{said}");
}

#[test]
fn verbs_write_and_read() {
    let _turn = turn();
    let Some(program) = build("pair").map(|folder| folder.join("verbs_write_read")) else { return };
    pair(
        &program,
        "127.0.0.1",
        &["the client has written 16384 bytes, all correct"],
        &[
            "device ferroce_lo, GID index 0",
            "RDMA WRITE of 16384 bytes completed",
            "RDMA READ of 16384 bytes completed",
            "all 16384 bytes match",
        ],
    );
}

#[test]
fn cm_write_and_send() {
    let _turn = turn();
    let Some(program) = build("cm_pair").map(|folder| folder.join("cm_write_send")) else { return };
    for address in ["127.0.0.1", "::1"] {
        pair(
            &program,
            address,
            &["receive completed", "the client has written 16384 bytes, all correct"],
            &[
                "connected through ferroce_lo to 16384 bytes of the server's memory",
                "RDMA WRITE completed",
                "SEND completed",
            ],
        );
    }
}

/// A server whose client ends without having sent anything reports it and does not wait for ever.
#[test]
fn cm_client_that_ends_early() {
    let _turn = turn();
    let Some(folder) = build("early") else { return };
    let until = Instant::now() + LIMIT;
    let port = free_port().to_string();
    let mut server = Running::start(example(&folder.join("cm_write_send"), &["-p", &port]));
    server.wait_for(|line| line.starts_with("waiting for a client"), until);
    // A client that connects and disconnects: librdmacm closes the connection of a process that exits.
    let source = folder.join("early.c");
    std::fs::write(&source, EARLY).expect("a source");
    let client = folder.join("early");
    tool::run(
        Command::new("cc").arg("-o").arg(&client).arg(&source).args(["-lrdmacm", "-libverbs"]),
    );
    Running::start(example(&client, &[&port])).finish(until);
    let (status, said) = server.end(until);
    assert_eq!(status.and_then(|status| status.code()), Some(1), "{said}");
    assert!(said.contains("cm_write_send: receive: Work Request Flushed Error"), "{said}");
}

const EARLY: &str = r#"
#include <rdma/rdma_cma.h>
int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *list;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_cm_id *id;
	return argc != 2 || rdma_getaddrinfo("127.0.0.1", argv[1], &hints, &list) ||
	       rdma_create_ep(&id, list, NULL, &init) || rdma_connect(id, NULL) || rdma_disconnect(id);
}
"#;

#[test]
fn failures_are_explained() {
    let _turn = turn();
    let Some(folder) = build("failures") else { return };
    let port = free_port().to_string();
    let (verbs, cm) = (folder.join("verbs_write_read"), folder.join("cm_write_send"));
    fails(
        &verbs,
        &["-p", &port, "127.0.0.1"],
        1,
        &format!("cannot connect to 127.0.0.1, TCP port {port}: Connection refused"),
    );
    fails(&cm, &["-p", &port, "127.0.0.1"], 1, "reason 8, nothing listens at that port");
    for program in [&verbs, &cm] {
        fails(program, &["-p", "70000", "127.0.0.1"], 2, "port must be a number from 1 to 65535");
        fails(program, &["-p", &port, "host.invalid"], 1, "host.invalid: ");
    }
    fails(&verbs, &["-d", "mlx5_0", "127.0.0.1"], 1, "no RDMA device: mlx5_0");
    fails(&verbs, &["-g", "9", "127.0.0.1"], 1, "ibv_query_gid_ex: No data available");
}

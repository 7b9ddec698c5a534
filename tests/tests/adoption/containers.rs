//! The containers and pods: their commands run in two network namespaces with a link, as a user other than root and without
//! capabilities, from the files that the image has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_test_support::{find_program, skip};
use ferroce_tests::hosts::Hosts;
use ferroce_tests::running::{Running, turn};
use ferroce_tests::tool;
use serde_json::{Value, json};

use crate::{make, root, scratch, strings, yaml};

const LIMIT: Duration = Duration::from_secs(100);

/// Returns the JSON list after an instruction of the Dockerfile.
fn instruction(name: &str) -> Vec<String> {
    let path = root().join("contrib/docker/Dockerfile");
    let text = fs::read_to_string(path).expect("the Dockerfile");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the instruction");
    strings(&serde_json::from_str(line.trim()).expect("a list"))
}

/// Installs as the Dockerfile does, and returns the folder of the command.
fn installed(test: &str) -> PathBuf {
    let folder = scratch(test);
    let dockerfile = fs::read_to_string(root().join("contrib/docker/Dockerfile")).expect("a file");
    assert!(dockerfile.contains("\nRUN make install DESTDIR=/installed\n"), "{dockerfile}");
    tool::run(make().arg("install").arg(format!("DESTDIR={}", folder.display())));
    folder.join("usr/local/bin")
}

/// Returns a command line in a container's stead: user 1000, without capabilities.
fn contained(hosts: &Hosts, side: usize, bin: &Path, line: &[String]) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-user=1000", "--map-group=1000", "--"]).args(line);
    let path = std::env::var("PATH").unwrap_or_default();
    unshare.env("PATH", format!("{}:{path}", bin.display()));
    for name in ["FERROCE_CAPTURE", "FERROCE_DEVICES", "FERROCE_FAULTS", "FERROCE_TRACE"] {
        unshare.env_remove(name);
    }
    hosts.command(side, &unshare)
}

/// Runs the server until its probe succeeds, then the client, which knows the server by this name.
fn perftest(test: &str, server: &[String], probe: &[String], client: &[String], name: &str) {
    let _turn = turn();
    if find_program("ib_write_bw").is_none() {
        return;
    }
    let Some(hosts) = Hosts::new(test) else { return };
    let bin = installed(test);
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned);
    let status =
        contained(&hosts, 0, &bin, &shell("id -u; grep CapEff /proc/self/status")).output();
    let status = String::from_utf8_lossy(&status.expect("unshare runs").stdout).into_owned();
    if status.is_empty() {
        return skip("user namespaces cannot be made here");
    }
    assert_eq!(status, "1000\nCapEff:\t0000000000000000\n");

    let until = Instant::now() + LIMIT;
    // The kernel reports a new link's carrier a moment later, and a port without it is down. Containers start with it.
    let up = shell("until grep -qx up /sys/class/net/eth0/operstate; do sleep 0.01; done");
    for side in [0, 1] {
        Running::start(contained(&hosts, side, &bin, &up)).finish(until);
    }
    let mut running = Running::start(contained(&hosts, 0, &bin, server));
    let is_ready =
        || contained(&hosts, 0, &bin, probe).status().is_ok_and(|status| status.success());
    running.wait_until(|_| is_ready(), until);
    let client: Vec<_> = client.iter().map(|word| word.replace(name, "10.9.0.1")).collect();
    assert!(client.iter().any(|word| word == "10.9.0.1"), "{client:?}");
    let said = Running::start(contained(&hosts, 1, &bin, &client)).finish(until);
    assert!(said.contains("65536      5000"), "{said}");
    running.finish(until);
}

#[test]
fn compose() {
    let Some(documents) = yaml("docker/compose.yml") else { return };
    let services = &documents[0]["services"];
    for service in ["server", "client"] {
        assert_eq!(services[service]["cap_drop"], json!(["ALL"]));
        assert_eq!(services[service]["security_opt"], json!(["no-new-privileges:true"]));
    }
    let file = root()
        .join("contrib/docker")
        .join(services["server"]["build"]["context"].as_str().unwrap());
    assert!(file.join(services["server"]["build"]["dockerfile"].as_str().unwrap()).is_file());
    let line = |service: &str| {
        [instruction("ENTRYPOINT"), strings(&services[service]["command"])].concat()
    };
    let probe = strings(&services["server"]["healthcheck"]["test"]);
    assert_eq!(probe[0], "CMD-SHELL");
    let probe = ["sh", "-c", &probe[1]].map(str::to_owned);
    perftest("compose", &line("server"), &probe, &line("client"), "server");
}

#[test]
fn kubernetes() {
    let Some(documents) = yaml("kubernetes/perftest.yml") else { return };
    let find = |kind: &str, name: &str| {
        let found = documents.iter().find(|d| d["kind"] == kind && d["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let (server, client) = (find("Pod", "ferroce-server"), find("Pod", "ferroce-client"));
    let service = find("Service", "ferroce-server");
    assert_eq!(service["spec"]["selector"], server["metadata"]["labels"]);
    assert_eq!(service["spec"]["clusterIP"], "None");
    for pod in [server, client] {
        // What the policy "restricted" of Kubernetes' pod security standards requires.
        let context = &pod["spec"]["securityContext"];
        assert_eq!(context["runAsNonRoot"], true);
        assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
        let context = &pod["spec"]["containers"][0]["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"], json!({ "drop": ["ALL"] }));
        assert_eq!(pod["spec"].get("hostNetwork"), None);
    }
    let container = |pod: &Value| pod["spec"]["containers"][0].clone();
    let line = |pod: &Value| strings(&container(pod)["command"]);
    let probe = strings(&container(server)["readinessProbe"]["exec"]["command"]);
    perftest("kubernetes", &line(server), &probe, &line(client), "ferroce-server");
}

//! Two hosts: network namespaces with a veth pair between them.

use std::process::Output;

use ferroce_test_support::skip;

use super::FERROCE;
use super::scratch::{Scratch, text};

/// The second argument is the server's command line, in the second namespace; its output goes to server.txt. The third
/// is what runs in the first namespace when the server listens. `ferroce` is the command.
const SCRIPT: &str = r#"
    set -e
    ferroce() { "$command" "$@"; }
    command=$1
    ip link set lo up
    unshare -n sleep 1000 &
    other=$!
    trap "kill $other" EXIT
    while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do :; done
    there() { nsenter -t $other -n "$@"; }
    ip link add here type veth peer name there netns $other || exit 77
    ip address add 10.7.0.1/24 dev here
    ip address add fd07::1/64 dev here nodad
    ip link set here up
    there ip address add 10.7.0.2/24 dev there
    there ip address add fd07::2/64 dev there nodad
    there ip link set there up
    # Not by the function, which would run in a subshell: the trap ends this process.
    nsenter -t $other -n "$1" $2 > server.txt &
    server=$!
    trap "kill $server $other 2>/dev/null || true" EXIT
    until grep -q listening server.txt; do :; done
    eval "$3"
"#;

impl Scratch {
    /// Runs `ferroce SERVER` on a host with the addresses 10.7.0.2 and fd07::2 and, when it listens, a shell script on
    /// another one. Returns the output of the script. `None`, after a skip, if namespaces cannot be created.
    pub(crate) fn between_hosts(&self, server: &str, script: &str) -> Option<Output> {
        let output = self.in_namespace("sh", &["-c", SCRIPT, "sh", FERROCE, server, script])?;
        if output.status.code() == Some(77) {
            skip(format_args!("cannot create a veth pair: {}", text(&output.stderr)));
            return None;
        }
        Some(output)
    }
}

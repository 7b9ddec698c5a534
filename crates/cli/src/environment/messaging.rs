//! Variables that make UCX, libfabric and Open MPI use our devices.
//!
//! Variables set by the user are left alone. Those set by an outer `ferroce run` are replaced, because the devices may
//! differ; they are recorded in `FERROCE_TOLD`.

use std::ffi::OsString;
use std::path::Path;

use super::EnvironmentArgs;
use super::variables::Variable;

/// Lists the variables that an outer `ferroce run` has set, as `NAME=VALUE`.
const OURS: &str = "FERROCE_TOLD";
const SEPARATOR: char = ';';

/// Only our transports: otherwise ranks on one host would silently use shared memory, and ranks on two hosts TCP.
const TRANSPORTS: &str = "rc_verbs,ud_verbs,self";

/// The names in `UCX_TLS` that include RC without vendor extensions (UCX's documentation).
const RC: [&str; 5] = ["all", "ib", "rc", "rc_v", "rc_verbs"];

/// The variables, including the one that lists them.
pub(super) fn variables(args: &EnvironmentArgs) -> Vec<Variable> {
    let outer = std::env::var(OURS).unwrap_or_default();
    let mut set = wanted(args);
    set.retain(|variable| is_free(variable.name, std::env::var_os(variable.name), &outer));
    let transports = std::env::var("UCX_TLS").ok();
    let chosen = transports.filter(|list| !is_free("UCX_TLS", Some(list.into()), &outer));
    // UCX warns about variables of transports that it does not use.
    if chosen.is_some_and(|list| !selects(&list, &RC)) {
        set.retain(|variable| !variable.name.starts_with("UCX_RC_"));
    }
    let listed: Vec<_> = set.iter().map(listed).collect();
    set.push(Variable::text(OURS, listed.join(&SEPARATOR.to_string())));
    set
}

/// Whether we may set a variable: it is unset, or has a value that we gave it.
pub(super) fn is_free(name: &str, value: Option<OsString>, outer: &str) -> bool {
    let Some(value) = value else { return true };
    let value = value.to_string_lossy();
    outer.split(SEPARATOR).any(|entry| entry.split_once('=') == Some((name, &*value)))
}

/// Whether a list of names selects one of these; a leading `^` excludes the names.
pub(crate) fn selects(list: &str, wanted: &[&str]) -> bool {
    let (list, excludes) = match list.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (list, false),
    };
    let named = |wanted: &&str| list.split([',', ';']).any(|name| name.trim() == *wanted);
    match excludes {
        // Without UD, RC is left.
        true => !wanted.iter().any(|name| named(name) && !name.starts_with("ud")),
        false => wanted.iter().any(named),
    }
}

fn listed(variable: &Variable) -> String {
    format!("{}={}", variable.name, variable.value.to_string_lossy())
}

fn wanted(args: &EnvironmentArgs) -> Vec<Variable> {
    let mut wanted = vec![
        Variable::text("UCX_TLS", TRANSPORTS.into()),
        // UCX assumes the MTU of the port for all peers. Our QPs reduce it to the path MTU.
        Variable::text("UCX_IB_PATH_MTU", "4096".into()),
        // UCX would send 64 KiB in fragments of 8 KiB, each with batches of its own. Up to 32 KiB a message is one SEND,
        // which is faster than a rendezvous of three messages; the receiver READs longer ones. A quarter of the buffers
        // with four times the length take the same memory.
        Variable::text("UCX_RC_VERBS_SEG_SIZE", "33k".into()),
        Variable::text("UCX_RC_VERBS_RX_QUEUE_LEN", "1024".into()),
        Variable::text("UCX_RC_VERBS_TX_BUFS_GROW", "256".into()),
        Variable::text("UCX_RNDV_THRESH", "33k".into()),
    ];
    // Open MPI does not use UCX on devices it does not know, and Debian's configuration excludes it. Shared-memory
    // windows (MPI_Win_allocate_shared) belong to `sm`.
    wanted.push(Variable::text("OMPI_MCA_pml", "ucx".into()));
    wanted.push(Variable::text("OMPI_MCA_osc", "ucx,sm".into()));
    let agent = std::env::current_exe().ok().and_then(|program| launch_agent(&program, args));
    wanted.extend(agent.map(|agent| Variable::text("OMPI_MCA_orte_launch_agent", agent)));
    wanted
}

/// The agent by which mpirun starts its daemon on other hosts: this command, so that the ranks there use that host's
/// devices. Open MPI splits it at spaces. The device names of this host must not be used there, even if the agent
/// passes our variables on.
fn launch_agent(program: &Path, args: &EnvironmentArgs) -> Option<String> {
    let mut words = vec!["env".into(), "-u".into(), "FERROCE_DEVICES".into()];
    if let Some(folder) = std::env::var("FERROCE_LIB").ok().filter(|folder| !folder.is_empty()) {
        words.push(format!("FERROCE_LIB={folder}"));
    }
    words.push(program.to_str()?.to_owned());
    words.push("run".into());
    let full = |path: &Path| match path.to_str() {
        Some("-") => Some("-".to_owned()),
        _ => std::path::absolute(path).ok()?.to_str().map(str::to_owned),
    };
    if let Some(names) = &args.names {
        words.push(format!("--name={names}"));
    }
    if let Some(capture) = &args.capture {
        words.push(format!("--capture={}", full(capture)?));
    }
    if let Some(policy) = args.policy.capture_policy {
        words.push(format!("--capture-policy={}", policy.name()));
    }
    if let Some(trace) = &args.trace {
        words.push(format!("--trace={}", full(trace)?));
    }
    if args.sockets {
        words.push("--sockets".into());
    }
    words.extend(["--".into(), "orted".into()]);
    // It is a command line for a remote shell.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=%+,@:".contains(&byte);
    words.iter().all(|word| word.bytes().all(plain)).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::PolicyArgs;

    fn args(capture: Option<&str>) -> EnvironmentArgs {
        EnvironmentArgs {
            devices: Vec::new(),
            names: "rxe%d".parse().ok(),
            capture: capture.map(Into::into),
            policy: PolicyArgs::default(),
            trace: Some("-".into()),
            sockets: true,
            wire: false,
            no_libraries: false,
        }
    }

    #[test]
    fn variables_set_by_the_user_are_kept() {
        let value = |text: &str| Some(OsString::from(text));
        assert!(is_free("UCX_TLS", None, ""));
        assert!(!is_free("UCX_TLS", value("tcp"), ""));
        assert!(!is_free("UCX_TLS", value(""), ""));
        // Set by an outer run, and changed since.
        let outer = "UCX_TLS=self;OMPI_MCA_pml=ucx";
        assert!(is_free("UCX_TLS", value("self"), outer));
        assert!(is_free("OMPI_MCA_pml", value("ucx"), outer));
        assert!(!is_free("OMPI_MCA_pml", value("ob1"), outer));
        assert!(!is_free("OMPI_MCA_osc", value("ucx"), outer));
    }

    #[test]
    fn remote_daemons_are_launched_by_ferroce_run() {
        let agent = launch_agent(Path::new("/opt/ferroce"), &args(Some("/x/%p.pcapng"))).unwrap();
        assert!(agent.starts_with("env -u FERROCE_DEVICES "), "{agent}");
        let end =
            "/opt/ferroce run --name=rxe%d --capture=/x/%p.pcapng --trace=- --sockets -- orted";
        assert!(agent.ends_with(end), "{agent}");
        // A shell would split the path.
        assert_eq!(launch_agent(Path::new("/my opt/ferroce"), &args(None)), None);
    }
}

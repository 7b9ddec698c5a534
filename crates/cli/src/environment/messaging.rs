//! What the libraries that programs send messages with have to be told to use our devices: UCX, libfabric, Open MPI.
//!
//! What the user has set stays as it is. What an outer `ferroce run` has set is set anew, for there may be other devices
//! here: its variables and their values are in `FERROCE_TOLD`.

use std::ffi::OsString;
use std::path::Path;

use super::EnvironmentArgs;
use super::variables::Variable;

/// The variables that an outer `ferroce run` has set, as `NAME=VALUE`.
const OURS: &str = "FERROCE_TOLD";
const SEPARATOR: char = ';';

/// Our transports alone: ranks of one host would use shared memory, and those of two TCP, and nobody would know.
const TRANSPORTS: &str = "rc_verbs,ud_verbs,self";

/// The variables, with the one that lists them.
pub(super) fn variables(args: &EnvironmentArgs) -> Vec<Variable> {
    let outer = std::env::var(OURS).unwrap_or_default();
    let mut set = wanted(args);
    set.retain(|variable| is_free(variable.name, std::env::var_os(variable.name), &outer));
    let listed: Vec<_> = set.iter().map(listed).collect();
    set.push(Variable::text(OURS, listed.join(&SEPARATOR.to_string())));
    set
}

/// Whether a variable is for us to set: it has no value, or one that we gave it.
fn is_free(name: &str, value: Option<OsString>, outer: &str) -> bool {
    let Some(value) = value else { return true };
    let value = value.to_string_lossy();
    outer.split(SEPARATOR).any(|entry| entry.split_once('=') == Some((name, &*value)))
}

fn listed(variable: &Variable) -> String {
    format!("{}={}", variable.name, variable.value.to_string_lossy())
}

fn wanted(args: &EnvironmentArgs) -> Vec<Variable> {
    let mut wanted = vec![
        Variable::text("UCX_TLS", TRANSPORTS.into()),
        // UCX takes the MTU of the port for all peers. Our queue pairs lower this one to what the path to theirs carries.
        Variable::text("UCX_IB_PATH_MTU", "4096".into()),
    ];
    // Open MPI has no trust in UCX on devices that it has not heard of, and Debian's configuration excludes it. Windows of
    // shared memory (MPI_Win_allocate_shared) are `sm`'s.
    wanted.push(Variable::text("OMPI_MCA_pml", "ucx".into()));
    wanted.push(Variable::text("OMPI_MCA_osc", "ucx,sm".into()));
    let agent = std::env::current_exe().ok().and_then(|program| launch_agent(&program, args));
    wanted.extend(agent.map(|agent| Variable::text("OMPI_MCA_orte_launch_agent", agent)));
    wanted
}

/// How mpirun starts its daemon on other hosts: by this command, so that the ranks there have that host's devices. Open
/// MPI takes it apart at spaces. The devices of this host are not those of the other, even if the agent that goes there
/// takes our variables along.
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
    if let Some(trace) = &args.trace {
        words.push(format!("--trace={}", full(trace)?));
    }
    if args.sockets {
        words.push("--sockets".into());
    }
    words.extend(["--".into(), "orted".into()]);
    // It is a line for a shell there.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=%+,@:".contains(&byte);
    words.iter().all(|word| word.bytes().all(plain)).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(capture: Option<&str>) -> EnvironmentArgs {
        EnvironmentArgs {
            devices: Vec::new(),
            names: "rxe%d".parse().ok(),
            capture: capture.map(Into::into),
            trace: Some("-".into()),
            sockets: true,
            no_libraries: false,
        }
    }

    #[test]
    fn what_the_user_has_set_stays() {
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
    fn the_daemons_of_other_hosts_are_run_by_us() {
        let agent = launch_agent(Path::new("/opt/ferroce"), &args(Some("/x/%p.pcapng"))).unwrap();
        assert!(agent.starts_with("env -u FERROCE_DEVICES "), "{agent}");
        let end =
            "/opt/ferroce run --name=rxe%d --capture=/x/%p.pcapng --trace=- --sockets -- orted";
        assert!(agent.ends_with(end), "{agent}");
        // It would come to a shell in pieces.
        assert_eq!(launch_agent(Path::new("/my opt/ferroce"), &args(None)), None);
    }
}

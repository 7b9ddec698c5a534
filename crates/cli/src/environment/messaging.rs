//! What the libraries that programs send messages with have to be told to use our devices: UCX, libfabric, Open MPI.
//!
//! What the user has set stays as it is. What an outer `ferroce run` has set is set anew, for there may be other devices
//! here: its variables and their values are in `FERROCE_TOLD`.

use std::ffi::OsString;
use std::path::Path;

use ferroce::Device;

use super::EnvironmentArgs;
use super::variables::Variable;
use crate::devices::is_active;

/// The variables that an outer `ferroce run` has set, as `NAME=VALUE`.
const OURS: &str = "FERROCE_TOLD";
const SEPARATOR: char = ';';

/// Our transports alone: ranks of one host would use shared memory, and those of two TCP, and nobody would know.
const TRANSPORTS: &str = "rc_verbs,ud_verbs,self";

/// The variables, with the one that lists them.
pub(super) fn variables(args: &EnvironmentArgs, devices: &[Device]) -> Vec<Variable> {
    let outer = std::env::var(OURS).unwrap_or_default();
    let mut set = wanted(args, devices);
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

fn wanted(args: &EnvironmentArgs, devices: &[Device]) -> Vec<Variable> {
    let far = far(devices);
    let mut wanted = vec![Variable::text("UCX_TLS", TRANSPORTS.into())];
    if !far.is_empty() {
        let ports: Vec<_> = far.iter().map(|device| format!("{}:1", device.name())).collect();
        wanted.push(Variable::text("UCX_NET_DEVICES", ports.join(",")));
    }
    // libfabric takes one name. Of several devices the program has to choose.
    if let [device] = far[..] {
        if !device.interface().loopback {
            wanted.push(Variable::text("FI_VERBS_DEVICE_NAME", device.name().into()));
        }
    }
    // Open MPI has no trust in UCX on devices that it has not heard of, and Debian's configuration excludes it. Windows of
    // shared memory (MPI_Win_allocate_shared) are `sm`'s.
    wanted.push(Variable::text("OMPI_MCA_pml", "ucx".into()));
    wanted.push(Variable::text("OMPI_MCA_osc", "ucx,sm".into()));
    let agent = std::env::current_exe().ok().and_then(|program| launch_agent(&program, args));
    wanted.extend(agent.map(|agent| Variable::text("OMPI_MCA_orte_launch_agent", agent)));
    wanted
}

/// The devices that reach other hosts, those without a signal only if there are no others; without any, the loopback. A
/// library that sees both takes the loopbacks of two hosts for neighbours, as they have the same address.
fn far(devices: &[Device]) -> Vec<&Device> {
    let some = |wanted: fn(&Device) -> bool| {
        let some: Vec<_> = devices.iter().filter(|device| wanted(device)).collect();
        (!some.is_empty()).then_some(some)
    };
    some(|device| !device.interface().loopback && is_active(device))
        .or_else(|| some(|device| !device.interface().loopback))
        .unwrap_or_else(|| devices.iter().collect())
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
    if let Some(capture) = &args.capture {
        words.push(format!("--capture={}", full(capture)?));
    }
    if let Some(trace) = &args.trace {
        words.push(format!("--trace={}", full(trace)?));
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
            capture: capture.map(Into::into),
            trace: Some("-".into()),
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
        let end = "/opt/ferroce run --capture=/x/%p.pcapng --trace=- -- orted";
        assert!(agent.ends_with(end), "{agent}");
        // It would come to a shell in pieces.
        assert_eq!(launch_agent(Path::new("/my opt/ferroce"), &args(None)), None);
    }
}

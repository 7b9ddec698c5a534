//! `ferroce run` and `ferroce env` with the real binary and the real view; libibverbs and librdmacm have tests of their
//! own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ferroce_test_support::{built, skip};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

/// The folder with the view's library.
fn libraries() -> &'static Path {
    built::folder()
}

/// A folder for a test's own, where the view's folder goes as well.
fn place(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn ferroce(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(FERROCE);
    command.args(arguments).env("FERROCE_LIB", libraries()).env("XDG_RUNTIME_DIR", place);
    for name in
        ["FERROCE_DEVICES", "FERROCE_NAME", "FERROCE_CAPTURE", "LD_PRELOAD", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command
}

/// Runs a command with the view alone.
fn run(place: &Path, command: &[&str]) -> Output {
    ferroce(place, &["run", "--no-libraries", "--"]).args(command).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn is_empty(place: &Path) -> bool {
    fs::read_dir(place).unwrap().next().is_none()
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn hw_counters_are_the_sums_of_all_processes() {
    let place = place("counters");
    let script = r#"
        counters=/sys/class/infiniband/ferroce_lo/ports/1/hw_counters
        ls $counters
        for name in $(ls $counters); do cat $counters/$name; done
        cd "$1"
        FERROCE_FAULTS=loss=5%,seed=3 "$0" demo --size 300K --json >/dev/null || exit 1
        for name in $(ls $counters); do cat $counters/$name; done
    "#;
    let out = stdout(&run(&place, &["sh", "-c", script, FERROCE, place.to_str().unwrap()]));
    let lines: Vec<&str> = out.lines().collect();
    let (names, counts) = lines.split_at(10);
    assert_eq!(
        names,
        [
            "duplicate_request",
            "implied_nak_seq_err",
            "local_ack_timeout_err",
            "np_cnp_sent",
            "np_ecn_marked_roce_packets",
            "out_of_sequence",
            "out_of_window_request",
            "packet_seq_err",
            "rnr_nak_retry_err",
            "rp_cnp_handled",
        ]
    );
    let counts: Vec<u64> = counts.iter().map(|count| count.parse().unwrap()).collect();
    let (before, after) = counts.split_at(10);
    assert_eq!(before, [0; 10]);
    // Of the packets of 300 KiB there and back, some are lost: the responder sees gaps and is asked again.
    assert!(after[5] > 0 && after[7] > 0, "{names:?}: {after:?}");
    assert_eq!([after[3], after[4], after[9]], [0; 3], "nothing was marked: {after:?}");
}

#[test]
fn programs_see_the_devices() {
    let place = place("sees");
    let lo = "/sys/class/infiniband/ferroce_lo";
    for (file, value) in [
        ("node_type", "1: CA"),
        ("node_desc", "ferroce_lo"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/link_layer", "Ethernet"),
        ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001"),
        ("ports/1/gid_attrs/types/0", "RoCE v2"),
        ("ports/1/gid_attrs/ndevs/0", "lo"),
        ("ports/1/pkeys/0", "0xffff"),
        ("device/net/lo/ifindex", "1"),
        ("device/infiniband_verbs/uverbs0/ibdev", "ferroce_lo"),
        ("../../infiniband_verbs/abi_version", "6"),
    ] {
        let output = stdout(&run(&place, &["cat", &format!("{lo}/{file}")]));
        assert_eq!(output, format!("{value}\n"), "{file}");
    }
    let listed = stdout(&run(&place, &["ls", "/sys/class/infiniband"]));
    assert!(listed.lines().any(|line| line == "ferroce_lo"), "{listed}");
    assert!(is_empty(&place));
}

#[test]
fn devices_are_called_by_a_pattern() {
    let place = place("names");
    let run = |pattern: &str| {
        let arguments = ["run", "--no-libraries", "--device", "lo", "--name", pattern, "sh", "-c"];
        let script = "ls /sys/class/infiniband; cat /sys/class/infiniband_verbs/uverbs0/ibdev; \
                      echo $FERROCE_NAME $FERROCE_DEVICES";
        ferroce(&place, &arguments).arg(script).output().unwrap()
    };
    assert_eq!(stdout(&run("rxe%d")), "rxe0\nrxe0\nrxe%d lo\n");
    assert_eq!(stdout(&run("rdma_%s")), "rdma_lo\nrdma_lo\nrdma_%s lo\n");
    let refused = run("no/name");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("%d is replaced by the index"), "{refused:?}");
}

#[test]
fn one_device_alone_can_be_shown() {
    let place = place("one");
    for name in ["lo", "ferroce_lo", "ferroce_lo,lo"] {
        let arguments = ["run", "--no-libraries", "--device", name, "ls", "/sys/class/infiniband"];
        let output = ferroce(&place, &arguments).output().unwrap();
        assert_eq!(stdout(&output), "ferroce_lo\n");
    }
    let output = ferroce(&place, &["run", "--no-libraries", "--device", "none", "true"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("there is no device none"));
}

#[test]
fn devices_can_be_read_and_written() {
    let script = "for name in uverbs0 rdma_cm; do file=/dev/infiniband/$name; \
                  test -c $file && test -r $file && test -w $file && echo x >$file || exit 1; done";
    assert_eq!(stdout(&run(&place("devices"), &["bash", "-c", script])), "");
}

#[test]
fn the_tools_of_infiniband_diags_see_them() {
    let place = place("diags");
    for (program, parts) in [
        ("/usr/sbin/ibstat", ["CA 'ferroce_lo'", "State: Active", "Link layer: Ethernet"]),
        ("/usr/sbin/ibstatus", ["'ferroce_lo' port 1", "4: ACTIVE", "default gid:"]),
    ] {
        if !Path::new(program).exists() {
            skip(format_args!("{program} is not installed: run `make setup`"));
            continue;
        }
        let shown = stdout(&run(&place, &[program]));
        for part in parts {
            assert!(shown.contains(part), "{program}: {part}: {shown}");
        }
    }
}

#[test]
fn children_of_children_see_them() {
    let script = "for folder in /sys/class/infiniband/ferroce_l*; do \
                  sh -c \"sh -c 'cat $folder/node_type'; basename $folder\"; done";
    let shown = stdout(&run(&place("children"), &["sh", "-c", script]));
    assert_eq!(shown, "1: CA\nferroce_lo\n");
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let place = place("status");
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/nowhere/nothing"], 127),
        (&["nothing-of-this-name"], 127),
        (&["/etc/passwd"], 126),
    ] {
        assert_eq!(run(&place, command).status.code(), Some(status), "{command:?}");
    }
    let output = run(&place, &["nothing-of-this-name"]);
    assert_eq!(text(&output.stderr), "ferroce: nothing-of-this-name: command not found\n");
    assert!(is_empty(&place));
}

#[test]
fn signals_are_passed_on() {
    let place = place("signals");
    for (signal, status) in [("TERM", 3), ("INT", 4), ("HUP", 5), ("USR1", 6)] {
        // The command signals who runs it, and gets it back.
        let script = format!(
            "sleep 60 & trap 'kill $!; echo got; exit {status}' {signal}; kill -{signal} $PPID; wait"
        );
        let output = run(&place, &["sh", "-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), "got\n".into()));
    }
    // One that the command dies of.
    let output = run(&place, &["sh", "-c", "kill -TERM $PPID; read forever </dev/zero"]);
    assert_eq!(output.status.code(), Some(143));
    assert!(is_empty(&place));
}

#[test]
fn what_was_killed_is_cleaned_up_by_the_next_one_when_nobody_uses_it() {
    let place = place("killed");
    let script = "echo $FERROCE_VIEW $$; kill -KILL $PPID; read line; echo gone";
    let mut child = ferroce(&place, &["run", "--no-libraries", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let (view, process) = line.trim().split_once(' ').unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // The shell lives on, and has its view. It may have been killed before it could note that: then it has none.
    let noted = Path::new(view).join("users").exists();
    stdout(&run(&place, &["true"]));
    assert_eq!(Path::new(view).exists(), noted);
    drop(input);
    output.read_to_string(&mut String::new()).unwrap();
    // Its output has ended, and it is about to.
    let file = format!("/proc/{process}/stat");
    while fs::read_to_string(&file).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::yield_now();
    }
    stdout(&run(&place, &["true"]));
    assert!(is_empty(&place), "{line}");
}

#[test]
fn the_folder_is_private() {
    let place = place("private");
    let mode = stdout(&run(&place, &["sh", "-c", "stat -c '%a %u' $FERROCE_VIEW"]));
    assert_eq!(mode, format!("700 {}\n", fs::metadata("/proc/self").unwrap().uid()));
}

#[test]
fn variables_are_set_and_said() {
    let place = place("variables");
    let capture = place.join("packets.pcapng");
    let arguments =
        ["run", "--no-libraries", "--verbose", "--trace", "--device", "lo", "--capture"];
    let output = ferroce(&place, &arguments)
        .args([capture.to_str().unwrap(), "env"])
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    let preload = format!(
        "LD_PRELOAD=libm.so.6:{}/libferroce_view.so",
        libraries().canonicalize().unwrap().display()
    );
    let capture = format!("FERROCE_CAPTURE={}", capture.display());
    for line in [preload.as_str(), &capture, "FERROCE_TRACE=1", "FERROCE_DEVICES=lo"] {
        for shown in [stdout(&output), text(&output.stderr)] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
    // Looking whether it can be written leaves nothing behind.
    assert!(is_empty(&place));
}

#[test]
fn messaging_libraries_are_told_unless_the_user_did() {
    let place = place("messaging");
    let run = |arguments: &[&str]| {
        let mut command =
            ferroce(&place, &["run", "--no-libraries", "--verbose", "--device", "lo", "--"]);
        for name in ["UCX_IB_PATH_MTU", "OMPI_MCA_pml", "OMPI_MCA_osc", "FERROCE_TOLD"] {
            command.env_remove(name);
        }
        command.args(arguments).env("UCX_TLS", "self").output().unwrap()
    };
    let output = run(&["env"]);
    let agent = format!("env -u FERROCE_DEVICES FERROCE_LIB={}", libraries().display());
    let agent = format!("OMPI_MCA_orte_launch_agent={agent} {FERROCE} run -- orted");
    for line in ["UCX_IB_PATH_MTU=4096", "OMPI_MCA_pml=ucx", "OMPI_MCA_osc=ucx,sm", &agent] {
        for shown in [stdout(&output), text(&output.stderr)] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
    let has = |shown: &str, start: &str| shown.lines().any(|line| line.starts_with(start));
    assert!(has(&stdout(&output), "UCX_TLS=self") && !has(&text(&output.stderr), "UCX_TLS"));
    // What the outer one has set, the inner one sets anew; what the command has, stays.
    let inner = format!("OMPI_MCA_osc=rdma {FERROCE} run --no-libraries --verbose true");
    let said = text(&run(&["sh", "-c", &inner]).stderr);
    assert_eq!(said.lines().filter(|line| *line == "OMPI_MCA_pml=ucx").count(), 2, "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("OMPI_MCA_osc=")).count(), 1, "{said}");
}

#[test]
fn a_capture_that_cannot_be_written_is_said_before() {
    let place = place("capture");
    let arguments = ["run", "--no-libraries", "--capture", "/nowhere/x.pcapng", "echo", "ran"];
    let output = ferroce(&place, &arguments).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0));
    assert!(text(&output.stderr).contains("/nowhere/x.pcapng: cannot write the capture"));
}

#[test]
fn missing_libraries_are_said_with_what_to_do() {
    let place = place("libraries");
    for (arguments, name) in [
        (&["run", "true"][..], "libferroce_view.so"),
        (&["run", "--no-libraries", "true"], "libferroce_view.so"),
        (&["env"], "libferroce_view.so"),
    ] {
        let output = ferroce(&place, arguments).env("FERROCE_LIB", &place).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        let said = text(&output.stderr);
        for part in [name, "cargo build --release -p ferroce-capi -p ferroce-view", "FERROCE_LIB"] {
            assert!(said.contains(part), "{said}");
        }
    }
    let view = "libferroce_view.so";
    fs::copy(libraries().join(view), place.join(view)).unwrap();
    let output = ferroce(&place, &["run", "true"]).env("FERROCE_LIB", &place).output().unwrap();
    assert!(text(&output.stderr).contains("libibverbs.so.1 is not in"));
    let arguments = ["run", "--sockets", "true"];
    let output = ferroce(&place, &arguments).env("FERROCE_LIB", &place).output().unwrap();
    assert!(text(&output.stderr).contains("libferroce_sockets.so is not in"));
}

#[test]
fn sockets_are_preloaded_before_the_view() {
    let place = place("sockets");
    let script = ["sh", "-c", "echo $LD_PRELOAD"];
    let output = ferroce(&place, &["run", "--sockets", "--"]).args(script).output().unwrap();
    let preloaded = stdout(&output);
    let names = preloaded.trim_end().split(':').map(|path| path.rsplit('/').next().unwrap());
    assert!(names.eq(["libferroce_sockets.so", "libferroce_view.so"]), "{preloaded}");
}

#[test]
fn what_cargo_builds_gets_its_names() {
    let place = place("names with: spaces");
    for name in ["libferroce_view.so", "libferroce_capi.so"] {
        // For this it need not be what it says.
        fs::copy(libraries().join("libferroce_view.so"), place.join(name)).unwrap();
    }
    let script = "ls $LD_LIBRARY_PATH; cat /sys/class/infiniband/ferroce_lo/node_type";
    let output = ferroce(Path::new("/nowhere"), &["run", "sh", "-c", script])
        .env("FERROCE_LIB", &place)
        .output()
        .unwrap();
    let shown = stdout(&output);
    for name in ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1", "1: CA"] {
        assert!(shown.lines().any(|line| line == name), "{name}: {shown}");
    }
}

#[test]
fn a_shell_can_take_the_variables() {
    let place = place("env");
    let script = format!(
        "eval \"$({FERROCE} env --no-libraries --device lo)\"; cat /sys/class/infiniband/ferroce_lo/node_type; \
         {FERROCE} run --no-libraries true; ls /sys/class/infiniband; echo $FERROCE_DEVICES"
    );
    for shell in ["sh", "bash"] {
        let output = Command::new("setsid")
            .args(["--wait", shell, "-c", &script])
            .env("FERROCE_LIB", libraries())
            .env("XDG_RUNTIME_DIR", &place)
            .output()
            .unwrap();
        assert_eq!(stdout(&output), "1: CA\nferroce_lo\nlo\n");
        // The session is over: the next one cleans up.
        assert!(!is_empty(&place));
        stdout(&run(&place, &["true"]));
        assert!(is_empty(&place));
    }
}

#[test]
fn no_privilege_is_needed() {
    const NOBODY: u32 = 65_534;
    if fs::metadata("/proc/self").unwrap().uid() != 0 || !is_there("setpriv") {
        return skip("not allowed to become another user, or setpriv is not installed");
    }
    // The user must be able to come to the command, wherever cargo has built it.
    let place = std::env::temp_dir().join(format!("ferroce-test-{}", std::process::id()));
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(FERROCE, place.join("ferroce")).unwrap();
    fs::copy(libraries().join("libferroce_view.so"), place.join("libferroce_view.so")).unwrap();
    let own = place.join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let script = "id -u; cat /sys/class/infiniband/ferroce_lo/node_type; \
                  echo x >/dev/infiniband/uverbs0 && dirname $FERROCE_VIEW";
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"])
        .arg(place.join("ferroce"))
        .args(["run", "--no-libraries", "sh", "-c", script])
        .env("XDG_RUNTIME_DIR", &own)
        .env_remove("FERROCE_LIB")
        .output()
        .unwrap();
    let left = !is_empty(&own);
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(stdout(&output), format!("65534\n1: CA\n{}\n", own.display()));
    assert!(!left);
}

#[test]
fn help_has_examples() {
    for command in ["run", "env"] {
        let help = stdout(&ferroce(Path::new("/"), &[command, "--help"]).output().unwrap());
        assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
        assert!(!help.contains("--no-libraries"), "{help}");
    }
}

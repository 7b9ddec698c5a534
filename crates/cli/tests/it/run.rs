//! `ferroce run` and `ferroce env` with the built view library. libibverbs and librdmacm are tested in `tests/`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ferroce_test_support::{built, skip};

const FERROCE: &str = env!("CARGO_BIN_EXE_ferroce");

/// Returns the directory of the view library.
fn libraries() -> &'static Path {
    built::folder()
}

/// Creates an empty directory for a test, which also holds the directory of the view.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn ferroce(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(FERROCE);
    command.args(arguments).env("FERROCE_LIB", libraries()).env("XDG_RUNTIME_DIR", directory);
    for name in
        ["FERROCE_DEVICES", "FERROCE_NAME", "FERROCE_CAPTURE", "LD_PRELOAD", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command
}

/// Runs a command with the view but without the libraries.
fn run(directory: &Path, command: &[&str]) -> Output {
    ferroce(directory, &["run", "--no-libraries", "--"]).args(command).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[test]
fn hw_counters_are_summed_over_all_processes() {
    let directory = directory("counters");
    let script = r#"
        counters=/sys/class/infiniband/ferroce_lo/ports/1/hw_counters
        ls $counters
        for name in $(ls $counters); do cat $counters/$name; done
        cd "$1"
        FERROCE_FAULTS=loss=5%,seed=3 "$0" demo --size 300K --json >/dev/null || exit 1
        for name in $(ls $counters); do cat $counters/$name; done
    "#;
    let out = stdout(&run(&directory, &["sh", "-c", script, FERROCE, directory.to_str().unwrap()]));
    let lines: Vec<&str> = out.lines().collect();
    let (names, counts) = lines.split_at(11);
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
            "retrans_pkts",
            "rnr_nak_retry_err",
            "rp_cnp_handled",
        ]
    );
    let counts: Vec<u64> = counts.iter().map(|count| count.parse().unwrap()).collect();
    let (before, after) = counts.split_at(11);
    assert_eq!(before, [0; 11]);
    // Some packets of the 300 KiB in each direction are lost: the responder sees sequence gaps and sends NAKs.
    assert!(after[5] > 0 && after[7] > 0 && after[8] > 0, "{names:?}: {after:?}");
    assert_eq!([after[3], after[4], after[10]], [0; 3], "no CNP without ECN: {after:?}");
}

#[test]
fn programs_see_the_devices() {
    let directory = directory("sees");
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
        let output = stdout(&run(&directory, &["cat", &format!("{lo}/{file}")]));
        assert_eq!(output, format!("{value}\n"), "{file}");
    }
    let listed = stdout(&run(&directory, &["ls", "/sys/class/infiniband"]));
    assert!(listed.lines().any(|line| line == "ferroce_lo"), "{listed}");
    assert!(is_empty(&directory));
}

#[test]
fn name_sets_the_pattern_of_device_names() {
    let directory = directory("names");
    let run = |pattern: &str| {
        let arguments = ["run", "--no-libraries", "--device", "lo", "--name", pattern, "sh", "-c"];
        let script = "ls /sys/class/infiniband; cat /sys/class/infiniband_verbs/uverbs0/ibdev; \
                      echo $FERROCE_NAME $FERROCE_DEVICES";
        ferroce(&directory, &arguments).arg(script).output().unwrap()
    };
    assert_eq!(stdout(&run("rxe%d")), "rxe0\nrxe0\nrxe%d lo\n");
    assert_eq!(stdout(&run("rdma_%s")), "rdma_lo\nrdma_lo\nrdma_%s lo\n");
    let refused = run("no/name");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("%d is replaced by the index"), "{refused:?}");
}

#[test]
fn device_limits_the_view_to_one_device() {
    let directory = directory("one");
    for name in ["lo", "ferroce_lo", "ferroce_lo,lo"] {
        let arguments = ["run", "--no-libraries", "--device", name, "ls", "/sys/class/infiniband"];
        let output = ferroce(&directory, &arguments).output().unwrap();
        assert_eq!(stdout(&output), "ferroce_lo\n");
    }
    let output =
        ferroce(&directory, &["run", "--no-libraries", "--device", "none", "true"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("there is no device none"));
}

#[test]
fn device_files_can_be_read_and_written() {
    let script = "for name in uverbs0 rdma_cm; do file=/dev/infiniband/$name; \
                  test -c $file && test -r $file && test -w $file && echo x >$file || exit 1; done";
    assert_eq!(stdout(&run(&directory("devices"), &["bash", "-c", script])), "");
}

#[test]
fn infiniband_diags_tools_see_the_devices() {
    let directory = directory("diags");
    for (program, parts) in [
        ("/usr/sbin/ibstat", ["CA 'ferroce_lo'", "State: Active", "Link layer: Ethernet"]),
        ("/usr/sbin/ibstatus", ["'ferroce_lo' port 1", "4: ACTIVE", "default gid:"]),
    ] {
        if !Path::new(program).exists() {
            skip(format_args!("{program} is not installed: run `make setup`"));
            continue;
        }
        let shown = stdout(&run(&directory, &[program]));
        for part in parts {
            assert!(shown.contains(part), "{program}: {part}: {shown}");
        }
    }
}

#[test]
fn a_device_has_a_directory_named_like_a_pci_function() {
    let script = "cd $(readlink -f /sys/class/infiniband_verbs/uverbs0/device) && pwd -P \
                  && cat vendor device class numa_node && ls net infiniband_verbs \
                  && cat infiniband/ferroce_lo/node_desc";
    let shown = stdout(&run(&directory("pci"), &["sh", "-c", script]));
    let mut lines = shown.lines();
    let path = lines.next().unwrap();
    assert!(path.ends_with("/sys/class/infiniband/ferroce_lo/f0ce:00:00.0"), "{path}");
    let expected = [
        "0xf0ce",
        "0x12b7",
        "0x020000",
        "-1",
        "infiniband_verbs:",
        "uverbs0",
        "",
        "net:",
        "lo",
        "ferroce_lo",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
}

#[test]
fn grandchildren_see_the_devices() {
    let script = "for folder in /sys/class/infiniband/ferroce_l*; do \
                  sh -c \"sh -c 'cat $folder/node_type'; basename $folder\"; done";
    let shown = stdout(&run(&directory("children"), &["sh", "-c", script]));
    assert_eq!(shown, "1: CA\nferroce_lo\n");
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let directory = directory("status");
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/nowhere/nothing"], 127),
        (&["nothing-of-this-name"], 127),
        (&["/etc/passwd"], 126),
    ] {
        assert_eq!(run(&directory, command).status.code(), Some(status), "{command:?}");
    }
    let output = run(&directory, &["nothing-of-this-name"]);
    assert_eq!(text(&output.stderr), "ferroce: nothing-of-this-name: command not found\n");
    assert!(is_empty(&directory));
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let directory = directory("signals");
    for (signal, status) in [("TERM", 3), ("INT", 4), ("HUP", 5), ("USR1", 6)] {
        // The command signals its parent, `ferroce run`, which forwards the signal to it.
        let script = format!(
            "sleep 60 & trap 'kill $!; echo got; exit {status}' {signal}; kill -{signal} $PPID; wait"
        );
        let output = run(&directory, &["sh", "-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), "got\n".into()));
    }
    // A signal that terminates the command.
    let output = run(&directory, &["sh", "-c", "kill -TERM $PPID; read forever </dev/zero"]);
    assert_eq!(output.status.code(), Some(143));
    assert!(is_empty(&directory));
}

#[test]
fn an_unused_view_of_a_killed_run_is_removed_by_the_next() {
    let directory = directory("killed");
    let script = "echo $FERROCE_VIEW $$; kill -KILL $PPID; read line; echo gone";
    let mut child = ferroce(&directory, &["run", "--no-libraries", "sh", "-c", script])
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
    // The shell survives and keeps its view, unless `ferroce run` was killed before it recorded the shell as a user.
    let recorded = Path::new(view).join("users").exists();
    stdout(&run(&directory, &["true"]));
    assert_eq!(Path::new(view).exists(), recorded);
    drop(input);
    output.read_to_string(&mut String::new()).unwrap();
    // Its output is closed; wait until it has exited.
    let file = format!("/proc/{process}/stat");
    while fs::read_to_string(&file).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::yield_now();
    }
    stdout(&run(&directory, &["true"]));
    assert!(is_empty(&directory), "{line}");
}

#[test]
fn the_directory_of_the_view_is_private() {
    let directory = directory("private");
    let mode = stdout(&run(&directory, &["sh", "-c", "stat -c '%a %u' $FERROCE_VIEW"]));
    assert_eq!(mode, format!("700 {}\n", fs::metadata("/proc/self").unwrap().uid()));
}

#[test]
fn variables_are_set_and_printed() {
    let directory = directory("variables");
    let capture = directory.join("packets.pcapng");
    let arguments =
        ["run", "--no-libraries", "--verbose", "--trace", "--device", "lo", "--capture"];
    let output = ferroce(&directory, &arguments)
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
    // The check whether the capture can be written leaves no file.
    assert!(is_empty(&directory));
}

#[test]
fn messaging_libraries_are_configured_unless_the_user_did() {
    let directory = directory("messaging");
    let run = |arguments: &[&str]| {
        let mut command =
            ferroce(&directory, &["run", "--no-libraries", "--verbose", "--device", "lo", "--"]);
        for name in [
            "UCX_IB_PATH_MTU",
            "UCX_RC_VERBS_SEG_SIZE",
            "UCX_RC_VERBS_RX_QUEUE_LEN",
            "UCX_RC_VERBS_TX_BUFS_GROW",
            "UCX_RNDV_THRESH",
            "OMPI_MCA_pml",
            "OMPI_MCA_osc",
            "FERROCE_TOLD",
        ] {
            command.env_remove(name);
        }
        command.args(arguments).env("UCX_TLS", "self").output().unwrap()
    };
    let output = run(&["env"]);
    let agent = format!("env -u FERROCE_DEVICES FERROCE_LIB={}", libraries().display());
    let agent = format!("OMPI_MCA_orte_launch_agent={agent} {FERROCE} run -- orted");
    for line in [
        "UCX_IB_PATH_MTU=4096",
        "UCX_RNDV_THRESH=33k",
        "OMPI_MCA_pml=ucx",
        "OMPI_MCA_osc=ucx,sm",
        &agent,
    ] {
        for shown in [stdout(&output), text(&output.stderr)] {
            assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
        }
    }
    let has = |shown: &str, start: &str| shown.lines().any(|line| line.starts_with(start));
    assert!(has(&stdout(&output), "UCX_TLS=self") && !has(&text(&output.stderr), "UCX_TLS"));
    // UCX warns about variables of transports that it does not use.
    assert!(!has(&stdout(&output), "UCX_RC_"));
    for transports in ["--unset=UCX_TLS", "UCX_TLS=rc_v,ud_v", "UCX_TLS=all", "UCX_TLS=^tcp"] {
        let output = run(&["env", transports, FERROCE, "run", "env"]);
        assert!(has(&stdout(&output), "UCX_RC_VERBS_SEG_SIZE=33k"), "{transports}");
    }
    // A nested run sets the variables of the outer run again, and keeps those that the command set.
    let inner = format!("OMPI_MCA_osc=rdma {FERROCE} run --no-libraries --verbose true");
    let messages = text(&run(&["sh", "-c", &inner]).stderr);
    assert_eq!(
        messages.lines().filter(|line| *line == "OMPI_MCA_pml=ucx").count(),
        2,
        "{messages}"
    );
    assert_eq!(
        messages.lines().filter(|line| line.starts_with("OMPI_MCA_osc=")).count(),
        1,
        "{messages}"
    );
}

#[test]
fn an_unwritable_capture_is_reported_before_the_command_runs() {
    let directory = directory("capture");
    let arguments = ["run", "--no-libraries", "--capture", "/nowhere/x.pcapng", "echo", "ran"];
    let output = ferroce(&directory, &arguments).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0));
    assert!(text(&output.stderr).contains("/nowhere/x.pcapng: cannot write the capture"));
}

#[test]
fn missing_libraries_are_reported_with_the_remedy() {
    let directory = directory("libraries");
    for (arguments, name) in [
        (&["run", "true"][..], "libferroce_view.so"),
        (&["run", "--no-libraries", "true"], "libferroce_view.so"),
        (&["env"], "libferroce_view.so"),
    ] {
        let output =
            ferroce(&directory, arguments).env("FERROCE_LIB", &directory).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        let messages = text(&output.stderr);
        for part in [name, "cargo build --release -p ferroce-capi -p ferroce-view", "FERROCE_LIB"] {
            assert!(messages.contains(part), "{messages}");
        }
    }
    let view = "libferroce_view.so";
    fs::copy(libraries().join(view), directory.join(view)).unwrap();
    let output =
        ferroce(&directory, &["run", "true"]).env("FERROCE_LIB", &directory).output().unwrap();
    assert!(text(&output.stderr).contains("libibverbs.so.1 is not in"));
    let arguments = ["run", "--sockets", "true"];
    let output = ferroce(&directory, &arguments).env("FERROCE_LIB", &directory).output().unwrap();
    assert!(text(&output.stderr).contains("libferroce_sockets.so is not in"));
}

#[test]
fn sockets_are_preloaded_before_the_view() {
    let directory = directory("sockets");
    let script = ["sh", "-c", "echo $LD_PRELOAD"];
    let output = ferroce(&directory, &["run", "--sockets", "--"]).args(script).output().unwrap();
    let preloaded = stdout(&output);
    let names = preloaded.trim_end().split(':').map(|path| path.rsplit('/').next().unwrap());
    assert!(names.eq(["libferroce_sockets.so", "libferroce_view.so"]), "{preloaded}");
}

#[test]
fn libraries_built_by_cargo_are_linked_under_their_sonames() {
    let directory = directory("names with: spaces");
    for name in ["libferroce_view.so", "libferroce_capi.so"] {
        // Any library will do: only its name matters here.
        fs::copy(libraries().join("libferroce_view.so"), directory.join(name)).unwrap();
    }
    let script = "ls $LD_LIBRARY_PATH; cat /sys/class/infiniband/ferroce_lo/node_type";
    let output = ferroce(Path::new("/nowhere"), &["run", "sh", "-c", script])
        .env("FERROCE_LIB", &directory)
        .output()
        .unwrap();
    let shown = stdout(&output);
    for name in ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1", "1: CA"] {
        assert!(shown.lines().any(|line| line == name), "{name}: {shown}");
    }
}

#[test]
fn env_sets_up_a_shell() {
    let directory = directory("env");
    let script = format!(
        "eval \"$({FERROCE} env --no-libraries --device lo)\"; cat /sys/class/infiniband/ferroce_lo/node_type; \
         {FERROCE} run --no-libraries true; ls /sys/class/infiniband; echo $FERROCE_DEVICES"
    );
    for shell in ["sh", "bash"] {
        let output = Command::new("setsid")
            .args(["--wait", shell, "-c", &script])
            .env("FERROCE_LIB", libraries())
            .env("XDG_RUNTIME_DIR", &directory)
            .output()
            .unwrap();
        assert_eq!(stdout(&output), "1: CA\nferroce_lo\nlo\n");
        // The session has ended: the next run removes its view.
        assert!(!is_empty(&directory));
        stdout(&run(&directory, &["true"]));
        assert!(is_empty(&directory));
    }
}

#[test]
fn run_needs_no_privileges() {
    const NOBODY: u32 = 65_534;
    if !is_installed("setpriv") {
        return skip("setpriv is not installed");
    }
    // The user `nobody` may not have access to cargo's target directory.
    let directory = std::env::temp_dir().join(format!("ferroce-test-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(FERROCE, directory.join("ferroce")).unwrap();
    fs::copy(libraries().join("libferroce_view.so"), directory.join("libferroce_view.so")).unwrap();
    let own = directory.join("own");
    fs::create_dir(&own).unwrap();
    // The user namespace of an ordinary user's test has one user, who loses all capabilities instead.
    let (user, without) = match chown(&own, Some(NOBODY), Some(NOBODY)) {
        Ok(()) => (NOBODY, &["--reuid=65534", "--regid=65534", "--clear-groups"][..]),
        Err(_) => {
            let user = fs::metadata("/proc/self").unwrap().uid();
            (user, &["--inh-caps=-all", "--bounding-set=-all", "--securebits=+noroot"][..])
        }
    };
    let script = "id -u; grep CapEff /proc/self/status; cat /sys/class/infiniband/ferroce_lo/node_type; \
                  echo x >/dev/infiniband/uverbs0 && dirname $FERROCE_VIEW";
    let output = Command::new("setpriv")
        .args(without)
        .arg("--no-new-privs")
        .arg(directory.join("ferroce"))
        .args(["run", "--no-libraries", "sh", "-c", script])
        .env("XDG_RUNTIME_DIR", &own)
        .env_remove("FERROCE_LIB")
        .output()
        .unwrap();
    let left = !is_empty(&own);
    fs::remove_dir_all(&directory).unwrap();
    let none = "CapEff:\t0000000000000000";
    assert_eq!(stdout(&output), format!("{user}\n{none}\n1: CA\n{}\n", own.display()));
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

/// `devinfo` says what a program that is started in its place would use.
#[test]
fn wire_forces_sockets() {
    let directory = directory("wire");
    let link = |options: &[&str]| {
        let devinfo = [FERROCE, "devinfo", "--json", "lo"];
        let arguments = [&["run"], options, &["--"], &devinfo].concat();
        let mut command = ferroce(&directory, &arguments);
        let output = command.env_remove("FERROCE_LOCAL").output().unwrap();
        let info: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        info["devices"][0]["local_link"].clone()
    };
    assert_eq!(link(&[]), "memory");
    assert_eq!(link(&["--wire"]), "sockets");
}

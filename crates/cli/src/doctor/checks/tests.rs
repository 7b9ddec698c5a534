//! Every kind of finding, from injected facts.

use std::net::IpAddr;
use std::path::PathBuf;

use super::super::finding::{Finding, Level};
use super::super::program::{Elf, Kind, Library, NATIVE, Origin, Preloaded, Program};
use super::super::system::{
    Carrier, Firewall, Holder, InterfaceFacts, Kernel, Limit, NET_RAW, SocketFacts, System,
};
use super::all;

fn interface(name: &str, mtu: u32, addresses: &[&str]) -> InterfaceFacts {
    InterfaceFacts {
        name: name.into(),
        carrier: Carrier::Up,
        loopback: name == "lo",
        mtu,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

/// A host on which everything is as it should be.
fn healthy() -> System {
    System {
        interfaces: vec![
            interface("lo", 65_536, &["127.0.0.1", "::1"]),
            interface("eth0", 9000, &["192.0.2.1", "fe80::1"]),
        ],
        devices: vec![("ferroce_eth0".into(), "eth0".into())],
        sockets: Some(Ok(SocketFacts {
            gso: true,
            gro: true,
            steering: true,
            marks: true,
            receive_buffer: 16 << 20,
            send_buffer: 8 << 20,
            receive_wanted: 16 << 20,
            send_wanted: 8 << 20,
        })),
        port: super::super::system::PortFacts { firewall: Firewall::Open, ..Default::default() },
        kernel: Kernel {
            user: 1000,
            release: "6.12.0".into(),
            rmem_max: Some(8 << 20),
            wmem_max: Some(4 << 20),
            capabilities: 1 << NET_RAW,
            files: Some(Limit { soft: Some(4096), hard: None }),
            locked: Some(Limit { soft: None, hard: None }),
            first_network: Some(true),
            first_user: Some(true),
        },
        libraries: Some(Ok("/opt/ferroce/lib".into())),
        ..System::default()
    }
}

fn program() -> Program {
    let (machine, is_64) = NATIVE;
    Program {
        name: "ib_write_bw".into(),
        path: Some("/usr/bin/ib_write_bw".into()),
        scripts: Vec::new(),
        kind: Kind::Elf(Elf {
            machine,
            is_64,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            is_dynamic: true,
            needed: vec!["libibverbs.so.1".into()],
            ..Elf::default()
        }),
        set_user: false,
        set_group: false,
        capabilities: false,
        executable: true,
        libraries: vec![library(Origin::Ferroce)],
        preloaded: Vec::new(),
        bundled: Vec::new(),
    }
}

fn library(origin: Origin) -> Library {
    let path = (origin != Origin::NotFound).then(|| PathBuf::from("/opt/x/libibverbs.so.1"));
    Library { name: "libibverbs.so.1".into(), path, origin, by: "/usr/bin/ib_write_bw".into() }
}

fn elf(change: impl FnOnce(&mut Elf)) -> Program {
    let mut program = program();
    if let Kind::Elf(elf) = &mut program.kind {
        change(elf);
    }
    program
}

#[track_caller]
fn find(system: &System, id: &str) -> Finding {
    let all = all(system, None);
    all.iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("{id}: {all:?}")).clone()
}

/// Checks the level of a finding, words in it and in its fix.
#[track_caller]
fn assert_finding(finding: &Finding, level: Level, words: &[&str], fix: &str) {
    assert_eq!(finding.result, level, "{finding:?}");
    for word in words {
        assert!(finding.finding.contains(word), "{word}: {finding:?}");
    }
    match fix {
        "" => {}
        fix => assert!(finding.fix.as_ref().is_some_and(|text| text.contains(fix)), "{finding:?}"),
    }
}

#[track_caller]
fn expect(system: &System, id: &str, level: Level, words: &[&str], fix: &str) {
    assert_finding(&find(system, id), level, words, fix);
}

#[track_caller]
fn expect_of(program: &Program, id: &str, level: Level, words: &[&str], fix: &str) {
    let all = all(&healthy(), Some(program));
    let found = all.iter().find(|finding| finding.id == id && finding.result == level);
    let found = found.unwrap_or_else(|| panic!("{id}: {all:?}"));
    assert_finding(found, level, words, fix);
    assert_eq!(found.subject.as_deref(), Some("ib_write_bw"));
}

#[test]
fn a_healthy_host_has_no_warning() {
    for finding in all(&healthy(), Some(&program())) {
        assert_eq!(finding.result, Level::Ok, "{finding:?}");
    }
}

#[test]
fn every_finding_that_is_not_fine_has_a_fix_and_fits_in_one_line() {
    let mut system = healthy();
    system.devices.clear();
    system.kernel.first_network = Some(false);
    system.kernel.capabilities = 0;
    system.port.firewall = Firewall::Closed;
    system.environment.insert("UCX_TLS".into(), "tcp".into());
    for finding in all(&system, Some(&elf(|elf| elf.is_dynamic = false))) {
        let needs = finding.result >= Level::Warning;
        assert!(!needs || finding.fix.is_some(), "{finding:?}");
        assert!(!finding.finding.contains('\n'), "{finding:?}");
    }
}

#[test]
fn devices() {
    let mut system = healthy();
    expect(&system, "devices.list", Level::Ok, &["1 device", "ferroce_eth0 (192.0.2.1"], "");
    expect(&system, "devices.first", Level::Ok, &["ferroce_eth0", "carrier"], "");
    system
        .interfaces
        .push(InterfaceFacts { carrier: Carrier::Down, ..interface("eth1", 1500, &[]) });
    system.interfaces.push(interface("eth2", 1500, &[]));
    expect(&system, "devices.down", Level::Note, &["eth1"], "ip link set eth1 up");
    expect(&system, "devices.address", Level::Note, &["eth2"], "dev eth2");
    system.interfaces[1].carrier = Carrier::Missing;
    expect(&system, "devices.carrier", Level::Warning, &["eth0"], "cable");
    expect(&system, "devices.first", Level::Warning, &["no interface has a carrier"], "--device");
    system.interfaces[1] = interface("eth0", 1500, &["fe80::1"]);
    expect(&system, "devices.first", Level::Warning, &["link-local"], "ip address add");
    system.devices = vec![("ferroce_lo".into(), "lo".into())];
    expect(&system, "devices.first", Level::Note, &["only programs on this host"], "other hosts");
    system.devices.clear();
    expect(&system, "devices.list", Level::Problem, &["no device"], "ip link set");
    system.device_error = Some("FERROCE_NAME=\"/\" is invalid: x".into());
    expect(&system, "devices.list", Level::Problem, &["FERROCE_NAME"], "");
}

#[test]
fn selected_devices() {
    let mut system = healthy();
    system.environment.insert("FERROCE_DEVICES".into(), "eth0".into());
    expect(&system, "devices.selected", Level::Note, &["FERROCE_DEVICES=eth0"], "");
    expect(&system, "devices.first", Level::Ok, &["FERROCE_DEVICES names it first"], "");
    system.environment.insert("FERROCE_DEVICES".into(), "eth0,eth7".into());
    expect(&system, "devices.selected", Level::Warning, &["eth7"], "unset");
    system.devices.clear();
    expect(&system, "devices.list", Level::Problem, &["FERROCE_DEVICES"], "unset");
}

#[test]
fn mtus() {
    let mut system = healthy();
    expect(&system, "mtu.path", Level::Ok, &["9000", "4096"], "");
    system.interfaces[1].mtu = 1500;
    expect(&system, "mtu.path", Level::Note, &["path MTU 1024", "4 times"], "mtu 4200");
    system.interfaces[1].mtu = 200;
    expect(&system, "mtu.path", Level::Problem, &["200", "too small"], "mtu 1500");
}

fn holder(address: &str, user: u32, process: Option<(u32, &str)>, is_ferroce: bool) -> Holder {
    let process = process.map(|(id, name)| (id, name.to_owned()));
    Holder { address: address.parse::<IpAddr>().unwrap(), user, process, is_ferroce }
}

#[test]
fn the_port_is_taken() {
    let mut system = healthy();
    expect(&system, "port.holders", Level::Ok, &["free"], "");
    let mut with = |holders: Vec<Holder>, rxe: &[&str], loaded: bool| {
        system.port.holders = holders;
        system.port.rxe = rxe.iter().map(|name| (*name).to_owned()).collect();
        system.port.rxe_loaded = loaded;
        find(&system, "port.holders")
    };
    let mine = holder("192.0.2.1", 1000, Some((7, "ib_write_bw")), true);
    assert_finding(&with(vec![mine], &[], false), Level::Ok, &["7 (ib_write_bw)"], "");
    let kernel = || vec![holder("0.0.0.0", 0, None, false)];
    assert_finding(
        &with(kernel(), &["rxe0"], true),
        Level::Problem,
        &["rdma_rxe (rxe0)"],
        "rdma link delete rxe0",
    );
    // In a container the kernel's device is invisible.
    assert_finding(&with(kernel(), &[], true), Level::Problem, &["rdma_rxe"], "rmmod");
    let root = holder("192.0.2.1", 0, None, false);
    assert_finding(
        &with(vec![root], &[], false),
        Level::Problem,
        &["user 0", "one user"],
        "run as",
    );
    let stranger = holder("::", 1000, Some((8, "nc")), false);
    assert_finding(&with(vec![stranger], &[], false), Level::Problem, &["8 (nc)"], "end that");
    // At an address that is none of ours.
    let elsewhere = holder("198.51.100.9", 0, None, false);
    assert_finding(&with(vec![elsewhere], &[], false), Level::Ok, &["free"], "");
    expect(&system, "port.holders", Level::Ok, &[], "");
}

#[test]
fn rxe_without_a_conflict_is_a_note() {
    let mut system = healthy();
    system.port.rxe_loaded = true;
    expect(&system, "port.rxe", Level::Note, &["without a device"], "namespaces");
    system.port.rxe = vec!["rxe0".into()];
    expect(&system, "port.rxe", Level::Note, &["rxe0"], "");
}

#[test]
fn firewalls() {
    let mut system = healthy();
    for (firewall, level, word, fix) in [
        (Firewall::Open, Level::Ok, "no rule", ""),
        (Firewall::Mentioned, Level::Ok, "4791", ""),
        (Firewall::Closed, Level::Warning, "drops", "udp dport 4791"),
        (Firewall::Managed(vec!["ufw"]), Level::Warning, "ufw", "ufw allow 4791/udp"),
        (Firewall::Managed(vec!["firewalld"]), Level::Warning, "firewalld", "--add-port=4791/udp"),
        (Firewall::Unknown, Level::Note, "not checked", "nft list ruleset"),
        (Firewall::NoTool, Level::Note, "not checked", "install nftables"),
    ] {
        system.port.firewall = firewall;
        expect(&system, "port.firewall", level, &[word], fix);
    }
}

#[test]
fn sockets() {
    let mut system = healthy();
    let facts = system.sockets.clone().unwrap().unwrap();
    system.kernel.rmem_max = Some(212_992);
    system.sockets = Some(Ok(SocketFacts {
        receive_buffer: 425_984,
        send_buffer: 425_984,
        gso: false,
        gro: false,
        steering: false,
        marks: false,
        ..facts
    }));
    let words = ["208 KiB of 8 MiB", "rmem_max=212992"];
    expect(&system, "buffers.receive", Level::Warning, &words, "net.core.rmem_max=8388608");
    expect(&system, "buffers.send", Level::Warning, &["208 KiB of 4 MiB"], "wmem_max=4194304");
    expect(&system, "offload.gso", Level::Warning, &["6.12.0", "slower"], "4.18");
    for id in ["offload.gro", "offload.steering", "offload.ecn"] {
        expect(&system, id, Level::Warning, &["does not allow"], "Linux");
    }
    system.sockets = Some(Err("not permitted".into()));
    expect(&system, "sockets.open", Level::Problem, &["not permitted"], "seccomp");
}

#[test]
fn namespaces_memory_and_rights() {
    let mut system = healthy();
    system.kernel.first_network = Some(false);
    system.kernel.first_user = Some(false);
    expect(&system, "namespaces.network", Level::Note, &["of its own"], "--network host");
    expect(&system, "namespaces.user", Level::Note, &["user namespace"], "");
    system.kernel.first_network = None;
    expect(&system, "namespaces.network", Level::Note, &["not checkable"], "");
    system.sharing_error = Some("memfd_create: EPERM".into());
    expect(&system, "sharing.memory", Level::Warning, &["EPERM"], "seccomp");
    system.environment.insert("FERROCE_LOCAL".into(), "sockets".into());
    expect(&system, "sharing.memory", Level::Note, &["FERROCE_LOCAL"], "unset");
    system.kernel.capabilities = 0;
    expect(&system, "capture.rights", Level::Note, &["CAP_NET_RAW"], "tcpdump");
}

#[test]
fn limits() {
    let mut system = healthy();
    system.kernel.files = Some(Limit { soft: Some(256), hard: Some(512) });
    expect(&system, "limits.files", Level::Warning, &["256", "512"], "ulimit -n");
    system.kernel.files = Some(Limit { soft: None, hard: None });
    expect(&system, "limits.files", Level::Ok, &["any number"], "");
    system.kernel.locked = Some(Limit { soft: Some(65_536), hard: None });
    expect(&system, "limits.memlock", Level::Note, &["64 KiB", "locks none"], "memlock=-1");
    system.kernel.locked = Some(Limit { soft: Some(8 << 20), hard: None });
    expect(&system, "limits.memlock", Level::Ok, &["8 MiB"], "");
}

#[test]
fn variables_of_ferroce() {
    let mut system = healthy();
    for (name, value) in
        [("FERROCE_FAULTS", "loss=1%"), ("FERROCE_CAPTURE", "x.pcapng"), ("FERROCE_CAPUTRE", "y")]
    {
        system.environment.insert(name.into(), value.into());
    }
    system.environment.insert("FERROCE_TEST_NETWORK".into(), "machine".into());
    expect(&system, "environment.faults", Level::Warning, &["loss=1%"], "unset");
    expect(&system, "environment.capture", Level::Note, &["x.pcapng"], "measure");
    expect(&system, "environment.unknown", Level::Warning, &["FERROCE_CAPUTRE"], "correct");
    system.libraries = Some(Err("libferroce_view.so is not in /x: build it with 'cargo'".into()));
    expect(&system, "libraries.found", Level::Warning, &["libferroce_view.so"], "build it");
    let with_program = all(&system, Some(&program()));
    let found = with_program.iter().find(|finding| finding.id == "libraries.found").unwrap();
    assert_finding(found, Level::Problem, &["libferroce_view.so"], "build it");
}

#[test]
fn messaging_libraries() {
    let check = |name: &str, value: &str, id: &str, level| {
        let mut system = healthy();
        system.environment.insert(name.into(), value.into());
        let finding = find(&system, id);
        assert_eq!(finding.result, level, "{name}={value}: {finding:?}");
        assert_eq!(finding.subject.as_deref(), Some(name));
    };
    use Level::{Note, Warning};
    for (value, level) in [
        ("tcp,self", Warning),
        ("sm", Warning),
        ("rc_mlx5", Warning),
        ("^ib", Warning),
        ("all", Note),
        ("rc,self", Note),
        ("^tcp", Note),
    ] {
        check("UCX_TLS", value, "messaging.ucx_tls", level);
    }
    check("UCX_NET_DEVICES", "mlx5_0:1", "messaging.ucx_devices", Warning);
    check("UCX_NET_DEVICES", "eth0", "messaging.ucx_devices", Warning);
    check("UCX_NET_DEVICES", "ferroce_eth0:1", "messaging.ucx_devices", Note);
    check("FI_PROVIDER", "tcp", "messaging.libfabric", Warning);
    check("FI_PROVIDER", "^verbs", "messaging.libfabric", Warning);
    check("FI_PROVIDER", "verbs;ofi_rxm", "messaging.libfabric", Note);
    check("OMPI_MCA_pml", "ob1", "messaging.openmpi_pml", Warning);
    check("OMPI_MCA_pml", "^ucx", "messaging.openmpi_pml", Warning);
    check("OMPI_MCA_pml", "ucx", "messaging.openmpi_pml", Note);
    check("OMPI_MCA_osc", "rdma", "messaging.openmpi_osc", Warning);
    check("OMPI_MCA_btl", "tcp,self", "messaging.openmpi_btl", Warning);
    check("NCCL_IB_DISABLE", "1", "messaging.nccl_disabled", Warning);
    check("NCCL_IB_HCA", "mlx5", "messaging.nccl_device", Warning);
    check("NCCL_NET", "Socket", "messaging.nccl_net", Warning);
    // Set by an outer `ferroce run`.
    let mut system = healthy();
    system.environment.insert("UCX_TLS".into(), "rc_verbs".into());
    system.environment.insert("FERROCE_TOLD".into(), "UCX_TLS=rc_verbs".into());
    expect(&system, "messaging.variables", Level::Ok, &["no variable"], "");
}

#[test]
fn program_files() {
    use Level::{Ok, Problem};
    let missing = Program { path: None, kind: Kind::Other, ..program() };
    expect_of(&missing, "program.file", Problem, &["not found"], "PATH");
    let other = Program { kind: Kind::Other, ..program() };
    expect_of(&other, "program.file", Problem, &["neither an ELF"], "sh FILE");
    let unreadable = Program { kind: Kind::Unreadable("denied".into()), ..program() };
    expect_of(&unreadable, "program.file", Problem, &["denied"], "permissions");
    let plain = Program { executable: false, ..program() };
    expect_of(&plain, "program.file", Problem, &["not executable"], "chmod +x");
    let script = Program { scripts: vec!["/usr/bin/x.py".into()], ..program() };
    expect_of(&script, "program.file", Ok, &["/usr/bin/x.py is a script for"], "");
    let orphan = Program { path: None, kind: Kind::Other, ..script };
    expect_of(&orphan, "program.file", Problem, &["interpreter does not exist"], "install");
}

#[test]
fn programs_out_of_reach() {
    use Level::Problem;
    let fixed = elf(|elf| (elf.is_dynamic, elf.interpreter) = (false, None));
    expect_of(&fixed, "program.static", Problem, &["statically linked"], "-libverbs");
    let pie = elf(|elf| elf.interpreter = None);
    expect_of(&pie, "program.static", Problem, &["static-pie"], "");
    let narrow = elf(|elf| (elf.machine, elf.is_64) = (3, false));
    expect_of(&narrow, "program.architecture", Problem, &["x86 (32 bits)"], "build");
    let setuid = Program { set_user: true, ..program() };
    expect_of(&setuid, "program.privileged", Problem, &["set-user-ID"], "cp ");
    let both = Program { set_group: true, capabilities: true, ..program() };
    let words = ["set-group-ID and file capabilities"];
    expect_of(&both, "program.privileged", Problem, &words, "");
}

#[test]
fn program_libraries() {
    use Level::{Note, Ok, Problem, Warning};
    expect_of(&program(), "program.verbs", Ok, &["from Ferroce"], "");
    let with = |origin| Program { libraries: vec![library(origin)], ..program() };
    expect_of(&with(Origin::Rpath), "program.rpath", Warning, &["DT_RPATH"], "patchelf");
    expect_of(&with(Origin::Direct), "program.rpath", Warning, &["by its path"], "patchelf");
    expect_of(&with(Origin::System), "program.verbs", Warning, &["/opt/x"], "libraries.found");
    expect_of(&with(Origin::NotFound), "program.missing", Problem, &["not found"], "install");
    let none = Program { libraries: Vec::new(), ..program() };
    expect_of(&none, "program.verbs", Note, &["not linked with libibverbs"], "--sockets");
    let bundled = Program { bundled: vec!["/x/libibverbs-1de1263b.so.1".into()], ..none };
    expect_of(&bundled, "program.bundled", Note, &["libibverbs-1de1263b"], "ferroce run");
    let own = elf(|elf| elf.defines_verbs = true);
    expect_of(&own, "program.own_verbs", Warning, &["contains libibverbs itself"], "-libverbs");
}

#[test]
fn preloaded_libraries() {
    use Level::{Note, Problem, Warning};
    let with = |path: &str, elf: Option<Elf>| {
        let preloaded = vec![Preloaded { path: path.into(), elf }];
        Program { preloaded, ..program() }
    };
    let verbs = Elf { defines_verbs: true, ..Elf::default() };
    let vma = with("/usr/lib/libvma.so", Some(Elf::default()));
    expect_of(
        &with("/x/libibverbs.so.1", Some(verbs)),
        "program.preload",
        Problem,
        &["before Ferroce's"],
        "unset",
    );
    expect_of(&vma, "program.preload", Warning, &["libvma"], "--sockets");
    expect_of(
        &with("/nonexistent.so", None),
        "program.preload",
        Note,
        &["cannot be read"],
        "correct",
    );
    let harmless = with("/usr/lib/libjemalloc.so.2", Some(Elf::default()));
    let ids: Vec<_> = all(&healthy(), Some(&harmless)).iter().map(|finding| finding.id).collect();
    assert!(!ids.contains(&"program.preload"), "{ids:?}");
}

//! Transfer engines for machine learning from PyPI, which `scripts/wheels` downloads: NIXL, whose wheel bundles a
//! libibverbs and a UCX, and Mooncake. `tests/wheels` has the scripts, with two processes each.

mod full {
    use std::path::Path;
    use std::process::Command;

    use ferroce_test_support::{built, skip};
    use ferroce_tests::tool;

    use crate::hosts::{ferroce, plain};

    /// Many messages of the engine, and not a multiple of any block size.
    const BYTES: &str = "20000003";

    fn run(package: &str, script: &str, arguments: &[&str]) {
        let target = built::folder().parent().expect("it is in the target folder");
        let wheel = target.join("wheels").join(package);
        if !wheel.join(".packages").is_file() {
            return skip(format_args!("{package} is not there: run scripts/wheels"));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("wheels").join(script);
        let mut command = Command::new(ferroce());
        plain(&mut command);
        // InfiniBand transports only: UCX would prefer shared memory.
        command.env("PYTHONPATH", wheel).env("UCX_TLS", "ib");
        command.args(["run", "--", "python3"]).arg(script).arg(BYTES).args(arguments);
        let said = String::from_utf8_lossy(&tool::run(&mut command)).into_owned();
        let expected = format!("{BYTES} bytes written and read, all of them right");
        assert!(said.lines().any(|line| line == expected), "{said}");
    }

    /// The recipe of docs/kv-cache.md: the same transfer by RDMA and by the engine's own TCP.
    fn kv_cache(engine: &str) {
        let target = built::folder().parent().expect("it is in the target folder");
        let wheels = ["nixl", "mooncake"].map(|name| target.join("wheels").join(name));
        if !wheels.iter().all(|wheel| wheel.join(".packages").is_file()) {
            return skip("the wheels are not there: run scripts/wheels");
        }
        // numpy comes with the first.
        let path = std::env::join_paths(&wheels).expect("paths without a colon");
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let script = examples.join("kv-cache/kv_cache.py");
        for transport in ["rdma", "tcp"] {
            let mut command = Command::new(ferroce());
            plain(&mut command);
            command.env("PYTHONPATH", &path).args(["run", "--", "python3"]).arg(&script);
            let said = tool::run(command.args([engine, transport, "4", "512"]));
            let said = String::from_utf8_lossy(&said).into_owned();
            let expected = "4 layers in 128 blocks, 8388608 bytes, all of them right: ";
            assert!(said.lines().any(|line| line.starts_with(expected)), "{transport}: {said}");
        }
    }

    #[test]
    fn kv_cache_with_nixl() {
        kv_cache("nixl");
    }

    #[test]
    fn kv_cache_with_mooncake() {
        kv_cache("mooncake");
    }

    #[test]
    fn nixl() {
        run("nixl", "nixl_pair.py", &[]);
    }

    #[test]
    fn mooncake() {
        run("mooncake", "mooncake_pair.py", &["127.0.0.1"]);
    }
}

//! The command as one file: it needs nothing of the system that it is copied to.

mod full {
    use std::fs;
    use std::process::Command;

    use ferroce_test_support::{built, find_program, skip};
    use ferroce_tests::tool;

    use crate::{root, scratch};

    /// In a root directory with only this file and a capture, it prints what the command prints here.
    #[test]
    fn the_analyser_runs_without_any_library() {
        let target = built::folder().parent().expect("the target folder");
        let file = target.join("static/ferroce");
        if !file.exists() {
            skip("target/static/ferroce does not exist: run `make static`");
            return;
        }
        if find_program("readelf").is_some() {
            let mut readelf = Command::new("readelf");
            let said = tool::run(readelf.args(["--program-headers", "--dynamic"]).arg(&file));
            let said = String::from_utf8_lossy(&said);
            assert!(!said.contains("INTERP") && !said.contains("NEEDED"), "{said}");
        }
        let folder = scratch("static");
        fs::copy(&file, folder.join("ferroce")).expect("a copy");
        let capture = root().join("tests/data/rxe/atomic.pcap");
        fs::copy(capture, folder.join("capture.pcap")).expect("a copy");
        let mut inside = Command::new("unshare");
        inside.args(["--map-root-user", "chroot"]).arg(&folder);
        inside.args(["/ferroce", "analyze", "--json", "/capture.pcap"]);
        let mut here = Command::new(built::folder().join("ferroce"));
        here.args(["analyze", "--json"]).arg(folder.join("capture.pcap"));
        let [inside, here] = [&mut inside, &mut here].map(|command| {
            let mut said: serde_json::Value =
                serde_json::from_slice(&tool::run(command)).expect("JSON");
            said["files"][0]["path"] = serde_json::Value::Null;
            said
        });
        assert_eq!(inside, here);
        assert_eq!(here["files"][0]["icrc"]["bad"], 0, "{here}");
    }
}

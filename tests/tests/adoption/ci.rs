//! The CI jobs: all of their commands but those of apt-get are executed as they are. The project under test is
//! `examples/c`, and the repository from which Ferroce is cloned has the Makefile of this one, which installs what is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_test_support::built;
use ferroce_tests::tool;
use serde_json::Value;

use crate::{root, scratch, strings, yaml};

/// A project to test, and a home directory.
struct Job {
    project: PathBuf,
    variables: Vec<(String, String)>,
}

impl Job {
    fn new(name: &str, variables: &Value) -> Self {
        let folder = scratch(name);
        let [project, home, source] = ["project", "home", "source"].map(|part| folder.join(part));
        for part in [&project, &home, &source] {
            fs::create_dir_all(part).expect("a folder");
        }
        for file in ["Makefile", "check", "verbs_write_read.c", "cm_write_send.c"] {
            fs::copy(root().join("examples/c").join(file), project.join(file)).expect("a file");
        }
        fs::copy(root().join("Makefile"), source.join("Makefile")).expect("a file");
        let mut job = Self { project, variables: Vec::new() };
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        for (name, value) in variables.as_object().expect("variables") {
            job.variables.push((name.clone(), text(value)));
        }
        // The later of two counts.
        let address = format!("file://{}", source.display());
        job.variables.push(("SOURCE".into(), address));
        job.variables.push(("HOME".into(), home.display().to_string()));
        job.variables.push(("BUILT".into(), built::folder().display().to_string()));
        let who = "-c user.name=test -c user.email=test@example.com";
        job.run(
            "-e",
            &format!(
                "cd {}\n git init --quiet -b main\n git add Makefile\n git {who} commit --quiet -m test",
                source.display()
            ),
        );
        job
    }

    /// Executes commands as the job does, with bash and its options.
    fn run(&self, options: &str, commands: &str) -> String {
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).args(options.split(' ')).args(["-c", commands]);
        bash.current_dir(&self.project).env("GIT_CONFIG_NOSYSTEM", "1");
        for name in ["MAKEFLAGS", "MAKELEVEL", "DESTDIR", "CARGO_TARGET_DIR", "FERROCE_TEST_BUILT"]
        {
            bash.env_remove(name);
        }
        bash.envs(self.variables.iter().map(|(name, value)| (name, value)));
        String::from_utf8_lossy(&tool::run(&mut bash)).into_owned()
    }

    /// Checks what the job leaves for its artifact: captures, their analysis, and a page.
    fn check(&self, artifact: &str, said: &str) {
        assert_eq!(
            said.matches("the client has written 16384 bytes, all correct").count(),
            2,
            "{said}"
        );
        let folder = self.project.join(artifact);
        let files = fs::read_dir(&folder).expect("the artifact").flatten();
        let is_capture = |path: &Path| path.extension().is_some_and(|end| end == "pcapng");
        // Server and client of two programs.
        assert_eq!(files.filter(|file| is_capture(&file.path())).count(), 4);
        let analysis = fs::read_to_string(folder.join("analysis.txt")).expect("the analysis");
        // One for each capture. What it says depends on the host: a busy one retransmits.
        assert_eq!(analysis.matches("\nDiagnosis\n").count(), 4, "{analysis}");
        assert!(fs::metadata(folder.join("report.html")).expect("the page").len() > 0);
    }
}

#[test]
fn github_actions() {
    let Some(documents) = yaml("ci/github-actions.yml") else { return };
    let workflow = &documents[0];
    let job = Job::new("github", &workflow["env"]);
    let steps = workflow["jobs"]["rdma"]["steps"].as_array().expect("steps");
    let commands = steps.iter().filter_map(|step| step["run"].as_str());
    let (apt, commands): (Vec<_>, Vec<_>) = commands.partition(|text| text.contains("apt-get"));
    assert_eq!((apt.len(), commands.len()), (1, 4));
    let said: String = commands.iter().map(|commands| job.run("-e", commands)).collect();
    let upload = steps.iter().find(|step| {
        step["uses"].as_str().is_some_and(|action| action.starts_with("actions/upload-artifact@"))
    });
    job.check(upload.expect("an upload")["with"]["path"].as_str().expect("a path"), &said);
    // What is cached is what later steps use.
    let cache = steps.iter().find(|step| step["id"] == "cache").expect("a cache");
    let cached = cache["with"]["path"].as_str().expect("a path").replace("~", "$HOME");
    assert_eq!(job.run("-e", &format!("test -x {cached}/bin/ferroce && echo there")), "there\n");
}

#[test]
fn gitlab() {
    let Some(documents) = yaml("ci/gitlab-ci.yml") else { return };
    let rdma = &documents[0]["rdma"];
    let job = Job::new("gitlab", &rdma["variables"]);
    assert!(strings(&rdma["before_script"]).iter().all(|line| line.starts_with("apt-get ")));
    let run = |name: &str| job.run("-e -o pipefail", &strings(&rdma[name]).join("\n"));
    let said = run("script");
    run("after_script");
    job.check(&strings(&rdma["artifacts"]["paths"])[0], &said);
    let cached = &strings(&rdma["cache"]["paths"])[0];
    assert!(job.project.join(cached).join("bin/ferroce").is_file());
}

//! Whether `ferroce run` reaches a program.

use crate::doctor::finding::Finding;
use crate::doctor::program::{Elf, Kind, Library, Origin, Preloaded, Program};

/// Libraries that replace the socket or verbs calls of a program.
const INTERPOSERS: [&str; 3] = ["libvma", "libxlio", "libsdp"];

/// `user` is the effective user ID.
pub(in crate::doctor) fn check(user: u32, program: &Program) -> Vec<Finding> {
    let mut findings = file(program);
    if let Kind::Elf(elf) = &program.kind {
        findings.extend(architecture(program, elf));
        findings.extend(linkage(program, elf));
        findings.extend(privileges(program, user));
        if elf.is_dynamic && elf.is_native() {
            findings.extend(verbs(program, elf));
        }
    }
    findings.extend(preloaded(program));
    findings.into_iter().map(|finding| finding.about(program.name.as_str())).collect()
}

fn path(program: &Program) -> String {
    program.path.as_ref().map_or_else(|| program.name.clone(), |path| path.display().to_string())
}

fn file(program: &Program) -> Vec<Finding> {
    const ID: &str = "program.file";
    let Some(script) = program.scripts.last() else {
        return vec![match (&program.path, &program.kind) {
            (None, _) => Finding::problem(ID, format!("{}: command not found", program.name))
                .fix("give the path of the program, or add its folder to PATH"),
            (_, Kind::Unreadable(error)) => {
                Finding::problem(ID, format!("{} cannot be read: {error}", path(program))).fix(
                    "check the permissions of the file; what is not readable cannot be checked",
                )
            }
            (_, Kind::Other) => Finding::problem(
                ID,
                format!("{} is neither an ELF program nor a script with a #! line", path(program)),
            )
            .fix("name the program that executes it, for example `ferroce run -- sh FILE`"),
            (Some(_), Kind::Elf(_)) if !program.executable => {
                Finding::problem(ID, format!("{} is not executable", path(program)))
                    .fix(format!("`chmod +x {}`", path(program)))
            }
            _ => Finding::ok(ID, format!("{} is an ELF program", path(program))),
        }];
    };
    let script = script.display();
    vec![match (&program.path, &program.kind) {
        (None, _) => {
            Finding::problem(ID, format!("{script} is a script whose interpreter does not exist"))
                .fix("install the interpreter that its first line names, or correct the line")
        }
        (_, Kind::Elf(_)) => Finding::ok(
            ID,
            format!("{script} is a script for {}, which is checked here", path(program)),
        ),
        _ => Finding::problem(
            ID,
            format!("{script} is a script for {}, which is not an ELF program", path(program)),
        )
        .fix("correct the first line of the script"),
    }]
}

fn architecture(program: &Program, elf: &Elf) -> Option<Finding> {
    (!elf.is_native()).then(|| {
        Finding::problem("program.architecture", format!("{} is a program for {}, and Ferroce's libraries are for {}: the dynamic linker ignores them", path(program), elf.architecture(), std::env::consts::ARCH))
            .fix(format!("build the program for {}", std::env::consts::ARCH))
    })
}

fn linkage(program: &Program, elf: &Elf) -> Option<Finding> {
    if elf.is_dynamic && elf.interpreter.is_some() {
        return None;
    }
    let what =
        if elf.is_dynamic { "has no dynamic linker (static-pie)" } else { "is statically linked" };
    Some(
        Finding::problem(
            "program.static",
            format!("{} {what}: `ferroce run` cannot give it other libraries", path(program)),
        )
        .fix("link it dynamically: without -static, with -libverbs; for Go, with cgo"),
    )
}

fn privileges(program: &Program, user: u32) -> Option<Finding> {
    let named = [
        (program.set_user, "set-user-ID"),
        (program.set_group, "set-group-ID"),
        // root has the capabilities anyway, so the linker does not treat the program as privileged.
        (program.capabilities && user != 0, "file capabilities"),
    ];
    let named: Vec<_> = named.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    (!named.is_empty()).then(|| {
        Finding::problem("program.privileged", format!("{} has {}: the dynamic linker ignores LD_PRELOAD and LD_LIBRARY_PATH for it", path(program), named.join(" and ")))
            .fix(format!("run a copy without privileges: `cp {} /tmp` (a copy has neither the bits nor the capabilities)", path(program)))
    })
}

/// Which libibverbs the program uses.
fn verbs(program: &Program, elf: &Elf) -> Vec<Finding> {
    let is = |library: &&Library, name: &str| library.name == name;
    let mut findings = Vec::new();
    if elf.defines_verbs {
        findings.push(
            Finding::warning(
                "program.own_verbs",
                format!(
                    "{} contains libibverbs itself: calls within it do not reach Ferroce",
                    path(program)
                ),
            )
            .fix("link it with the shared libibverbs (-libverbs) instead of libibverbs.a"),
        );
    }
    let missing: Vec<_> = program
        .libraries
        .iter()
        .filter(|library| library.origin == Origin::NotFound)
        .map(|library| library.name.as_str())
        .collect();
    if !missing.is_empty() {
        findings.push(
            Finding::problem(
                "program.missing",
                format!("{} needs {}, which is not found", path(program), missing.join(", ")),
            )
            .fix("install the package that contains it, or add its folder to LD_LIBRARY_PATH"),
        );
    }
    let names = ["libibverbs.so.1", "librdmacm.so.1"];
    let found: Vec<_> = names
        .iter()
        .filter_map(|name| program.libraries.iter().find(|library| is(library, name)))
        .collect();
    for library in &found {
        findings.push(origin(library));
    }
    if !program.bundled.is_empty() {
        let names: Vec<_> = program.bundled.iter().map(|path| path.display().to_string()).collect();
        findings.push(
            Finding::note("program.bundled", format!("{} brings its own copy of libibverbs: {}; `ferroce run` redirects its calls to Ferroce by preloading", program.name, names.join(", ")))
                .fix("use `ferroce run`, not LD_LIBRARY_PATH alone; functions looked up with dlsym in that copy, and its rsockets, are not redirected"),
        );
    }
    if found.is_empty() && program.bundled.is_empty() && !elf.defines_verbs {
        findings.push(
            Finding::note("program.verbs", format!("{} is not linked with libibverbs or librdmacm, directly or through its libraries", path(program)))
                .fix("nothing to do if it opens them when it runs (UCX, Open MPI, Python); for a program that uses TCP, `ferroce run --sockets`"),
        );
    }
    findings
}

fn origin(library: &Library) -> Finding {
    const ID: &str = "program.verbs";
    let file = library.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let (name, by) = (&library.name, library.by.display());
    match library.origin {
        Origin::Ferroce => Finding::ok(ID, format!("{name} is loaded from Ferroce: {file}")),
        Origin::Rpath => Finding::warning("program.rpath", format!("{name} is loaded from {file}, because the DT_RPATH of {by} is searched before LD_LIBRARY_PATH; `ferroce run` redirects its ibv_ and rdma_ functions by preloading, but not rsockets and functions looked up with dlsym"))
            .fix(format!("if devices are missing in the program: `patchelf --remove-rpath {by}`, or link with --enable-new-dtags")),
        Origin::Direct => Finding::warning("program.rpath", format!("{name} is named by its path in {by}, so LD_LIBRARY_PATH does not apply; `ferroce run` redirects its ibv_ and rdma_ functions by preloading"))
            .fix(format!("`patchelf --replace-needed {name} libibverbs.so.1 {by}`")),
        _ => Finding::warning(ID, format!("{name} is loaded from {file}: Ferroce's libraries were not found"))
            .fix("see the finding libraries.found"),
    }
}

fn preloaded(program: &Program) -> Vec<Finding> {
    const ID: &str = "program.preload";
    let of = |entry: &Preloaded| {
        let name = entry.path.rsplit('/').next().unwrap_or(&entry.path);
        let Some(elf) = &entry.elf else {
            return entry.path.contains('/').then(|| {
                Finding::note(ID, format!("LD_PRELOAD names {}, which cannot be read: the linker warns and goes on without it", entry.path))
                    .fix("correct or unset LD_PRELOAD")
            });
        };
        if elf.defines_verbs {
            return Some(
                Finding::problem(ID, format!("LD_PRELOAD names {}, which defines the functions of libibverbs: it comes before Ferroce's and replaces it", entry.path))
                    .fix("unset LD_PRELOAD, or remove this entry"),
            );
        }
        INTERPOSERS.iter().any(|known| name.starts_with(known)).then(|| {
            Finding::warning(ID, format!("LD_PRELOAD names {}, which replaces the socket calls of the program before Ferroce sees them", entry.path))
                .fix("remove it from LD_PRELOAD, unless you want both; `ferroce run --sockets` carries TCP over RDMA without it")
        })
    };
    program.preloaded.iter().filter_map(of).collect()
}

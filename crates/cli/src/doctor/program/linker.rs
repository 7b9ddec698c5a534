//! Which files the dynamic linker loads (ld.so(8)): for each library DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, the folders
//! of /etc/ld.so.conf, and the standard ones, in this order.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::contents;
use super::elf::Elf;

/// Libraries that are followed.
const MAX_LIBRARIES: usize = 512;

/// What led to the file of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum Origin {
    /// DT_RPATH, which is searched before LD_LIBRARY_PATH.
    Rpath,
    /// Ferroce's folder, which `ferroce run` puts first in LD_LIBRARY_PATH.
    Ferroce,
    /// Another folder of LD_LIBRARY_PATH.
    LibraryPath,
    Runpath,
    /// The system's folders.
    System,
    /// A path in DT_NEEDED.
    Direct,
    NotFound,
}

/// A library that a program loads at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Library {
    pub(in crate::doctor) name: String,
    pub(in crate::doctor) path: Option<PathBuf>,
    pub(in crate::doctor) origin: Origin,
    /// The file that needs it.
    pub(in crate::doctor) by: PathBuf,
}

/// The folders to search.
pub(super) struct Paths {
    ferroce: Option<PathBuf>,
    library_path: Vec<PathBuf>,
    system: Vec<PathBuf>,
}

impl Paths {
    pub(super) fn new(environment: &BTreeMap<String, String>, folder: Option<&str>) -> Self {
        let list = environment.get("LD_LIBRARY_PATH").cloned().unwrap_or_default();
        let mut system = Vec::new();
        configured(Path::new("/etc/ld.so.conf"), &mut system, 0);
        let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
        for parent in ["/lib", "/usr/lib"] {
            system.push(Path::new(parent).join(&triple));
        }
        system.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
        Self {
            ferroce: folder.map(PathBuf::from),
            library_path: split(&list, Path::new("/")),
            system,
        }
    }
}

/// The folders of /etc/ld.so.conf and the files it includes.
fn configured(file: &Path, folders: &mut Vec<PathBuf>, depth: usize) {
    let Ok(text) = fs::read_to_string(file) else { return };
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        match line.strip_prefix("include ") {
            Some(pattern) if depth < 4 => {
                let pattern = Path::new(pattern.trim());
                let parent = pattern.parent().unwrap_or(Path::new("/etc"));
                let mut files: Vec<_> = fs::read_dir(parent)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
                    .collect();
                files.sort();
                files.iter().for_each(|file| configured(file, folders, depth + 1));
            }
            Some(_) => {}
            None if line.is_empty() => {}
            None => folders.push(PathBuf::from(line)),
        }
    }
}

/// The entries of a search path of an object in this folder.
fn split(list: &str, folder: &Path) -> Vec<PathBuf> {
    let origin = folder.to_string_lossy();
    let entries = list.split([':', ';']).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| entry.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
        .map(PathBuf::from)
        .collect()
}

/// An object whose libraries are to be found.
struct Object {
    path: PathBuf,
    elf: Elf,
    /// The DT_RPATH of the objects that loaded it.
    inherited: Vec<PathBuf>,
}

/// Finds all libraries that a program loads at start.
pub(super) fn resolve(program: &Path, elf: &Elf, paths: &Paths) -> Vec<Library> {
    let mut queue = VecDeque::from([Object {
        path: program.to_owned(),
        elf: elf.clone(),
        inherited: Vec::new(),
    }]);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    while let Some(object) = queue.pop_front() {
        let resolved = fs::canonicalize(&object.path).unwrap_or_else(|_| object.path.clone());
        let folder = resolved.parent().unwrap_or(Path::new("/"));
        let runpath = object.elf.runpath.as_deref().map(|list| split(list, folder));
        // DT_RPATH is ignored beside DT_RUNPATH.
        let mut rpath = Vec::new();
        if runpath.is_none() {
            rpath = object.elf.rpath.as_deref().map_or(Vec::new(), |list| split(list, folder));
            rpath.extend(object.inherited.clone());
        }
        for name in &object.elf.needed {
            if found.len() >= MAX_LIBRARIES || !seen.insert(name.clone()) {
                continue;
            }
            let (path, origin) = search(name, &rpath, runpath.as_deref(), paths, elf);
            let parsed = path.as_deref().and_then(|path| Elf::parse(&contents(path).ok()?));
            found.push(Library {
                name: name.clone(),
                path: path.clone(),
                origin,
                by: object.path.clone(),
            });
            // Ferroce's own library needs nothing that matters here.
            if let (Some(path), Some(elf), false) = (path, parsed, origin == Origin::Ferroce) {
                queue.push_back(Object { path, elf, inherited: rpath.clone() });
            }
        }
    }
    found
}

fn search(
    name: &str,
    rpath: &[PathBuf],
    runpath: Option<&[PathBuf]>,
    paths: &Paths,
    program: &Elf,
) -> (Option<PathBuf>, Origin) {
    if name.contains('/') {
        return (Some(name.into()), Origin::Direct);
    }
    let fits = |path: &PathBuf| {
        // The linker skips files of another architecture.
        contents(path)
            .ok()
            .and_then(|bytes| Elf::parse(&bytes))
            .is_some_and(|elf| (elf.machine, elf.is_64) == (program.machine, program.is_64))
    };
    let among = |folders: &[PathBuf]| folders.iter().map(|folder| folder.join(name)).find(fits);
    if let Some(path) = among(rpath) {
        return (Some(path), Origin::Rpath);
    }
    // `ferroce run` makes links with these names if the libraries were built and not installed.
    const OURS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];
    if let Some(folder) = paths.ferroce.as_ref().filter(|_| OURS.contains(&name)) {
        let installed = Some(folder.join(name)).filter(|path| path.is_file());
        let path = installed.unwrap_or_else(|| folder.join("libferroce_capi.so"));
        return (Some(path), Origin::Ferroce);
    }
    let rest = [
        (paths.library_path.as_slice(), Origin::LibraryPath),
        (runpath.unwrap_or_default(), Origin::Runpath),
        (paths.system.as_slice(), Origin::System),
    ];
    rest.into_iter()
        .find_map(|(folders, origin)| Some((Some(among(folders)?), origin)))
        .unwrap_or((None, Origin::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_the_folder_of_the_object() {
        let folder = Path::new("/opt/x/bin");
        assert_eq!(
            split("$ORIGIN/../lib:/usr/lib::${ORIGIN}", folder),
            ["/opt/x/bin/../lib", "/usr/lib", "/opt/x/bin"].map(PathBuf::from)
        );
    }

    #[test]
    fn the_libraries_of_this_test_are_found() {
        let path = std::env::current_exe().unwrap();
        let elf = Elf::parse(&contents(&path).unwrap()).unwrap();
        let libraries = resolve(&path, &elf, &Paths::new(&BTreeMap::new(), None));
        let libc = libraries.iter().find(|library| library.name.starts_with("libc.so")).unwrap();
        assert_eq!(libc.origin, Origin::System, "{libraries:?}");
        assert!(libc.path.as_ref().unwrap().is_file());
    }
}

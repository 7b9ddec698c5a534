//! Where the libraries are.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const VIEW: &str = "libferroce_view.so";
/// What carries TCP connections over rsockets.
const SOCKETS: &str = "libferroce_sockets.so";

/// What programs are linked against, and what some open by themselves.
const NAMES: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// The one file that serves all of these names, as cargo builds it.
const BUILT: &str = "libferroce_capi.so";

/// The libraries' files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    folder: PathBuf,
    verbs: Verbs,
    sockets: bool,
}

/// Libraries that are wanted beside the view's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// libibverbs and librdmacm.
    pub(super) verbs: bool,
    pub(super) sockets: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Verbs {
    Unwanted,
    /// Installed: the folder has all names.
    Named,
    /// Built: one file, which wants its names.
    Built(PathBuf),
}

/// The libraries, ready to be used.
#[derive(Debug)]
pub(super) struct Placed {
    /// What is preloaded.
    pub(super) view: PathBuf,
    /// What is preloaded before it.
    pub(super) sockets: Option<PathBuf>,
    /// The folder with libibverbs and librdmacm.
    pub(super) folder: Option<PathBuf>,
}

impl Found {
    /// Looks in the folder that `FERROCE_LIB` names, or where `make install` puts them, or beside this command, where
    /// cargo does.
    pub(super) fn new(wanted: Wanted) -> Result<Self, String> {
        let named = std::env::var_os("FERROCE_LIB").filter(|path| !path.is_empty());
        let folders = match named {
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let program = std::env::current_exe()
                    .map_err(|error| format!("cannot find out where this command is: {error}"))?;
                let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
                vec![beside.join("../lib/ferroce"), beside]
            }
        };
        Self::among(&folders, wanted)
    }

    fn among(folders: &[PathBuf], wanted: Wanted) -> Result<Self, String> {
        let mut missing = VIEW;
        for folder in folders {
            let Ok(folder) = folder.canonicalize() else { continue };
            if !folder.join(VIEW).is_file() {
                continue;
            }
            if wanted.sockets && !folder.join(SOCKETS).is_file() {
                missing = SOCKETS;
                continue;
            }
            let built = folder.join(BUILT);
            let verbs = match () {
                () if !wanted.verbs => Verbs::Unwanted,
                () if NAMES[..2].iter().all(|name| folder.join(name).is_file()) => Verbs::Named,
                () if built.is_file() => Verbs::Built(built),
                () => {
                    missing = NAMES[0];
                    continue;
                }
            };
            return Ok(Self { folder, verbs, sockets: wanted.sockets });
        }
        let places: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Err(format!(
            "{missing} is not in {}: build it with 'cargo build --release -p ferroce-capi -p ferroce-view \
             -p ferroce-sockets', or name its folder in FERROCE_LIB",
            places.join(" or ")
        ))
    }

    /// Gives names to what has none, in this folder.
    pub(super) fn placed(self, folder: &Path) -> io::Result<Placed> {
        // The dynamic linker takes these for the end of a path.
        let awkward = self.folder.as_os_str().as_bytes().iter().any(|byte| b": ;$".contains(byte));
        let links = folder.join("lib");
        if awkward || matches!(self.verbs, Verbs::Built(_)) {
            std::fs::create_dir(&links)?;
        }
        let preloaded = |name: &str| {
            let path = self.folder.join(name);
            if !awkward {
                return Ok(path);
            }
            let link = links.join(name);
            symlink(path, &link).map(|()| link)
        };
        let view = preloaded(VIEW)?;
        let sockets = self.sockets.then(|| preloaded(SOCKETS)).transpose()?;
        let link = |target: &dyn Fn(&str) -> PathBuf| {
            NAMES.iter().try_for_each(|name| symlink(target(name), links.join(name)))
        };
        let folder = match self.verbs {
            Verbs::Unwanted => None,
            Verbs::Named if awkward => {
                link(&|name| self.folder.join(name))?;
                Some(links)
            }
            Verbs::Named => Some(self.folder),
            Verbs::Built(built) => {
                link(&|_| built.clone())?;
                Some(links)
            }
        };
        Ok(Placed { view, sockets, folder })
    }
}

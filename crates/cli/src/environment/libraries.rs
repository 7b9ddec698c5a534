//! Finding the libraries.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const VIEW: &str = "libferroce_view.so";
/// The library that carries TCP connections over rsockets.
const SOCKETS: &str = "libferroce_sockets.so";

/// The names that programs link against or open with dlopen.
const NAMES: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// The one file, as built by cargo, that serves all of these names.
const BUILT: &str = "libferroce_capi.so";

/// The libraries' files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    folder: PathBuf,
    verbs: Verbs,
    sockets: bool,
}

/// The libraries wanted in addition to the view's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// libibverbs and librdmacm.
    pub(super) verbs: bool,
    pub(super) sockets: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Verbs {
    Unwanted,
    /// Installed: a folder with all names.
    Named,
    /// Built by cargo: one file that needs links with its names.
    Built(PathBuf),
}

/// The libraries, ready to use.
#[derive(Debug)]
pub(super) struct Placed {
    /// The preloaded library.
    pub(super) view: PathBuf,
    /// A library to preload before it.
    pub(super) sockets: Option<PathBuf>,
    /// The folder with libibverbs and librdmacm.
    pub(super) folder: Option<PathBuf>,
}

impl Found {
    /// Searches the folder that `FERROCE_LIB` names, the folder of `make install`, and the folder of this command,
    /// where cargo puts them.
    pub(super) fn new(wanted: Wanted) -> Result<Self, String> {
        let named = std::env::var_os("FERROCE_LIB").filter(|path| !path.is_empty());
        let folders = match named {
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let program = std::env::current_exe()
                    .map_err(|error| format!("cannot find the path of this command: {error}"))?;
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

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the links with the libraries' names in this folder, if they are missing.
    pub(super) fn placed(self, folder: &Path) -> io::Result<Placed> {
        // The dynamic linker would split the path at these.
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

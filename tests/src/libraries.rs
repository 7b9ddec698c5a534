//! Our libibverbs and librdmacm, in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder, after they are built: `CARGO_TARGET_TMPDIR` of the test is where it is made.
pub fn folder(temporary: &str) -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(temporary).join("libraries");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/libraries");
        let built = Command::new(script).arg(&folder).arg("dev").status();
        assert!(built.expect("the script runs").success(), "the libraries are built");
        folder
    })
}

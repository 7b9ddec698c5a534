//! File capabilities (capabilities(7)): the dynamic linker ignores LD_PRELOAD and LD_LIBRARY_PATH for programs that have
//! them.

use std::path::Path;

use rustix::fs::getxattr;

/// Whether a program has file capabilities. False if they cannot be read.
pub fn has_any(path: &Path) -> bool {
    // The attribute has 12 bytes in version 1, up to 24 in version 3.
    let mut value = [0_u8; 64];
    getxattr(path, "security.capability", &mut value[..]).is_ok_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_has_none() {
        assert!(!has_any(&std::env::current_exe().unwrap()));
        assert!(!has_any(Path::new("/nonexistent")));
    }
}

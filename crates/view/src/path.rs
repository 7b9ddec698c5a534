//! The paths that are redirected to the view, and their targets.

/// The longest path that the kernel accepts, including the terminating NUL.
pub(crate) const MAX_PATH: usize = libc::PATH_MAX as usize;

/// Whether a path is in one of the directories of the view: `/sys/class/infiniband`, all `/sys/class/infiniband_…`,
/// and `/dev/infiniband`.
///
/// Repeated slashes and `.` are ignored, as the kernel does. `..` is not resolved: its target depends on symbolic links in the
/// path, which only the kernel knows.
pub(crate) fn is_in_view(path: &[u8]) -> bool {
    if !path.starts_with(b"/") {
        return false;
    }
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    match names.next() {
        Some(b"sys") => {
            names.next() == Some(b"class")
                && names
                    .next()
                    .and_then(|name| name.strip_prefix(b"infiniband"))
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_"))
        }
        Some(b"dev") => names.next() == Some(b"infiniband"),
        _ => false,
    }
}

/// Writes the NUL-terminated target of a path that [`is_in_view`] and returns it; `None` if it is too long.
///
/// The view has the layout of the root directory, so the target is `root` followed by the path, and relative symbolic links
/// work as in the original.
pub(crate) fn redirected<'a>(
    root: &[u8],
    path: &[u8],
    buffer: &'a mut [u8; MAX_PATH],
) -> Option<&'a [u8]> {
    let length = root.len().checked_add(path.len())?;
    let (whole, rest) = buffer.split_at_mut_checked(length)?;
    let (front, back) = whole.split_at_mut_checked(root.len())?;
    front.copy_from_slice(root);
    back.copy_from_slice(path);
    *rest.first_mut()? = 0;
    buffer.get(..=length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_device_paths_are_in_the_view() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/ferroce_lo/node_type",
            "/sys/class/infiniband_verbs/abi_version",
            "/sys/class/infiniband_mad/umad0",
            "/dev/infiniband",
            "/dev/infiniband/uverbs0",
            "//sys//class/./infiniband//x",
            "/./dev/infiniband/.",
            "/sys/class/infiniband/../net/lo",
        ] {
            assert!(is_in_view(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn other_paths_are_not_in_the_view() {
        for path in [
            "",
            "/",
            "sys/class/infiniband",
            "infiniband",
            "./sys/class/infiniband",
            "/sys",
            "/sys/class",
            "/sys/class/",
            "/sys/class/net/lo",
            "/sys/class/infinibandits",
            "/sys/class/infiniban",
            "/sys/classes/infiniband",
            "/sys/bus/infiniband",
            "/dev",
            "/dev/null",
            "/dev/infiniband_verbs",
            "/dev/infinibandage/x",
            "/home/sys/class/infiniband",
            "/sys/class/../class/infiniband",
        ] {
            assert!(!is_in_view(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_path_is_appended_to_the_root() {
        let mut buffer = [0xaa; MAX_PATH];
        let found = redirected(b"/tmp/view", b"/dev/infiniband/uverbs0", &mut buffer);
        assert_eq!(found, Some(&b"/tmp/view/dev/infiniband/uverbs0\0"[..]));
    }

    #[test]
    fn paths_longer_than_path_max_are_refused() {
        let mut buffer = [0xaa; MAX_PATH];
        let path = [b'x'; MAX_PATH];
        assert_eq!(
            redirected(b"/v", &path[..MAX_PATH - 3], &mut buffer).map(<[u8]>::len),
            Some(MAX_PATH)
        );
        assert_eq!(redirected(b"/v", &path[..MAX_PATH - 2], &mut buffer), None);
        assert_eq!(redirected(b"/v", &path, &mut buffer), None);
    }
}

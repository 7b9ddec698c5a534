//! Which paths are answered from the view, and what they become.

/// The longest path that the kernel takes, its final zero included.
pub(crate) const LONGEST: usize = libc::PATH_MAX as usize;

/// Whether a path is in one of the folders that the view has: `/sys/class/infiniband`, all `/sys/class/infiniband_…`,
/// and `/dev/infiniband`.
///
/// Doubled slashes and `.` are read as the kernel reads them. `..` is not: which folder it leaves is for the kernel to
/// know, for there may be links on the way.
pub(crate) fn is_in_view(path: &[u8]) -> bool {
    // Nearly all paths end here.
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

/// Writes the view's path for one that [`is_in_view`], ended by a zero, and returns it. `None` when that is too long.
///
/// The view is laid out as the root folder is, so the path is only put behind the view's: links in it that go up and down
/// again work as they do in the original.
pub(crate) fn moved<'a>(
    root: &[u8],
    path: &[u8],
    buffer: &'a mut [u8; LONGEST],
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
    fn the_folders_of_rdma_devices_are_in_the_view() {
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
    fn everything_else_is_not() {
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
    fn a_path_is_put_behind_the_root() {
        let mut buffer = [0xaa; LONGEST];
        let found = moved(b"/tmp/view", b"/dev/infiniband/uverbs0", &mut buffer);
        assert_eq!(found, Some(&b"/tmp/view/dev/infiniband/uverbs0\0"[..]));
    }

    #[test]
    fn what_is_too_long_is_refused_to_the_byte() {
        let mut buffer = [0xaa; LONGEST];
        let path = [b'x'; LONGEST];
        assert_eq!(moved(b"/v", &path[..LONGEST - 3], &mut buffer).map(<[u8]>::len), Some(LONGEST));
        assert_eq!(moved(b"/v", &path[..LONGEST - 2], &mut buffer), None);
        assert_eq!(moved(b"/v", &path, &mut buffer), None);
    }
}

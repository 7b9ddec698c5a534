//! The reasons for which tests may be skipped; any other skip is a failure.

use super::suite::{Outcome, Tested};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A software device over UDP cannot support it, and returns the error of the man page.
    Device,
    /// It is specific to one vendor's devices.
    Vendor,
    /// It depends on the machine.
    Machine,
    /// It could be supported, but is not.
    Missing,
}

pub(crate) struct Reason {
    pub(crate) kind: Kind,
    /// Prefixes of the names, and alternatives of which the suite's message contains one: an ordinary user is told that
    /// root is needed before anything else is checked.
    module: &'static str,
    test: &'static str,
    words: &'static [&'static str],
    pub(crate) why: &'static str,
}

use Kind::{Device, Machine, Missing, Vendor};

/// The first that matches is the reason.
#[rustfmt::skip]
pub(crate) static REASONS: &[Reason] = &[
    Reason { kind: Vendor, module: "test_mlx5_", test: "", words: &[""],
        why: "NVIDIA's mlx5 only: direct verbs of its driver" },
    Reason { kind: Vendor, module: "test_efa", test: "", words: &[""],
        why: "Amazon's EFA only: direct verbs of its driver, and its own transport" },
    Reason { kind: Machine, module: "test_cuda_dmabuf", test: "", words: &["cuda-python"],
        why: "memory of an NVIDIA GPU" },
    Reason { kind: Machine, module: "test_mr", test: "DmaBuf", words: &["dmabuf"],
        why: "GPU memory from /dev/dri, as a DMA-buf; `ibv_reg_dmabuf_mr` fails with EOPNOTSUPP" },
    Reason { kind: Machine, module: "test_odp", test: "OdpTestCase.test_odp_rc_huge", words: &["uge pages"],
        why: HUGE },
    Reason { kind: Machine, module: "test_parent_domain", test: "ParentDomainTrafficTest.test_huge", words: &["uge pages"],
        why: HUGE },
    Reason { kind: Device, module: "test_flow", test: "", words: &["type 8 is not supported", ROOT],
        why: RAW },
    Reason { kind: Device, module: "test_qp", test: "", words: &["Raw Packet QP", ROOT],
        why: RAW },
    Reason { kind: Device, module: "test_rss", test: "", words: &["type 8 is not supported", ROOT],
        why: "raw packet queue pair behind receive side scaling; EOPNOTSUPP" },
    Reason { kind: Device, module: "test_tag_matching", test: "", words: &["not supported"],
        why: "tag matching in the device: `tm_caps` is empty, and creating a completion queue for it fails with EOPNOTSUPP" },
    Reason { kind: Missing, module: "test_rdmacm", test: "", words: &["doesn't have net interface"],
        why: "the interface of the device is not visible: these tests need `ferroce run`" },
];

const ROOT: &str = "root on Ethernet link layer";
const HUGE: &str =
    "needs huge pages of 2 MiB, which an administrator reserves (`sysctl vm.nr_hugepages=16`)";
const RAW: &str = "raw packet queue pair: whole Ethernet frames, not RoCE; EOPNOTSUPP";

/// Returns why a test was skipped, or, if it passed, why it would be on another machine.
pub(crate) fn of(one: &Tested) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| {
        let skipped = one.outcome == Outcome::Skip;
        one.module.starts_with(reason.module)
            && one.name.starts_with(reason.test)
            && (skipped || reason.kind == Machine)
            && (!skipped || reason.words.iter().any(|words| one.reason.contains(words)))
    })
}

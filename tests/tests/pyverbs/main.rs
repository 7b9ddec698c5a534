//! rdma-core's own tests, from Debian's package rdma-core, on our libibverbs.so.1.
//!
//! They are written in Python with pyverbs, which is linked with the library under test: ours. The result of each test
//! is counted, printed, and kept in `docs/compatibility.md`; a test that fails or hangs fails here, and so does one
//! that is skipped without a known reason.

mod reasons;
mod suite;
mod table;

use ferroce_test_support::skip;
use ferroce_tests::document;
use ferroce_tests::hosts::Hosts;
use suite::{Device, Outcome, Suite, Tested};

/// The version that the document describes: other versions have other tests.
const VERSION: &str = "44.0";
/// The number of tests that apply to every RoCE device, ten of them with the connection manager.
const MIN_PASSED: usize = 92;

#[test]
fn rdma_cores_own_tests() {
    let Some(suite) = Suite::unpack() else { return };
    let results = suite.run(Device::Loopback, "ipv4");
    print!("{}", table::counts(&results));
    check(&results);
    if suite.version() != VERSION {
        println!("docs/compatibility.md is about {VERSION}, and this is {}", suite.version());
        return;
    }
    let body = table::chapter(&results, VERSION);
    let command = "cargo nextest run -p ferroce-tests --test pyverbs";
    document::keep("compatibility.md", "rdma-core's own tests", &body, command);
}

/// The tests of address handles on an Ethernet device, whose LID is 0: that of the loopback is 1.
#[test]
fn address_handles_on_ethernet() {
    let Some((suite, hosts)) = on_ethernet() else { return };
    let results = suite.run_modules(Device::Ethernet(&hosts), "ipv4", &["test_addr"]);
    check_each(&results);
    let without_grh = results.iter().find(|one| one.name.ends_with("test_create_ah_roce"));
    assert!(without_grh.is_some_and(|one| one.outcome == Outcome::Pass), "{results:#?}");
}

fn on_ethernet() -> Option<(Suite, Hosts)> {
    Some((Suite::unpack()?, Hosts::new("pyverbs")?.ready()))
}

mod full {
    use super::*;

    /// All tests on an Ethernet device.
    #[test]
    fn rdma_cores_own_tests_on_ethernet() {
        let Some((suite, hosts)) = on_ethernet() else { return };
        check(&suite.run(Device::Ethernet(&hosts), "ipv4"));
    }

    /// The same tests over IPv6.
    #[test]
    fn rdma_cores_own_tests_over_ipv6() {
        let Some(suite) = Suite::unpack() else { return };
        let [over_ipv4, over_ipv6] =
            ["ipv4", "ipv6"].map(|family| suite.run(Device::Loopback, family));
        if over_ipv6.is_empty() {
            return skip("the loopback has no IPv6 address");
        }
        check(&over_ipv6);
        let passed = |of: &[Tested]| of.iter().filter(|one| one.outcome == Outcome::Pass).count();
        println!("over IPv6: {} passed", passed(&over_ipv6));
        assert_eq!(passed(&over_ipv6), passed(&over_ipv4), "over IPv6 others run than over IPv4");
    }
}

/// Asserts that none failed, each skip has a known reason, and enough ran.
fn check(results: &[Tested]) {
    check_each(results);
    let passed = results.iter().filter(|one| one.outcome == Outcome::Pass).count();
    assert!(passed >= MIN_PASSED, "only {passed} ran");
}

fn check_each(results: &[Tested]) {
    let failed: Vec<_> = results.iter().filter(|one| one.outcome == Outcome::Fail).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:#?}", failed.len(), results.len());
    let unexplained: Vec<_> = results
        .iter()
        .filter(|one| one.outcome == Outcome::Skip && reasons::of(one).is_none())
        .collect();
    assert!(unexplained.is_empty(), "skipped for an unknown reason: {unexplained:#?}");
}

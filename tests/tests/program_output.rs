//! The parsers of the output of perftest and the pingpongs are strict: they reject a row that is missing, has other
//! bytes or iterations, or has no measurement. Only a failed calibration is repeated.

use ferroce_tests::perftest::{self, Table};
use ferroce_tests::pingpong;

const ROW: &str = " 65536      1000             738.18             459.43 \t\t   0.007351";
const ALL: &str =
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n";

#[test]
fn a_row_must_have_the_expected_bytes_and_iterations() {
    let said = format!("{ALL}{ROW}\n---\n");
    assert_eq!(perftest::check(&said, Table::of("ib_write_bw", "-n 1000", 4096)), Ok(()));
    for arguments in ["-n 999", "-n 1000 -s 65535", "-n 500 -q 4", "-a -n 1000"] {
        let wrong = perftest::check(&said, Table::of("ib_write_bw", arguments, 4096));
        assert!(wrong.is_err(), "{arguments}");
    }
    let twice = format!("{said}{ROW}\n");
    assert!(perftest::check(&twice, Table::of("ib_write_bw", "-n 1000", 4096)).is_err());
    assert!(perftest::check(ALL, Table::of("ib_write_bw", "-D 1", 4096)).is_err());
}

#[test]
fn a_row_without_a_measurement_is_rejected() {
    for row in
        [" 65536 1000 0.00 0.00 0.000000", " 65536 1000 nan 1.0 1.0", " 65536 1000 inf 1.0 1.0"]
    {
        assert!(perftest::check(row, Table::One(65_536, 1000)).is_err(), "{row}");
    }
}

/// As printed on a busy machine.
#[test]
fn merged_columns_are_ignored() {
    let row = " 16      20          21.80          10712.21      41.01           1174.23     2466.5210712.21 10712.21\n";
    assert_eq!(perftest::check(row, Table::of("ib_send_lat", "-s 16 -n 20", 4096)), Ok(()));
}

#[test]
fn a_pingpong_must_report_all_bytes_and_iterations() {
    let said = "200040 bytes in 0.06 seconds = 26.35 Mbit/sec\n20 iters in 0.06 seconds = 3036 usec/iter\n";
    let check = |arguments| pingpong::check("ibv_rc_pingpong", arguments, said).unwrap();
    assert_eq!(check("-s 5001 -n 20"), Ok(()));
    assert!(check("-s 5000 -n 20").is_err());
    assert!(check("-s 5001 -n 2").is_err());
    assert!(pingpong::check("ib_write_bw", "", said).is_none());
}

const NOT_CALIBRATED: &str = "Correlation coefficient r^2: 0.88 < 0.9\n";

#[test]
fn a_failed_calibration_is_repeated() {
    let mut runs = 0;
    let run = || {
        runs += 1;
        if runs < 3 { NOT_CALIBRATED.to_owned() } else { ROW.to_owned() }
    };
    assert_eq!(perftest::calibrated(run, String::clone), ROW);
    assert_eq!(runs, 3);
}

#[test]
fn other_failures_are_not_repeated() {
    let mut runs = 0;
    let run = || {
        runs += 1;
        "a failure of ours".to_owned()
    };
    perftest::calibrated(run, String::clone);
    assert_eq!(runs, 1);
}

#[test]
#[should_panic(expected = "could not calibrate its clock in 5 runs")]
fn a_calibration_that_never_succeeds_fails() {
    perftest::calibrated(|| NOT_CALIBRATED.to_owned(), String::clone);
}

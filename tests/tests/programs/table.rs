//! The programs, one per line: name of the test, program, arguments of both sides, expected output of the client. One
//! of every kind runs in `make test`; the others, in `full`, in `make test-all`.

use ferroce_tests::{perftest, pingpong};

use super::pair;

/// The expected output.
enum Check {
    /// This text.
    Says(&'static str),
    /// The program's whole table: bytes and iterations of every line, and a measurement. For a pingpong, all bytes and
    /// iterations.
    Measured,
}

use Check::{Measured, Says};

/// The path MTU of the loopback.
const MTU: u64 = 4096;

impl Check {
    fn holds(&self, program: &str, arguments: &str, said: &str) -> Result<(), String> {
        match self {
            Says(text) if said.contains(text) => Ok(()),
            Says(text) => Err(format!("not printed: {text}")),
            Measured => pingpong::check(program, arguments, said).unwrap_or_else(|| {
                perftest::check(said, perftest::Table::of(program, arguments, MTU))
            }),
        }
    }
}

macro_rules! programs {
    ($( $test:ident: $run:ident $program:literal $arguments:literal => $check:expr; )+) => {$(
        #[test]
        fn $test() {
            let Some(said) = pair::$run($program, $arguments) else { return };
            let held = $check.holds($program, $arguments, &said);
            assert_eq!(held, Ok(()), "{} {} said:\n{said}", $program, $arguments);
        }
    )+};
}

#[rustfmt::skip]
programs! {
    devices:            alone "ibv_devices"       ""                            => Says("ferroce_lo");
    devinfo:            alone "ibv_devinfo"       "-v -d ferroce_lo"            => Says("RoCE v2");
    asyncwatch:         watch "ibv_asyncwatch"    "-d ferroce_lo"               => Says("async event FD");
    rc_pingpong_checks: run   "ibv_rc_pingpong"   "-c -s 5001"                  => Measured;
    rc_pingpong_events: run   "ibv_rc_pingpong"   "-e"                          => Measured;
    rc_pingpong_new:    run   "ibv_rc_pingpong"   "-N -c"                       => Measured;
    rc_pingpong_all:    run   "ibv_rc_pingpong"   "-o -P -c"                    => Measured;
    ud_pingpong:        run   "ibv_ud_pingpong"   ""                            => Measured;
    uc_pingpong_2048:   run   "ibv_uc_pingpong"   "-m 2048 -n 100 -s 5001"      => Measured;
    // One QP: with several, the side that has counted all its messages exits while the other still sends on some of them.
    srq_pingpong:       run   "ibv_srq_pingpong"  "-q 1"                        => Measured;
    xrc_pingpong_odd:   run   "ibv_xsrq_pingpong" "-m 4096 -s 9001 -n 50"       => Says("success");
    write_bw:           run   "ib_write_bw"       "-n 1000"                     => Measured;
    write_bw_64:        run   "ib_write_bw"       "-q 64 -n 50 -s 4096"         => Measured;
    write_bw_uc:        run   "ib_write_bw"       "-c UC -n 500"                => Measured;
    write_bw_xrc:       run   "ib_write_bw"       "-c XRC -n 200"               => Measured;
    write_lat:          run   "ib_write_lat"      "-n 200"                      => Measured;
    read_bw:            run   "ib_read_bw"        "-n 500"                      => Measured;
    read_bw_many:       run   "ib_read_bw"        "-o 16 -q 4 -n 100"           => Measured;
    read_lat:           run   "ib_read_lat"       "-n 500"                      => Measured;
    send_bw:            run   "ib_send_bw"        "-n 500"                      => Measured;
    send_bw_shared:     run   "ib_send_bw"        "--use-srq -q 4 -n 200"       => Measured;
    // One receive request at a time: the receiver is hardly ever ready.
    send_bw_not_ready:  run   "ib_send_bw"        "-r 1 -n 200"                 => Measured;
    // Far more than a socket buffer holds: flow control on one machine prevents loss.
    send_bw_uc:         run   "ib_send_bw"        "-c UC"                       => Measured;
    send_bw_ud:         run   "ib_send_bw"        "-c UD -n 5000"               => Measured;
    send_lat:           run   "ib_send_lat"       "-n 500"                      => Measured;
    atomic_bw:          run   "ib_atomic_bw"      "-n 500"                      => Measured;
    atomic_lat_swap:    run   "ib_atomic_lat"     "-A CMP_AND_SWAP -n 200"      => Measured;
}

mod full {
    use super::*;

    #[rustfmt::skip]
    programs! {
        rc_pingpong:        run   "ibv_rc_pingpong"   ""                            => Measured;
        rc_pingpong_odd:    run   "ibv_rc_pingpong"   "-s 1 -n 200"                 => Measured;
        rc_pingpong_large:  run   "ibv_rc_pingpong"   "-s 3000001 -n 20 -m 4096"    => Measured;
        rc_pingpong_times:  run   "ibv_rc_pingpong"   "-t"                          => Measured;
        rc_pingpong_odp:    run   "ibv_rc_pingpong"   "-o -c"                       => Measured;
        rc_pingpong_memory: run   "ibv_rc_pingpong"   "-j"                          => Measured;
        uc_pingpong:        run   "ibv_uc_pingpong"   ""                            => Measured;
        uc_pingpong_events: run   "ibv_uc_pingpong"   "-e"                          => Measured;
        ud_pingpong_events: run   "ibv_ud_pingpong"   "-e"                          => Measured;
        rc_pingpong_256:    run   "ibv_rc_pingpong"   "-m 256 -n 100 -c"            => Measured;
        rc_pingpong_512:    run   "ibv_rc_pingpong"   "-m 512 -n 100 -c"            => Measured;
        rc_pingpong_1024:   run   "ibv_rc_pingpong"   "-m 1024 -n 100 -c"           => Measured;
        rc_pingpong_2048:   run   "ibv_rc_pingpong"   "-m 2048 -n 100 -s 5001 -c"   => Measured;
        rc_pingpong_4096:   run   "ibv_rc_pingpong"   "-m 4096 -n 100 -s 9001 -c"   => Measured;
        uc_pingpong_256:    run   "ibv_uc_pingpong"   "-m 256 -n 100"               => Measured;
        uc_pingpong_512:    run   "ibv_uc_pingpong"   "-m 512 -n 100"               => Measured;
        uc_pingpong_1024:   run   "ibv_uc_pingpong"   "-m 1024 -n 100 -s 1"         => Measured;
        uc_pingpong_4096:   run   "ibv_uc_pingpong"   "-m 4096 -n 100 -s 9001"      => Measured;
        uc_pingpong_large:  run   "ibv_uc_pingpong"   "-m 4096 -n 20 -s 60001"      => Measured;
        ud_pingpong_odd:    run   "ibv_ud_pingpong"   "-s 1001 -n 100"              => Measured;
        srq_pingpong_256:   run   "ibv_srq_pingpong"  "-m 256 -n 100"               => Measured;
        srq_pingpong_512:   run   "ibv_srq_pingpong"  "-m 512 -n 100"               => Measured;
        srq_pingpong_2048:  run   "ibv_srq_pingpong"  "-m 2048 -n 100"              => Measured;
        srq_pingpong_odd:   run   "ibv_srq_pingpong"  "-m 4096 -s 9001 -n 100"      => Measured;
        srq_pingpong_large: run   "ibv_srq_pingpong"  "-m 4096 -s 300001 -n 100 -q 4" => Measured;
        srq_events:         run   "ibv_srq_pingpong"  "-e"                          => Measured;
        xrc_pingpong:       run   "ibv_xsrq_pingpong" ""                            => Says("success");
        xrc_pingpong_256:   run   "ibv_xsrq_pingpong" "-m 256 -n 50"                => Says("success");
        xrc_events:         run   "ibv_xsrq_pingpong" "-e"                          => Says("success");
        write_bw_all:       run   "ib_write_bw"       "-a -n 50"                    => Measured;
        write_bw_both:      run   "ib_write_bw"       "-b -n 500"                   => Measured;
        write_bw_many:      run   "ib_write_bw"       "-q 8 -n 200"                 => Measured;
        write_bw_time:      run   "ib_write_bw"       "-D 1 -s 4096"                => Measured;
        write_bw_inline:    run   "ib_write_bw"       "-I 64 -s 64 -n 1000"         => Measured;
        write_bw_lists:     run   "ib_write_bw"       "-l 16 -n 512"                => Measured;
        write_bw_uc_all:    run   "ib_write_bw"       "-c UC -a -n 20"              => Measured;
        write_bw_uc_both:   run   "ib_write_bw"       "-c UC -b -s 4096 -n 200"     => Measured;
        write_bw_odp:       run   "ib_write_bw"       "--odp -n 200"                => Measured;
        write_lat_all:      run   "ib_write_lat"      "-a -n 20"                    => Measured;
        write_lat_inline:   run   "ib_write_lat"      "-I 64 -s 64 -n 200"          => Measured;
        write_lat_uc:       run   "ib_write_lat"      "-c UC -n 200"                => Measured;
        write_lat_xrc:      run   "ib_write_lat"      "-c XRC -n 200"               => Measured;
        read_bw_all:        run   "ib_read_bw"        "-a -n 50"                    => Measured;
        read_bw_both:       run   "ib_read_bw"        "-b -n 200"                   => Measured;
        read_bw_events:     run   "ib_read_bw"        "-e -n 200"                   => Measured;
        read_bw_xrc:        run   "ib_read_bw"        "-c XRC -n 200"               => Measured;
        read_bw_64:         run   "ib_read_bw"        "-q 64 -s 4096 -n 20"         => Measured;
        read_bw_lists:      run   "ib_read_bw"        "-l 4 -n 200"                 => Measured;
        read_bw_time:       run   "ib_read_bw"        "-D 1 -s 4096"                => Measured;
        read_lat_all:       run   "ib_read_lat"       "-a -n 20"                    => Measured;
        read_lat_events:    run   "ib_read_lat"       "-e -n 200"                   => Measured;
        read_lat_xrc:       run   "ib_read_lat"       "-c XRC -n 200"               => Measured;
        send_bw_all:        run   "ib_send_bw"        "-a -n 50"                    => Measured;
        send_bw_both:       run   "ib_send_bw"        "-b -n 500"                   => Measured;
        send_bw_events:     run   "ib_send_bw"        "-e -n 500"                   => Measured;
        send_bw_lists:      run   "ib_send_bw"        "-l 16 -n 512"                => Measured;
        send_bw_inline:     run   "ib_send_bw"        "-I 64 -s 64 -n 500"          => Measured;
        send_bw_64:         run   "ib_send_bw"        "-q 64 -s 4096 -n 50"         => Measured;
        send_bw_time:       run   "ib_send_bw"        "-D 1 -s 4096"                => Measured;
        send_bw_xrc:        run   "ib_send_bw"        "-c XRC -n 200"               => Measured;
        send_bw_uc_both:    run   "ib_send_bw"        "-c UC -b"                    => Measured;
        send_bw_uc_many:    run   "ib_send_bw"        "-c UC -q 8 -n 200"           => Measured;
        send_lat_all:       run   "ib_send_lat"       "-a -n 20"                    => Measured;
        send_lat_shared:    run   "ib_send_lat"       "--use-srq -n 200"            => Measured;
        send_lat_uc:        run   "ib_send_lat"       "-c UC -n 200"                => Measured;
        send_lat_xrc:       run   "ib_send_lat"       "-c XRC -n 200"               => Measured;
        send_lat_inline:    run   "ib_send_lat"       "-I 64 -s 64 -n 500"          => Measured;
        send_lat_events:    run   "ib_send_lat"       "-e -n 500"                   => Measured;
        send_lat_ud:        run   "ib_send_lat"       "-c UD -n 500"                => Measured;
        atomic_bw_both:     run   "ib_atomic_bw"      "-b -n 200"                   => Measured;
        atomic_bw_many:     run   "ib_atomic_bw"      "-q 8 -n 100"                 => Measured;
        atomic_bw_lists:    run   "ib_atomic_bw"      "-l 4 -n 200"                 => Measured;
        atomic_bw_time:     run   "ib_atomic_bw"      "-D 1"                        => Measured;
        atomic_bw_xrc:      run   "ib_atomic_bw"      "-c XRC -n 200"               => Measured;
        atomic_bw_events:   run   "ib_atomic_bw"      "-e -n 200"                   => Measured;
        atomic_bw_swap:     run   "ib_atomic_bw"      "-A CMP_AND_SWAP -n 500"      => Measured;
        atomic_lat:         run   "ib_atomic_lat"     "-n 500"                      => Measured;
        atomic_lat_events:  run   "ib_atomic_lat"     "-e -n 200"                   => Measured;
        atomic_lat_xrc:     run   "ib_atomic_lat"     "-c XRC -n 200"               => Measured;
    }
}

//! The programs, one pair per line: name of the test, when the server is ready and how it ends, command lines of server
//! and client, and expected output.

use std::net::Ipv4Addr;

use ferroce_tests::managed::{self, Ready, Server};
use ferroce_tests::perftest;

use Server::{Ends, ListensTwice, Serves};

/// The default ports of the programs.
const RPING: Ready = Ready::Listens(7174);
const CMATOSE: Ready = Ready::Listens(7471);
const PERFTEST: Ready = Ready::Listens(18515);

const GROUP: Ready = Ready::Group(Ipv4Addr::new(239, 9, 8, 7));

/// The expected output.
enum Check {
    /// Both succeed; there is no output to check.
    Silence,
    /// The client prints this.
    Client(&'static str),
    /// Both print this.
    Both(&'static str),
    /// perftest's client prints its whole table: bytes and iterations of every line, and a measurement.
    Measured,
    /// cmtime's client prints a time for each step, and no failure.
    Times,
}

use Check::{Both, Client, Measured, Silence, Times};

/// The path MTU of the loopback.
const MTU: u64 = 4096;

impl Check {
    fn holds(&self, line: &str, server: &str, client: &str) -> Result<(), String> {
        let holds = match self {
            Silence => true,
            Client(text) => client.contains(text),
            Both(text) => server.contains(text) && client.contains(text),
            Measured => {
                let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
                let table = perftest::Table::of(program, arguments, MTU);
                return perftest::check(client, table);
            }
            Times => {
                let steps = ["resolve addr", "resolve route", "connect", "disconnect", "destroy"];
                let done = |step: &&str| client.lines().any(|line| line.starts_with(*step));
                steps.iter().all(done) && !client.contains("event:") && !client.contains("fail")
            }
        };
        if holds { Ok(()) } else { Err("the expected text was not printed".into()) }
    }
}

macro_rules! pairs {
    ($( $test:ident: $ready:ident $ends:expr, $server:literal | $client:literal => $check:expr; )+) => {$(
        #[test]
        fn $test() {
            let Some([server, client]) = managed::run($server, $client, $ready, $ends) else { return };
            let both = format!("the server said:\n{server}\nand the client:\n{client}");
            assert_eq!($check.holds($client, &server, &client), Ok(()), "{}: {both}", $client);
        }
    )+};
}

/// The last of ten pings.
const TEN: Check = Client("rdma-ping-9");
const DONE: Check = Both("return status 0");
const END: Check = Both(": end 0");

#[rustfmt::skip]
pairs! {
    rping:              RPING Ends,      "rping -s -C 10 -a 127.0.0.1"          | "rping -c -v -V -C 10 -a 127.0.0.1"           => TEN;
    rping_v6:           RPING Ends,      "rping -s -C 10 -a ::1"                | "rping -c -v -V -C 10 -a ::1"                 => TEN;
    rping_any:          RPING Ends,      "rping -s -C 10"                       | "rping -c -v -V -C 10 -a 127.0.0.1"           => TEN;
    rping_own_pair:     RPING Ends,      "rping -s -q -C 10 -a 127.0.0.1"       | "rping -c -q -v -V -C 10 -a 127.0.0.1"        => TEN;
    rping_large:        RPING Ends,      "rping -s -C 10 -S 65535 -a 127.0.0.1" | "rping -c -V -C 10 -S 65535 -a 127.0.0.1"     => Silence;
    rping_persistent:   RPING Serves(5), "rping -s -P -a 127.0.0.1"             | "rping -c -v -V -C 10 -a 127.0.0.1"           => TEN;
    ucmatose_v6:        CMATOSE Ends,        "ucmatose -f ipv6 -b ::1"              | "ucmatose -f ipv6 -s ::1"                     => DONE;
    ucmatose_many:      CMATOSE Ends,        "ucmatose -c 50 -C 20 -S 5000"         | "ucmatose -s 127.0.0.1 -c 50 -C 20 -S 5000"   => DONE;
    ucmatose_migrates:  CMATOSE Ends,        "ucmatose -m -c 3"                     | "ucmatose -m -c 3 -s 127.0.0.1"               => DONE;
    ucmatose_ib:        CMATOSE Ends,        "ucmatose -P ib"                       | "ucmatose -P ib -s 127.0.0.1"                 => DONE;
    udaddy_many:        RPING Ends,       "udaddy -c 5 -C 20 -S 1000"            | "udaddy -c 5 -C 20 -S 1000 -s 127.0.0.1"      => DONE;
    cmtime_v6:          CMATOSE Serves(1),   "cmtime -b ::1"                        | "cmtime -s ::1 -c 100"                        => Times;
    mckey:              GROUP Ends,      "mckey -m 239.9.8.7 -b 127.0.0.1"      | "mckey -m 239.9.8.7 -s -b 127.0.0.1"          => DONE;
    rdma_client:        CMATOSE Ends,        "rdma_server"                          | "rdma_client -s 127.0.0.1"                    => END;
    rdma_xclient_xrc:   CMATOSE Ends,        "rdma_xserver -c x"                    | "rdma_xclient -c x -s 127.0.0.1"              => END;
    write_bw_many:      PERFTEST ListensTwice,   "ib_write_bw -R -F -n 200 -q 4"        | "ib_write_bw -R -F -n 200 -q 4 127.0.0.1"     => Measured;
    send_lat:           PERFTEST ListensTwice,   "ib_send_lat -R -F -n 200"             | "ib_send_lat -R -F -n 200 127.0.0.1"          => Measured;
    send_bw_ud:         PERFTEST ListensTwice, "ib_send_bw -R -F -c UD -s 1024 -n 50" | "ib_send_bw -R -F -c UD -s 1024 -n 50 127.0.0.1" => Measured;
    atomic_bw:          PERFTEST ListensTwice,   "ib_atomic_bw -R -F -n 200"            | "ib_atomic_bw -R -F -n 200 127.0.0.1"         => Measured;
}

mod full {
    use super::*;

    #[rustfmt::skip]
    pairs! {
        rping_any_v6:       RPING Ends,      "rping -s -C 10 -a ::0"                | "rping -c -v -V -C 10 -a ::1"                 => TEN;
        rping_source:       RPING Ends,      "rping -s -C 10 -a 127.0.0.1"          | "rping -c -v -V -C 10 -I 127.0.0.1 -a 127.0.0.1" => TEN;
        rping_small:        RPING Ends,      "rping -s -C 10 -S 17 -a 127.0.0.1"    | "rping -c -V -C 10 -S 17 -a 127.0.0.1"        => Silence;
        rping_odd:          RPING Ends,      "rping -s -C 10 -S 1025 -a 127.0.0.1"  | "rping -c -V -C 10 -S 1025 -a 127.0.0.1"      => Silence;
        rping_page:         RPING Ends,      "rping -s -C 10 -S 4097 -a ::1"        | "rping -c -V -C 10 -S 4097 -a ::1"            => Silence;
        rping_many:         RPING Ends,      "rping -s -C 2000 -a 127.0.0.1"        | "rping -c -V -C 2000 -a 127.0.0.1"            => Silence;
        ucmatose:           CMATOSE Ends,        "ucmatose -b 127.0.0.1"                | "ucmatose -s 127.0.0.1"                       => DONE;
        ucmatose_name:      CMATOSE Ends,        "ucmatose"                             | "ucmatose -f name -s localhost"               => DONE;
        ucmatose_options:   CMATOSE Ends,        "ucmatose -t 32 -a 14"                 | "ucmatose -t 32 -a 14 -s 127.0.0.1"           => DONE;
        udaddy:             RPING Ends,       "udaddy -b 127.0.0.1"                  | "udaddy -s 127.0.0.1"                         => DONE;
        udaddy_v6:          RPING Ends,       "udaddy -f ipv6 -b ::1"                | "udaddy -f ipv6 -s ::1"                       => DONE;
        cmtime:             CMATOSE Serves(2),   "cmtime"                               | "cmtime -s 127.0.0.1 -c 1000"                 => Times;
        mckey_send_only:    GROUP Ends,      "mckey -m 239.9.8.7 -b 127.0.0.1"      | "mckey -m 239.9.8.7 -o -s -b 127.0.0.1"       => DONE;
        rdma_client_v6:     CMATOSE Ends,        "rdma_server -s ::1"                   | "rdma_client -s ::1"                          => END;
        rdma_xclient:       CMATOSE Ends,        "rdma_xserver"                         | "rdma_xclient -s 127.0.0.1"                   => END;
        // perftest refuses UC and XRC by the connection manager itself.
        write_bw:           PERFTEST ListensTwice,   "ib_write_bw -R -F -n 500"             | "ib_write_bw -R -F -n 500 127.0.0.1"          => Measured;
        write_lat:          PERFTEST ListensTwice,   "ib_write_lat -R -F -n 200"            | "ib_write_lat -R -F -n 200 127.0.0.1"         => Measured;
        read_bw:            PERFTEST ListensTwice,   "ib_read_bw -R -F -n 500"              | "ib_read_bw -R -F -n 500 127.0.0.1"           => Measured;
        send_bw:            PERFTEST ListensTwice,   "ib_send_bw -R -F -n 500"              | "ib_send_bw -R -F -n 500 127.0.0.1"           => Measured;
        send_bw_events:     PERFTEST ListensTwice,   "ib_send_bw -R -F -e -n 200"           | "ib_send_bw -R -F -e -n 200 127.0.0.1"        => Measured;
        send_lat_ud:        PERFTEST ListensTwice, "ib_send_lat -R -F -c UD -n 100"      | "ib_send_lat -R -F -c UD -n 100 127.0.0.1"    => Measured;
    }
}

macro_rules! refusals {
    ($( $test:ident: $program:literal => $said:literal; )+) => {$(
        #[test]
        fn $test() {
            let Some(said) = managed::refused($program) else { return };
            assert!(said.contains($said), "{said}");
        }
    )+};
}

// There is no IP over InfiniBand on RoCE: what rdma_rxe's answers make these programs say.
#[rustfmt::skip]
refusals! {
    mckey_ipoib:        "mckey -p 0x0002 -m 239.9.8.7 -b 127.0.0.1" => "event: RDMA_CM_EVENT_ADDR_ERROR, error: -22";
    udaddy_ipoib:       "udaddy -p 0x0002 -s 127.0.0.1"             => "event: RDMA_CM_EVENT_ADDR_ERROR, error: -22";
}

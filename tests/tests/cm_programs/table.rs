//! The programs, one pair a line: name of the test, when the server is ready and whether it ends, what it is called by,
//! what the client is, and what the two must have printed.

use std::net::Ipv4Addr;

use ferroce_tests::managed::{self, Ready, Server};

use Server::{Ends, EndsUnlessEarly, Serves};

/// Where the programs listen unless told otherwise: port spaces TCP, UDP and IB.
const RPING: Ready = Ready::Service(0x0106, 7174);
const TCP: Ready = Ready::Service(0x0106, 7471);
const UDP: Ready = Ready::Service(0x0111, 7174);
const IB: Ready = Ready::Service(0x013f, 7471);
const PERFTEST: Ready = Ready::Service(0x0106, 18515);

const GROUP: Ready = Ready::Group(Ipv4Addr::new(239, 9, 8, 7));

/// What to look for.
enum Check {
    /// Both ended well, which is all that they tell.
    Silence,
    /// The client says this.
    Client(&'static str),
    /// Both say this.
    Both(&'static str),
    /// A positive number in this column of the client's last line that starts with one.
    Column(usize),
    /// The client's times of cmtime: each step was done for so many, and nothing failed.
    Times,
}

use Check::{Both, Client, Column, Silence, Times};

const BANDWIDTH: Check = Column(3);
const LATENCY: Check = Column(5);

fn numbers(line: &str) -> Option<Vec<f64>> {
    line.split_whitespace().map(|word| word.parse().ok()).collect()
}

impl Check {
    fn holds(&self, server: &str, client: &str) -> bool {
        match self {
            Silence => true,
            Client(text) => client.contains(text),
            Both(text) => server.contains(text) && client.contains(text),
            Column(column) => {
                let mut rows = client.lines().filter_map(numbers).filter(|row| !row.is_empty());
                let last = rows.next_back();
                last.and_then(|row| row.get(*column).copied()).is_some_and(|one| one > 0.0)
            }
            Times => {
                let steps = ["resolve addr", "resolve route", "connect", "disconnect", "destroy"];
                let done = |step: &&str| client.lines().any(|line| line.starts_with(*step));
                steps.iter().all(done) && !client.contains("event:") && !client.contains("fail")
            }
        }
    }
}

macro_rules! pairs {
    ($( $test:ident: $ready:ident $ends:expr, $server:literal | $client:literal => $check:expr; )+) => {$(
        #[test]
        fn $test() {
            let Some([server, client]) = managed::run($server, $client, $ready, $ends) else { return };
            let both = format!("the server said:\n{server}\nand the client:\n{client}");
            assert!($check.holds(&server, &client), "{}: {both}", $client);
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
    rping_any_v6:       RPING Ends,      "rping -s -C 10 -a ::0"                | "rping -c -v -V -C 10 -a ::1"                 => TEN;
    rping_source:       RPING Ends,      "rping -s -C 10 -a 127.0.0.1"          | "rping -c -v -V -C 10 -I 127.0.0.1 -a 127.0.0.1" => TEN;
    rping_own_pair:     RPING Ends,      "rping -s -q -C 10 -a 127.0.0.1"       | "rping -c -q -v -V -C 10 -a 127.0.0.1"        => TEN;
    rping_small:        RPING Ends,      "rping -s -C 10 -S 17 -a 127.0.0.1"    | "rping -c -V -C 10 -S 17 -a 127.0.0.1"        => Silence;
    rping_odd:          RPING Ends,      "rping -s -C 10 -S 1025 -a 127.0.0.1"  | "rping -c -V -C 10 -S 1025 -a 127.0.0.1"      => Silence;
    rping_page:         RPING Ends,      "rping -s -C 10 -S 4097 -a ::1"        | "rping -c -V -C 10 -S 4097 -a ::1"            => Silence;
    rping_large:        RPING Ends,      "rping -s -C 10 -S 65535 -a 127.0.0.1" | "rping -c -V -C 10 -S 65535 -a 127.0.0.1"     => Silence;
    rping_many:         RPING Ends,      "rping -s -C 2000 -a 127.0.0.1"        | "rping -c -V -C 2000 -a 127.0.0.1"            => Silence;
    rping_persistent:   RPING Serves(5), "rping -s -P -a 127.0.0.1"             | "rping -c -v -V -C 10 -a 127.0.0.1"           => TEN;
    ucmatose:           TCP Ends,        "ucmatose -b 127.0.0.1"                | "ucmatose -s 127.0.0.1"                       => DONE;
    ucmatose_v6:        TCP Ends,        "ucmatose -f ipv6 -b ::1"              | "ucmatose -f ipv6 -s ::1"                     => DONE;
    ucmatose_name:      TCP Ends,        "ucmatose"                             | "ucmatose -f name -s localhost"               => DONE;
    ucmatose_many:      TCP Ends,        "ucmatose -c 50 -C 20 -S 5000"         | "ucmatose -s 127.0.0.1 -c 50 -C 20 -S 5000"   => DONE;
    ucmatose_migrates:  TCP Ends,        "ucmatose -m -c 3"                     | "ucmatose -m -c 3 -s 127.0.0.1"               => DONE;
    ucmatose_options:   TCP Ends,        "ucmatose -t 32 -a 14"                 | "ucmatose -t 32 -a 14 -s 127.0.0.1"           => DONE;
    ucmatose_ib:        IB Ends,         "ucmatose -P ib"                       | "ucmatose -P ib -s 127.0.0.1"                 => DONE;
    udaddy:             UDP Ends,        "udaddy -b 127.0.0.1"                  | "udaddy -s 127.0.0.1"                         => DONE;
    udaddy_v6:          UDP Ends,        "udaddy -f ipv6 -b ::1"                | "udaddy -f ipv6 -s ::1"                       => DONE;
    udaddy_many:        UDP Ends,        "udaddy -c 5 -C 20 -S 1000"            | "udaddy -c 5 -C 20 -S 1000 -s 127.0.0.1"      => DONE;
    cmtime:             TCP Serves(2),   "cmtime"                               | "cmtime -s 127.0.0.1 -c 1000"                 => Times;
    cmtime_v6:          TCP Serves(1),   "cmtime -b ::1"                        | "cmtime -s ::1 -c 100"                        => Times;
    mckey:              GROUP Ends,      "mckey -m 239.9.8.7 -b 127.0.0.1"      | "mckey -m 239.9.8.7 -s -b 127.0.0.1"          => DONE;
    mckey_send_only:    GROUP Ends,      "mckey -m 239.9.8.7 -b 127.0.0.1"      | "mckey -m 239.9.8.7 -o -s -b 127.0.0.1"       => DONE;
    rdma_client:        TCP Ends,        "rdma_server"                          | "rdma_client -s 127.0.0.1"                    => END;
    rdma_client_v6:     TCP Ends,        "rdma_server -s ::1"                   | "rdma_client -s ::1"                          => END;
    rdma_xclient:       TCP Ends,        "rdma_xserver"                         | "rdma_xclient -s 127.0.0.1"                   => END;
    rdma_xclient_xrc:   IB Ends,         "rdma_xserver -c x"                    | "rdma_xclient -c x -s 127.0.0.1"              => END;
    // perftest refuses UC and XRC by the connection manager itself.
    write_bw:           PERFTEST EndsUnlessEarly,   "ib_write_bw -R -F -n 500"             | "ib_write_bw -R -F -n 500 127.0.0.1"          => BANDWIDTH;
    write_bw_many:      PERFTEST EndsUnlessEarly,   "ib_write_bw -R -F -n 200 -q 4"        | "ib_write_bw -R -F -n 200 -q 4 127.0.0.1"     => BANDWIDTH;
    write_lat:          PERFTEST EndsUnlessEarly,   "ib_write_lat -R -F -n 200"            | "ib_write_lat -R -F -n 200 127.0.0.1"         => LATENCY;
    read_bw:            PERFTEST EndsUnlessEarly,   "ib_read_bw -R -F -n 500"              | "ib_read_bw -R -F -n 500 127.0.0.1"           => BANDWIDTH;
    send_bw:            PERFTEST EndsUnlessEarly,   "ib_send_bw -R -F -n 500"              | "ib_send_bw -R -F -n 500 127.0.0.1"           => BANDWIDTH;
    send_bw_events:     PERFTEST EndsUnlessEarly,   "ib_send_bw -R -F -e -n 200"           | "ib_send_bw -R -F -e -n 200 127.0.0.1"        => BANDWIDTH;
    send_lat:           PERFTEST EndsUnlessEarly,   "ib_send_lat -R -F -n 200"             | "ib_send_lat -R -F -n 200 127.0.0.1"          => LATENCY;
    send_bw_ud:         PERFTEST EndsUnlessEarly, "ib_send_bw -R -F -c UD -s 1024 -n 50" | "ib_send_bw -R -F -c UD -s 1024 -n 50 127.0.0.1" => BANDWIDTH;
    send_lat_ud:        PERFTEST EndsUnlessEarly, "ib_send_lat -R -F -c UD -n 100"      | "ib_send_lat -R -F -c UD -n 100 127.0.0.1"    => LATENCY;
    atomic_bw:          PERFTEST EndsUnlessEarly,   "ib_atomic_bw -R -F -n 200"            | "ib_atomic_bw -R -F -n 200 127.0.0.1"         => BANDWIDTH;
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

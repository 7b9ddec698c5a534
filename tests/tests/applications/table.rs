//! The programs, one per line.

use super::pair::{Client, Program, Server};

/// UCX's benchmarks: name, arguments. Each runs over RC and UD, on one host and on two.
macro_rules! ucx {
    (quick $( $test:ident: $place:ident $client:ident $transports:literal $arguments:literal; )+) => {$(
        mod $test {
            ucx!(@place $place $client $transports $test $arguments);
        }
    )+};
    ($( $test:ident: $arguments:literal; )+) => {
        mod rc {
            ucx!(@place one Same "UCX_TLS=rc_v,self" $( $test $arguments )+);
            ucx!(@place two Other "UCX_TLS=rc_v,self" $( $test $arguments )+);
        }
        mod ud {
            ucx!(@place one Same "UCX_TLS=ud_v,self" $( $test $arguments )+);
            ucx!(@place two Other "UCX_TLS=ud_v,self" $( $test $arguments )+);
        }
    };
    (@place $place:ident $client:ident $transports:literal $( $test:ident $arguments:literal )+) => {
        mod $place {
            use crate::table::*;
            $(
                #[test]
                fn $test() {
                    let client = concat!("-f -n 200 -w 20 -t ", $arguments);
                    ucx(Program { client, variables: $transports, ..UCX }, Client::$client);
                }
            )+
        }
    };
}

const UCX: Program = Program {
    name: "ucx_perftest",
    server: "",
    client: "",
    variables: "",
    port: 13_337,
    end: Server::Ends,
};

fn ucx(program: Program, client: Client) {
    let Some(said) = program.run(client) else { return };
    // The last line is the result: the number of messages, and seven values.
    let mut results = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let result = results.rfind(|words| words.len() == 8 && words[0] == "200");
    let figures: Option<Vec<f64>> =
        result.and_then(|words| words.iter().map(|word| word.parse().ok()).collect());
    let overall = figures.and_then(|figures| figures.last().copied());
    assert!(overall.is_some_and(|rate| rate > 0.0), "no result: {said}");
    assert!(!said.contains("ERROR") && !said.contains("WARN"), "{said}");
}

// One of every kind.
#[rustfmt::skip]
ucx! {
    quick
    tag_large:          one Same  "UCX_TLS=rc_v,self" "tag_bw -s 300000";
    put:                two Other "UCX_TLS=rc_v,self" "ucp_put_bw -s 100000";
    get:                one Same  "UCX_TLS=ud_v,self" "ucp_get -s 100000";
    message_latency:    two Other "UCX_TLS=ud_v,self" "ucp_am_lat";
    stream:             one Same  "UCX_TLS=rc_v,self" "stream_bw -s 100000";
    compare_and_swap:   two Other "UCX_TLS=rc_v,self" "ucp_cswap";
}

/// Other pairs: name, the client's host, program, arguments, expected output.
macro_rules! pairs {
    ($( $test:ident: $client:ident $program:expr, $arguments:expr => $check:expr; )+) => {$(
        #[test]
        fn $test() {
            let program = Program { client: $arguments, ..$program };
            let Some(said) = program.run(Client::$client) else { return };
            assert!($check(&said), "{said}");
        }
    )+};
}

/// Its server serves any number of clients.
const QPERF: Program = Program {
    name: "qperf",
    server: "",
    client: "",
    variables: "",
    port: 19_765,
    end: Server::Waits,
};

/// For datagrams it knows LIDs only, which address handles on Ethernet do not have.
const QPERF_LOOPBACK: Program = Program { variables: "FERROCE_DEVICES=lo", ..QPERF };

/// Whether each of these has a positive value, as in `bw  =  1.2 GB/sec`.
fn measured(said: &str, names: &[&str]) -> bool {
    let value = |name: &&str| {
        let mut lines = said.lines().filter_map(|line| line.split_once('='));
        let (_, value) = lines.find(|(left, _)| left.trim() == *name)?;
        value.split_whitespace().next()?.parse::<f64>().ok()
    };
    names.iter().all(|name| value(name).is_some_and(|value| value > 0.0))
}
fn bandwidth(said: &str) -> bool {
    measured(said, &["bw"])
}
fn both_bandwidths(said: &str) -> bool {
    measured(said, &["send_bw", "recv_bw"])
}
fn latency(said: &str) -> bool {
    measured(said, &["latency"])
}
fn rate(said: &str) -> bool {
    measured(said, &["msg_rate"])
}

const PINGPONG: Program = Program {
    name: "fi_pingpong",
    server: "",
    client: "",
    variables: "",
    port: 47_592,
    end: Server::Ends,
};
const MSG: Program = Program { server: "-p verbs -e msg -I 20 -c", ..PINGPONG };
const RDM: Program = Program { server: "-p verbs;ofi_rxm -e rdm -I 20 -c", ..PINGPONG };
const TAGGED: Program =
    Program { server: "-p verbs;ofi_rxm -e rdm -m tagged -I 20 -c", ..PINGPONG };
const DATAGRAMS: Program = Program { server: "-p verbs -e dgram -I 20 -c", ..PINGPONG };

/// Whether messages of these sizes were sent, and as many acknowledged; the program compares their contents (`-c`).
fn all_sizes(said: &str, sizes: &[&str]) -> bool {
    sizes.iter().all(|size| {
        said.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() > 3 && words[0] == *size && words[1] == "20" && words[2] == "=20"
        })
    })
}
fn up_to_a_mebibyte(said: &str) -> bool {
    all_sizes(said, &["64", "256", "1k", "4k", "64k", "1m"])
}
/// What fits into a packet on Ethernet.
fn up_to_a_kibibyte(said: &str) -> bool {
    all_sizes(said, &["64", "256", "1k"])
}

#[rustfmt::skip]
pairs! {
    qperf_rc_bw_lids:       Same  QPERF, "-t 1 @ rc_bw"                     => bandwidth;
    qperf_rc_lat_two:       Other QPERF, "-t 1 -cm1 @ rc_lat"               => latency;
    qperf_uc_bw:            Same  QPERF, "-t 1 @ uc_bw"                     => both_bandwidths;
    qperf_write_bw_two:     Other QPERF, "-t 1 -cm1 @ rc_rdma_write_bw"     => bandwidth;
    qperf_swap_mr:          Same  QPERF, "-t 1 -cm1 @ rc_compare_swap_mr"   => rate;
    libfabric_msg:          Same  MSG, MSG.server                           => up_to_a_mebibyte;
    libfabric_rdm_two:      Other RDM, RDM.server                           => up_to_a_mebibyte;
    libfabric_dgram:        Same  DATAGRAMS, DATAGRAMS.server               => up_to_a_kibibyte;
}

mod full {
    use super::*;

    #[rustfmt::skip]
    ucx! {
        tag_latency:        "tag_lat";
        tag:                "tag_bw -s 2000";
        tag_large:          "tag_bw -s 300000";
        tag_synchronous:    "tag_sync_lat";
        put_latency:        "ucp_put_lat";
        put:                "ucp_put_bw -s 100000";
        get:                "ucp_get -s 100000";
        message_latency:    "ucp_am_lat";
        message:            "ucp_am_bw -s 100000";
        stream_latency:     "stream_lat";
        stream:             "stream_bw -s 100000";
        add:                "ucp_add";
        fetch_and_add:      "ucp_fadd";
        swap:               "ucp_swap";
        compare_and_swap:   "ucp_cswap";
    }

    #[rustfmt::skip]
    pairs! {
        // The connection manager carries qperf's reliable connections between hosts, as on all RoCE. Without it, it knows
        // LIDs alone, and they lead nowhere but to the host itself.
        qperf_rc_bw:            Same  QPERF, "-t 1 -cm1 @ rc_bw"                => bandwidth;
        qperf_rc_bw_two:        Other QPERF, "-t 1 -cm1 @ rc_bw"                => bandwidth;
        qperf_rc_lat:           Same  QPERF, "-t 1 -cm1 @ rc_lat"               => latency;
        qperf_ud_bw:            Same  QPERF_LOOPBACK, "-t 1 @ ud_bw"            => both_bandwidths;
        qperf_write_bw:         Same  QPERF, "-t 1 -cm1 @ rc_rdma_write_bw"     => bandwidth;
        qperf_read_bw:          Same  QPERF, "-t 1 -cm1 @ rc_rdma_read_bw"      => bandwidth;
        qperf_read_bw_two:      Other QPERF, "-t 1 -cm1 @ rc_rdma_read_bw"      => bandwidth;
        qperf_swap_mr_two:      Other QPERF, "-t 1 -cm1 @ rc_compare_swap_mr"   => rate;
        libfabric_msg_two:      Other MSG, MSG.server                           => up_to_a_mebibyte;
        libfabric_rdm:          Same  RDM, RDM.server                           => up_to_a_mebibyte;
        libfabric_tagged:       Same  TAGGED, TAGGED.server                     => up_to_a_mebibyte;
        libfabric_tagged_two:   Other TAGGED, TAGGED.server                     => up_to_a_mebibyte;
        libfabric_dgram_two:    Other DATAGRAMS, DATAGRAMS.server               => up_to_a_kibibyte;
    }
}

/// Programs without another end: name, program, arguments, all of what it must have printed.
macro_rules! programs {
    ($( $test:ident: $program:literal $arguments:literal => $texts:expr; )+) => {$(
        #[test]
        fn $test() {
            let Some(said) = Program::alone($program, $arguments) else { return };
            for text in $texts {
                assert!(said.contains(text), "no {text}: {said}");
            }
        }
    )+};
}

#[rustfmt::skip]
programs! {
    ucx_devices:        "ucx_info" "-d"         => ["Memory domain: ferroce_eth0",
                                                    "Transport: rc_verbs", "Transport: ud_verbs", "Device: ferroce_eth0:1"];
    libfabric_devices:  "fi_info" "-p verbs"    => ["domain: ferroce_eth0\n", "FI_PROTO_RDMA_CM_IB_RC", "FI_PROTO_IB_UD",
                                                    "provider: verbs;ofi_rxm"];
    libfabric_loopback: "fi_info" "-p verbs -n 127.0.0.1" => ["domain: ferroce_eth0\n", "type: FI_EP_MSG", "type: FI_EP_RDM"];
}

//! A program that ends right after it has disconnected. Nobody says it again for a process that is gone, as a kernel would.

use ferroce_tests::managed::{self, Ready, Server};

/// The server loses a quarter of what reaches it. With these seeds that was, among others, the news of the end, and it
/// waited for ever.
#[test]
fn the_end_is_heard_though_packets_are_lost() {
    for seed in [2, 6, 9] {
        let server =
            format!("env FERROCE_FAULTS=loss=25%,seed={seed} rping -s -a 127.0.0.1 -C 1 -V");
        let client = "rping -c -a 127.0.0.1 -C 1 -V";
        if managed::run(&server, client, Ready::Listens(7174), Server::Ends).is_none() {
            return;
        }
    }
}

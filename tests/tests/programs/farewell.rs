//! A program that exits immediately after disconnecting. Unlike with a kernel, nothing retransmits on behalf of a
//! process that has exited.

use ferroce_tests::managed::{self, Ready, Server};

/// The server loses a quarter of the packets it receives. With these seeds that included the disconnect request, and it
/// used to wait forever.
#[test]
fn a_disconnect_is_received_despite_packet_loss() {
    for seed in [2, 6, 9] {
        let server =
            format!("env FERROCE_FAULTS=loss=25%,seed={seed} rping -s -a 127.0.0.1 -C 1 -V");
        let client = "rping -c -a 127.0.0.1 -C 1 -V";
        if managed::run(&server, client, Ready::Listens(7174), Server::Ends).is_none() {
            return;
        }
    }
}

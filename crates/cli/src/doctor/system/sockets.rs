//! What the sockets of a device will be able to do: asked of the kernel by opening one.

use std::net::SocketAddr;

use ferroce_sys::{Options, Socket};

/// Features of a socket, and the sizes of its buffers as the kernel counts them: twice the usable bytes (socket(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct SocketFacts {
    pub(in crate::doctor) gso: bool,
    pub(in crate::doctor) gro: bool,
    pub(in crate::doctor) steering: bool,
    pub(in crate::doctor) marks: bool,
    pub(in crate::doctor) receive_buffer: usize,
    pub(in crate::doctor) send_buffer: usize,
    /// The sizes that Ferroce requests, counted the same way.
    pub(in crate::doctor) receive_wanted: usize,
    pub(in crate::doctor) send_wanted: usize,
}

/// Opens a socket at a free port of this address, as a device does at port 4791. Steering needs a shared port, so it is
/// tried at the port of the pair that the kernel returned first.
pub(super) fn probe(address: SocketAddr) -> Result<SocketFacts, String> {
    let options = Options::default();
    let text = |error: ferroce_sys::Error| error.to_string();
    let mut free = address;
    free.set_port(0);
    let port = Socket::open(free, &options).map_err(text)?.port();
    free.set_port(port);
    let socket = Socket::open(free, &options).map_err(text)?;
    let features = socket.features();
    Ok(SocketFacts {
        gso: features.gso,
        gro: features.gro,
        steering: features.steering,
        marks: features.packet_marks,
        receive_buffer: features.receive_buffer,
        send_buffer: features.send_buffer,
        receive_wanted: 2 * options.receive_buffer,
        send_wanted: 2 * options.send_buffer,
    })
}

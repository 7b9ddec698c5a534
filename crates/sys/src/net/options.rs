//! What to ask of the kernel, and what it gave.

/// What a socket shall use. The default is everything; a test switches off what it wants to do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Segmentation by the kernel: one system call for many packets (`UDP_SEGMENT`, Linux 4.18).
    pub gso: bool,
    /// Packets of one flow received as one (`UDP_GRO`, Linux 5.0).
    pub gro: bool,
    /// Packets go to the process that their queue pair belongs to (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5).
    pub steering: bool,
    /// Each packet comes with the address it was sent to and its interface.
    pub packet_info: bool,
    /// Each packet comes with its type of service, where ECN is, and its hop limit.
    pub packet_marks: bool,
    /// IPv6 packets without a UDP checksum are welcome, as rdma_rxe and hardware send them.
    pub zero_checksum: bool,
    /// Other processes of this user may bind the same address and port.
    pub shared: bool,
    /// Bytes of packets that may wait to be received. As many as the kernel allows, if that is less.
    pub receive_buffer: usize,
    /// Bytes of packets that may wait to be sent. As many as the kernel allows, if that is less.
    pub send_buffer: usize,
    /// Go beyond the limits `net.core.rmem_max` and `wmem_max` where we are privileged to.
    pub force_buffers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gso: true,
            gro: true,
            steering: true,
            packet_info: true,
            packet_marks: true,
            zero_checksum: true,
            shared: true,
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            force_buffers: true,
        }
    }
}

/// What a socket really uses: what was asked for, less what the kernel does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// See [`Options::gso`]. [`crate::Socket::gso`] tells whether it still is on.
    pub gso: bool,
    /// See [`Options::gro`].
    pub gro: bool,
    /// See [`Options::steering`]: without it any process may receive any packet, and forwards it.
    pub steering: bool,
    /// See [`Options::packet_info`]: without it a packet's destination is the socket's address.
    pub packet_info: bool,
    /// See [`Options::packet_marks`]: without it every packet seems unmarked.
    pub packet_marks: bool,
    /// See [`Options::zero_checksum`]; always so with IPv4.
    pub zero_checksum: bool,
    /// What the kernel counts against waiting packets, its own overhead included.
    pub receive_buffer: usize,
    /// The same for sending.
    pub send_buffer: usize,
}

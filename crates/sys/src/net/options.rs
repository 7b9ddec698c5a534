//! Kernel features that a socket requests, and those it has.

/// Features that a socket requests. The default is all of them; tests disable some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Segmentation offload: one system call sends many packets (`UDP_SEGMENT`, Linux 4.18).
    pub gso: bool,
    /// Receive offload: packets of one flow are coalesced (`UDP_GRO`, Linux 5.0).
    pub gro: bool,
    /// The kernel delivers packets to the process that owns their queue pair (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5).
    pub steering: bool,
    /// Report the destination address and interface of each packet.
    pub packet_info: bool,
    /// Report the type of service, which contains ECN, and the hop limit of each packet.
    pub packet_marks: bool,
    /// Accept IPv6 packets without a UDP checksum, which rdma_rxe and hardware send.
    pub zero_checksum: bool,
    /// Other processes of the same user may bind the same address and port.
    pub shared: bool,
    /// Size of the receive buffer in bytes, up to the kernel's limit.
    pub receive_buffer: usize,
    /// Size of the send buffer in bytes, up to the kernel's limit.
    pub send_buffer: usize,
    /// Exceed the limits `net.core.rmem_max` and `wmem_max` if the process is privileged.
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

/// Features that a socket has: those requested, less those that the kernel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// See [`Options::gso`]. [`crate::Socket::gso`] returns whether it is still on.
    pub gso: bool,
    /// See [`Options::gro`].
    pub gro: bool,
    /// See [`Options::steering`]: without it any process may receive a packet, and forwards it to its owner.
    pub steering: bool,
    /// See [`Options::packet_info`]: without it the destination of a packet is the socket's address.
    pub packet_info: bool,
    /// See [`Options::packet_marks`]: without it the type of service of every packet is reported as 0.
    pub packet_marks: bool,
    /// See [`Options::zero_checksum`]; always true for IPv4.
    pub zero_checksum: bool,
    /// Size of the receive buffer in bytes, including the kernel's overhead.
    pub receive_buffer: usize,
    /// Size of the send buffer in bytes, including the kernel's overhead.
    pub send_buffer: usize,
}

//! Builds captures packet by packet.

use ferroce_wire::address::{Gid, Ip4};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::infiniband::Grh;
use ferroce_wire::ip::{Ecn, Identification, IpProtocol, Ipv4, Udp};
use ferroce_wire::number::{Msn, Psn, Qpn, RKey, SrqNumber, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, AtomicEth, Bth, Deth, Feth, Reth, Xrceth};

use crate::analysis::report::FileReport;
use crate::analysis::{Options, analyze};
use crate::file::{Packet as Captured, PcapWriter, Timestamp};
use crate::link::LinkType;

pub(super) const A: [u8; 4] = [10, 0, 0, 1];
pub(super) const B: [u8; 4] = [10, 0, 0, 2];

/// A capture under construction, with packets 10 µs apart.
pub(super) struct CaptureBuilder {
    pub(super) writer: PcapWriter<Vec<u8>>,
    pub(super) time: i64,
    pub(super) ecn: Ecn,
    pub(super) ack_request: bool,
    pub(super) v1: bool,
}

impl CaptureBuilder {
    pub(super) fn new() -> Self {
        let writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET).unwrap();
        Self { writer, time: 0, ecn: Ecn(0), ack_request: false, v1: false }
    }

    pub(super) fn wait(&mut self, nanoseconds: i64) {
        self.time += nanoseconds;
    }

    /// Adds a packet with the extension headers of its opcode, set to defaults.
    pub(super) fn send(
        &mut self,
        from: [u8; 4],
        qpn: u32,
        opcode: Opcode,
        psn: u32,
        len: usize,
    ) -> &mut Self {
        self.send_with(from, qpn, opcode, psn, len, |_| ())
    }

    pub(super) fn send_with(
        &mut self,
        from: [u8; 4],
        qpn: u32,
        opcode: Opcode,
        psn: u32,
        len: usize,
        edit: impl FnOnce(&mut ExtensionHeaders),
    ) -> &mut Self {
        let reth = Reth { address: VirtualAddress(0x1000), key: RKey(7), length: len as u32 };
        let mut extensions = ExtensionHeaders {
            reth: Some(reth),
            aeth: Some(Aeth { syndrome: Syndrome::ACK, msn: Msn(1) }),
            deth: Some(Deth { source: Qpn(0x99), ..Deth::default() }),
            xrceth: Some(Xrceth { receive_queue: SrqNumber(0x55), ..Xrceth::default() }),
            feth: Some(Feth::default()),
            atomic: Some(AtomicEth::default()),
            atomic_ack: Some(Default::default()),
            immediate: Some(Default::default()),
            ieth: Some(Default::default()),
            rdeth: Some(Default::default()),
        };
        edit(&mut extensions);
        keep(&mut extensions, opcode);
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        self.frame(from, qpn, opcode, psn, extensions, &data)
    }

    /// Returns the bytes of one frame.
    pub(super) fn one_frame(from: [u8; 4], qpn: u32, opcode: Opcode, psn: u32) -> Vec<u8> {
        let mut wire = Self::new();
        wire.send(from, qpn, opcode, psn, 0);
        // After the file and record headers.
        wire.writer.finish().unwrap().split_off(24 + 16)
    }

    /// Adds a datagram with this payload.
    pub(super) fn datagram(&mut self, from: [u8; 4], qpn: u32, data: &[u8]) -> &mut Self {
        let deth = Some(Deth { source: Qpn(1), ..Deth::default() });
        let extensions = ExtensionHeaders { deth, ..ExtensionHeaders::default() };
        self.frame(from, qpn, Opcode::UD_SEND_ONLY, 0, extensions, data)
    }

    pub(super) fn frame(
        &mut self,
        from: [u8; 4],
        qpn: u32,
        opcode: Opcode,
        psn: u32,
        extensions: ExtensionHeaders,
        data: &[u8],
    ) -> &mut Self {
        let to = if from == A { B } else { A };
        let pad = data.len().wrapping_neg() % 4;
        let bth = Bth {
            opcode,
            pad: pad as u8,
            destination: Qpn(qpn),
            psn: Psn::new(psn),
            ack_request: self.ack_request,
            ..Bth::default()
        };
        let packet = Packet {
            bth,
            extensions,
            payload: data,
            payload_len: data.len(),
            pad: &[0; 3][..pad],
            icrc: None,
        };
        let udp_len = Udp::LEN + packet.wire_len();
        let network = if self.v1 {
            Network::Grh(Grh {
                version: 6,
                payload_length: packet.wire_len() as u16,
                next_header: IpProtocol::BTH,
                source: Gid::from_ip(from.into()),
                destination: Gid::from_ip(to.into()),
                ..Grh::default()
            })
        } else {
            let ip = Ipv4 {
                version: 4,
                header_words: 5,
                ecn: self.ecn,
                total_length: (Ipv4::LEN + udp_len) as u16,
                identification: Identification(0),
                dont_fragment: true,
                time_to_live: 64,
                protocol: IpProtocol::UDP,
                source: Ip4(from),
                destination: Ip4(to),
                ..Ipv4::default()
            };
            Network::Ipv4(ip.with_checksum(), &[])
        };
        let udp = Udp {
            source_port: 50_000,
            destination_port: 4791,
            length: udp_len as u16,
            ..Udp::default()
        };
        let ethertype = if self.v1 { EtherType::ROCE_V1 } else { EtherType::IPV4 };
        let frame = Frame {
            ethernet: Some(Ethernet { ethertype, ..Ethernet::default() }),
            network: Some(network),
            udp: (!self.v1).then_some(udp),
            packet: Some(packet),
            ..Frame::default()
        };
        let mut out = vec![0; data.len() + 256];
        let len = frame.emit(&mut out).expect("the frame is whole");
        self.raw(&out[..len], len as u32)
    }

    pub(super) fn raw(&mut self, bytes: &[u8], original_len: u32) -> &mut Self {
        self.time += 10_000;
        let packet =
            Captured::new(Timestamp::from_nanoseconds(self.time), bytes).cut_from(original_len);
        self.writer.write(&packet).unwrap();
        self
    }

    pub(super) fn ack(&mut self, from: [u8; 4], qpn: u32, psn: u32) -> &mut Self {
        self.send(from, qpn, Opcode::RC_ACKNOWLEDGE, psn, 0)
    }

    pub(super) fn report(self) -> FileReport {
        self.report_with(&Options::default())
    }

    pub(super) fn report_with(self, options: &Options) -> FileReport {
        let bytes = self.writer.finish().unwrap();
        analyze("synthetic", &*bytes, options, &mut |_| ())
    }
}

/// Removes the extension headers that the opcode does not have.
fn keep(extensions: &mut ExtensionHeaders, opcode: Opcode) {
    let set = opcode.info().map(|info| info.extensions).unwrap_or_default();
    let mut bytes = [0; 256];
    let len = extensions.emit(set, &mut bytes).expect("all headers are there");
    let mut whole = vec![0; 12 + len + 4];
    whole[0] = opcode.0;
    whole[12..12 + len].copy_from_slice(&bytes[..len]);
    *extensions = Packet::parse(&whole).unwrap().extensions;
}

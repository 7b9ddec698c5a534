//! How the two ends of an example are connected.

use ferroce::{
    AckTimeout, AddressVector, AttributeMask, Faults, PathMtu, Psn, QKey, Qpn, QueuePair,
    QueuePairAttributes, RnrRetry, RnrTimer, ServiceType, State, rule,
};

use super::{ACCESS, Lab, Outcome, device, text};

/// The Q_Key of the UD examples.
pub(super) const QUEUE_KEY: QKey = QKey(0x1111_1111);

/// The first PSN of both directions.
pub(super) const FIRST_PSN: Psn = Psn(0x00_1000);

/// 0.5 s: nothing that has to arrive takes that long, even on a busy host (IBA 9.7.6.1.3).
const LONG: AckTimeout = AckTimeout(17);
/// 8 ms.
pub(super) const SHORT: AckTimeout = AckTimeout(11);

/// The parameters of a connection.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) service: ServiceType,
    /// Faults in the packets that the device receives: requests and responses.
    pub(super) faults: Option<Faults>,
    pub(super) timeout: AckTimeout,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    /// The difference of the first PSN that A sends from the one that B expects.
    pub(super) psn_offset: u32,
    /// Let A send to a QP that does not exist.
    pub(super) to_nobody: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            service: ServiceType::ReliableConnection,
            faults: None,
            timeout: LONG,
            retries: 7,
            rnr_retries: 7,
            psn_offset: 0,
            to_nobody: false,
        }
    }
}

impl Setup {
    pub(super) fn of(service: ServiceType) -> Self {
        Self { service, ..Self::default() }
    }

    /// Loses the packet with this number that the device receives, and no other of the first 300.
    pub(super) fn losing(packet: usize) -> Self {
        // Found by trying: with this rate, these seeds choose the first, second and third packet.
        let seed = [1004, 557, 1133].get(packet - 1).copied().unwrap_or(0);
        let faults = Faults { loss: 5000, seed, ..Faults::default() };
        Self { faults: Some(faults), ..Self::default() }
    }

    /// Brings the QPs of both ends to RTS.
    pub(super) fn connect(&self, lab: &Lab) -> Outcome<()> {
        let [a, b] = lab.ends.each_ref().map(|end| &end.queue_pair);
        let nobody = Qpn(b.number().0 ^ 0x5555);
        let to = if self.to_nobody { nobody } else { b.number() };
        self.bring_up(a, to, self.psn_offset)?;
        self.bring_up(b, a.number(), 0)
    }

    /// The attributes of all transitions from RESET to RTS.
    pub(super) fn attributes(&self, peer: Qpn, psn_offset: u32) -> Outcome<QueuePairAttributes> {
        let (device, index) = device()?;
        let gid = device.gids().get(usize::from(index)).map(|entry| entry.gid);
        let path = AddressVector {
            port: 1,
            source_index: index,
            destination: gid.ok_or("the loopback has no address")?,
            ..AddressVector::default()
        };
        Ok(QueuePairAttributes {
            access: Some(ACCESS),
            partition: Some(0),
            port: Some(1),
            queue_key: Some(QUEUE_KEY),
            path: Some(path),
            path_mtu: PathMtu::from_bytes(1024),
            destination: Some(peer),
            receive_psn: Some(FIRST_PSN),
            send_psn: Some(Psn((FIRST_PSN.0 + psn_offset) & 0xff_ffff)),
            max_rd_atomic: Some(4),
            max_dest_rd_atomic: Some(4),
            // 0.64 ms (IBA table 45).
            min_rnr_timer: RnrTimer::from_code(12),
            timeout: Some(self.timeout),
            retry_count: Some(self.retries),
            rnr_retry: Some(RnrRetry(self.rnr_retries)),
            ..QueuePairAttributes::default()
        })
    }

    pub(super) fn bring_up(
        &self,
        queue_pair: &QueuePair,
        peer: Qpn,
        psn_offset: u32,
    ) -> Outcome<()> {
        let all = self.attributes(peer, psn_offset)?;
        let states = [State::Reset, State::Init, State::ReadyToReceive, State::ReadyToSend];
        for step in states.windows(2) {
            change(queue_pair, &all, step[0], step[1])?;
        }
        Ok(())
    }
}

/// Changes the state of a QP with the attributes that the state table requires; returns their names.
pub(super) fn change(
    queue_pair: &QueuePair,
    all: &QueuePairAttributes,
    from: State,
    to: State,
) -> Outcome<Vec<&'static str>> {
    let mut change = QueuePairAttributes { state: Some(to), ..*all };
    let required = rule(queue_pair.service(), from, to).map(|rule| rule.required);
    let required = required.unwrap_or(AttributeMask::STATE);
    change.clear(change.attributes() - required - AttributeMask::STATE);
    queue_pair.modify(&change).map_err(text)?;
    Ok((required - AttributeMask::STATE).iter().map(|attribute| attribute.name()).collect())
}

//! UD: whole datagrams, at the right receivers.

use ferroce_proto::ud::GRH_LEN;
use ferroce_proto::work::Status;

use super::{ExpectedMemory, ProgramResult, Verifier};
use crate::rdma::layout::{address, qpn};
use crate::rdma::program::DatagramProgram;

impl Verifier<'_> {
    pub(super) fn datagrams(
        &mut self,
        number: usize,
        datagrams: &DatagramProgram,
    ) -> ProgramResult {
        let mut result = ProgramResult::default();
        if let Some(endpoint) = self.endpoint(datagrams.active) {
            let Some(found) = self.completions(number, endpoint, &datagrams.steps, false) else {
                return result;
            };
            result = found;
            if self.region(datagrams.active, datagrams.region) != Some(&datagrams.before) {
                self.report(number, "the sender's memory changed".to_owned());
            }
        }
        for at in 0..datagrams.passive.len() {
            self.receiver(number, datagrams, at, result.succeeded);
        }
        result
    }

    fn receiver(&mut self, connection: usize, datagrams: &DatagramProgram, at: usize, sent: usize) {
        let (region, before) = &datagrams.receive_regions[at];
        let Some(endpoint) = self.endpoint(datagrams.passive[at]) else { return };
        let Some(found) = self.region(datagrams.passive[at], *region) else { return };
        let mut image = ExpectedMemory::new(before);
        let mut count = vec![0u32; datagrams.messages.len()];
        for completion in &endpoint.receive_completions {
            let buffer = datagrams.buffers.get(completion.id.0 as usize);
            let (Some(&(start, _)), Status::Success) = (buffer, completion.status) else {
                self.report(
                    connection,
                    format!("wrong receive completion of a datagram: {completion:?}"),
                );
                continue;
            };
            let length = completion.length as usize;
            image.accept(start, length, found);
            let (header, body) = found[start..start + length].split_at(GRH_LEN.min(length));
            let source = completion.source == Some(qpn(datagrams.active.index));
            // The source address of the IPv4 header, which is in the last 20 of the first 40 bytes.
            let from = header.get(32..36) == Some(&address(datagrams.active.host).octets()[..]);
            let is = datagrams.messages.iter().position(|message| {
                message.length == body.len()
                    && message.immediate == completion.immediate
                    && datagrams.before[message.from..][..message.length] == *body
            });
            match is {
                Some(index) if source && from && datagrams.messages[index].deliverable => {
                    count[index] += 1;
                }
                _ => self.report(
                    connection,
                    format!("received a datagram that was not sent: {completion:?}"),
                ),
            }
        }
        let twice = count.iter().any(|&count| count > 1);
        if twice && !self.network.duplicated {
            self.report(connection, "a datagram was received twice".to_owned());
        }
        let sender_lives = self.hosts[datagrams.active.host].is_some();
        for (index, message) in datagrams.messages.iter().enumerate() {
            let certain = self.network.faultless && sender_lives && index < sent;
            if certain && message.deliverable && count[index] == 0 {
                self.report(connection, format!("datagram {index} was not received"));
            }
        }
        if let Some(what) = image.compare(found) {
            self.report(connection, format!("the receiver's memory has {what}"));
        }
    }
}

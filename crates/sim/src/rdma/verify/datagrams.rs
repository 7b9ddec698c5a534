//! UD: whole datagrams, never merged, to whom they are for.

use ferroce_proto::ud::GRH_LEN;
use ferroce_proto::work::Status;

use super::{Image, Judge, Progress};
use crate::rdma::host::number;
use crate::rdma::plan::address;
use crate::rdma::program::Datagrams;

impl Judge<'_> {
    pub(super) fn datagrams(&mut self, number: usize, datagrams: &Datagrams) -> Progress {
        let mut progress = Progress::default();
        if let Some(end) = self.end(datagrams.active) {
            let Some(found) = self.completions(number, end, &datagrams.steps, false) else {
                return progress;
            };
            progress = found;
            if self.region(datagrams.active, datagrams.region) != Some(&datagrams.before) {
                self.say(number, "the sender's memory changed".to_owned());
            }
        }
        for at in 0..datagrams.passive.len() {
            self.receiver(number, datagrams, at, progress.succeeded);
        }
        progress
    }

    fn receiver(&mut self, connection: usize, datagrams: &Datagrams, at: usize, sent: usize) {
        let (region, before) = &datagrams.received[at];
        let Some(end) = self.end(datagrams.passive[at]) else { return };
        let Some(found) = self.region(datagrams.passive[at], *region) else { return };
        let mut image = Image::new(before);
        let mut count = vec![0u32; datagrams.messages.len()];
        for completion in &end.received {
            let place = datagrams.buffers.get(completion.id.0 as usize);
            let (Some(&(start, _)), Status::Success) = (place, completion.status) else {
                self.say(connection, format!("a datagram's receive is {completion:?}"));
                continue;
            };
            let length = completion.length as usize;
            image.leave(start, length, found);
            let (header, body) = found[start..start + length].split_at(GRH_LEN.min(length));
            let source = completion.source == Some(number(datagrams.active.end));
            // The IPv4 header in the last 20 bytes of the first 40: its source address.
            let from = header.get(32..36) == Some(&address(datagrams.active.host).octets()[..]);
            let is = datagrams.messages.iter().position(|message| {
                message.length == body.len()
                    && message.immediate == completion.immediate
                    && datagrams.before[message.from..][..message.length] == *body
            });
            match is {
                Some(index) if source && from && datagrams.messages[index].admitted => {
                    count[index] += 1;
                }
                _ => self.say(connection, format!("no such datagram was sent: {completion:?}")),
            }
        }
        let twice = count.iter().any(|&count| count > 1);
        if twice && !self.network.duplicated {
            self.say(connection, "a datagram came twice".to_owned());
        }
        let sender_lives = self.hosts[datagrams.active.host].is_some();
        for (index, message) in datagrams.messages.iter().enumerate() {
            let certain = self.network.faultless && sender_lives && index < sent;
            if certain && message.admitted && count[index] == 0 {
                self.say(connection, format!("datagram {index} did not come"));
            }
        }
        if let Some(what) = image.compare(found) {
            self.say(connection, format!("the receiver's memory has {what}"));
        }
    }
}

//! Errors, losses and congestion, each provoked.

use ferroce::{
    AccessFlags, Data, Immediate, LKey, Operation, QueuePairAttributes, RKey, ReceiveRequest,
    RemoteAddress, Sge, State, WindowKind, WorkId,
};

use super::scenario::LONG;
use super::setup::{SHORT, Setup};
use super::{Lab, Outcome, Record, forge, text};

pub(super) fn wrong_rkey() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let right = lab.ends[1].region.remote(0);
    let remote = RemoteAddress { key: RKey(right.key.0 ^ 0xff), ..right };
    lab.say(format!("the rkey of B's memory is {:#010x}; A uses another one", right.key.0));
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.say(format!("A's QP is in {}", lab.ends[0].queue_pair.state().name()));
    lab.finish()
}

pub(super) fn wrong_rkey_immediate() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.receive(256)?;
    let right = lab.ends[1].region.remote(0);
    let remote = RemoteAddress { key: RKey(right.key.0 ^ 0xff), ..right };
    lab.post(Operation::Write { remote, immediate: Some(Immediate(0x2a)) }, 0, 64)?;
    lab.complete(0)?;
    lab.complete(1)?;
    lab.finish()
}

pub(super) fn wrong_lkey() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let right = lab.ends[0].region.sge(0, 64);
    let sge = Sge { key: LKey(right.key.0 ^ 0xff), ..right };
    let remote = lab.ends[1].region.remote(0);
    lab.say(format!("the lkey of A's memory is {:#010x}; A uses {:#010x}", right.key.0, sge.key.0));
    lab.post_data(0, Operation::Write { remote, immediate: None }, Data::SgList(sge.into()))?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn wrong_lkey_receive() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let right = lab.ends[1].region.sge(0, 256);
    let sge = Sge { key: LKey(right.key.0 ^ 0xff), ..right };
    let request = ReceiveRequest { id: WorkId(2), sg_list: sge.into() };
    lab.ends[1].queue_pair.post_receive(request).map_err(text)?;
    lab.say("B posts a receive buffer with an lkey that does not exist");
    lab.post(Operation::SEND, 0, 64)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn short_receive() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.receive(16)?;
    lab.post(Operation::SEND, 0, 64)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn bad_invalidate() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.post_data(0, Operation::LocalInvalidate { key: RKey(0xdead_be00) }, Data::NONE)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn bad_bind() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let a = &lab.ends[0];
    let region = a.pd.allocate(4096, AccessFlags::LOCAL_WRITE).map_err(text)?;
    let window = a.pd.window(WindowKind::Type2).map_err(text)?;
    let bind = window.bind(&region, 0, 64, AccessFlags::REMOTE_WRITE);
    lab.say("A's memory was registered without MW_BIND");
    lab.post_data(0, bind, Data::NONE)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn flushed() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.receive(256)?;
    let error = QueuePairAttributes { state: Some(State::Error), ..Default::default() };
    lab.ends[1].queue_pair.modify(&error).map_err(text)?;
    lab.say("B modifies its QP to ERR");
    lab.complete(1)?;
    lab.finish()
}

pub(super) fn nobody() -> Outcome<Record> {
    let setup = Setup { to_nobody: true, timeout: SHORT, retries: 2, ..Setup::default() };
    let mut lab = Lab::start(&setup)?;
    lab.others = vec![lab.ends[1].queue_pair.number().0 ^ 0x5555];
    lab.say("A is connected to a QP that does not exist; timeout 8.4 ms, retry_cnt 2");
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.say(format!("A's QP is in {}", lab.ends[0].queue_pair.state().name()));
    lab.finish()
}

pub(super) fn not_ready() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.say("B has posted no receive buffer");
    lab.post(Operation::SEND, 0, 64)?;
    lab.counted("rnr_nak_retry_err")?;
    lab.receive(256)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn never_ready() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup { rnr_retries: 2, ..Setup::default() })?;
    lab.say("B posts no receive buffer; rnr_retry 2");
    lab.post(Operation::SEND, 0, 64)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn lost_request() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::losing(2))?;
    lab.say("the second packet is lost on purpose");
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, LONG)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn lost_response() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::losing(3))?;
    lab.say("the second packet of the response is lost on purpose");
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Read { remote }, 0, LONG)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn lost_acknowledgement() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup { timeout: SHORT, ..Setup::losing(2) })?;
    lab.say("the ACK is lost on purpose; timeout 8.4 ms");
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn out_of_window() -> Outcome<Record> {
    // More than 2^22 packets ahead of what B expects.
    let setup = Setup { psn_offset: 1 << 23, timeout: SHORT, retries: 1, ..Setup::default() };
    let mut lab = Lab::start(&setup)?;
    lab.say("A starts with a PSN that is 2^23 away from the one B expects");
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.finish()
}

pub(super) fn marked() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 4)?;
    lab.complete(0)?;
    lab.say("the next packet of the connection, forged because programs cannot set the mark, arrives with \"congestion experienced\", as if a switch had marked it");
    forge::marked_write(lab.ends[1].queue_pair.number(), remote)?;
    lab.counted("rp_cnp_handled")?;
    lab.say("B has sent a CNP, and A has slowed down");
    lab.finish()
}

/// An atomic response to a READ.
pub(super) fn bad_response() -> Outcome<Record> {
    let setup = Setup { to_nobody: true, ..Setup::default() };
    let mut lab = Lab::start(&setup)?;
    lab.others = vec![lab.ends[1].queue_pair.number().0 ^ 0x5555];
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Read { remote }, 0, 64)?;
    lab.say("a forged peer answers the READ with the response of an atomic operation");
    forge::atomic_response(lab.ends[0].queue_pair.number())?;
    lab.complete(0)?;
    lab.finish()
}

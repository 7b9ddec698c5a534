//! The examples: each provokes one thing.

use ferroce::{
    AccessFlags, AddressVector, Data, FlushPlacement, FlushSelectivity, Immediate, LKey, Operation,
    QueuePairAttributes, QueuePairOptions, ReceiveRequest, RemoteAddress, SendRequest, ServiceType,
    Sge, State, WindowKind, WorkId,
};

use super::setup::{QUEUE_KEY, Setup, change};
use super::{End, Lab, Outcome, Record, connection, device, failures, text};

/// Three packets at the path MTU of the examples, 1024 bytes.
pub(super) const LONG: u32 = 2500;

macro_rules! scenarios {
    ($( $name:ident => $run:expr, )+) => {
        /// What an example provokes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::explain) enum Scenario { $($name,)+ }

        /// All of them.
        #[cfg(test)]
        pub(in crate::explain) const SCENARIOS: &[Scenario] = &[$(Scenario::$name,)+];

        impl Scenario {
            /// Runs it.
            pub(in crate::explain) fn run(self) -> Outcome<Record> {
                match self { $(Self::$name => $run(),)+ }
            }
        }
    };
}

scenarios! {
    Send => send,
    SendImmediate => send_immediate,
    SendInvalidate => send_invalidate,
    Write => write,
    LongWrite => long_write,
    WriteImmediate => write_immediate,
    Read => read,
    LongRead => long_read,
    CompareSwap => compare_swap,
    FetchAdd => fetch_add,
    Flush => flush,
    AtomicWrite => atomic_write,
    Bind => bind,
    LocalInvalidate => local_invalidate,
    UcWrite => uc_write,
    Datagram => datagram,
    Xrc => xrc,
    Connect => connection::connect,
    Refused => connection::refused,
    States => states,
    Drain => drain,
    WrongRkey => failures::wrong_rkey,
    WrongRkeyImmediate => failures::wrong_rkey_immediate,
    WrongLkey => failures::wrong_lkey,
    WrongLkeyReceive => failures::wrong_lkey_receive,
    ShortReceive => failures::short_receive,
    BadInvalidate => failures::bad_invalidate,
    BadBind => failures::bad_bind,
    Flushed => failures::flushed,
    Nobody => failures::nobody,
    NotReady => failures::not_ready,
    NeverReady => failures::never_ready,
    LostRequest => failures::lost_request,
    LostResponse => failures::lost_response,
    LostAcknowledgement => failures::lost_acknowledgement,
    OutOfWindow => failures::out_of_window,
    Marked => failures::marked,
    BadResponse => failures::bad_response,
    UdError => ud_error,
}

fn send() -> Outcome<Record> {
    with_receive(Operation::SEND)
}

fn send_immediate() -> Outcome<Record> {
    with_receive(Operation::Send { immediate: Some(Immediate(0x2a)), invalidate: None })
}

fn write_immediate() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.receive(256)?;
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: Some(Immediate(0x2a)) }, 0, 64)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

/// An operation of 64 bytes that consumes a receive buffer.
fn with_receive(operation: Operation) -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    lab.receive(256)?;
    lab.post(operation, 0, 64)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

fn send_invalidate() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let b = &lab.ends[1];
    let window = b.pd.window(WindowKind::Type2).map_err(text)?;
    let bind = window.bind(&b.region, 0, 64, AccessFlags::REMOTE_WRITE);
    lab.post_data(1, bind, Data::NONE)?;
    lab.complete(1)?;
    lab.receive(256)?;
    let invalidate = Some(window.key());
    lab.post(Operation::Send { immediate: None, invalidate }, 0, 64)?;
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

/// An operation of A on B's memory, which must succeed.
fn remote(length: u32, operation: impl FnOnce(RemoteAddress) -> Operation) -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let remote = lab.ends[1].region.remote(0);
    lab.post(operation(remote), 0, length)?;
    lab.complete(0)?;
    lab.finish()
}

fn write() -> Outcome<Record> {
    remote(64, |remote| Operation::Write { remote, immediate: None })
}

fn long_write() -> Outcome<Record> {
    remote(LONG, |remote| Operation::Write { remote, immediate: None })
}

fn read() -> Outcome<Record> {
    remote(64, |remote| Operation::Read { remote })
}

fn long_read() -> Outcome<Record> {
    remote(LONG, |remote| Operation::Read { remote })
}

/// Atomics, with the value in B's memory shown before and after.
fn atomic(operation: impl FnOnce(RemoteAddress) -> Operation) -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let bounds = |error: ferroce::CopyError| error.to_string();
    lab.ends[1].region.write(0, &40_u64.to_ne_bytes()).map_err(bounds)?;
    lab.say("B's memory holds 40");
    let remote = lab.ends[1].region.remote(0);
    lab.post(operation(remote), 0, 8)?;
    lab.complete(0)?;
    let value = |end: &End| {
        let mut bytes = [0; 8];
        end.region.read(0, &mut bytes).map_err(bounds)?;
        Ok::<_, String>(u64::from_ne_bytes(bytes))
    };
    let (original, now) = (value(&lab.ends[0])?, value(&lab.ends[1])?);
    lab.say(format!("A has received the original value, {original}; B's memory holds {now}"));
    lab.finish()
}

fn compare_swap() -> Outcome<Record> {
    atomic(|remote| Operation::CompareSwap { remote, compare: 40, swap: 7 })
}

fn fetch_add() -> Outcome<Record> {
    atomic(|remote| Operation::FetchAdd { remote, add: 2 })
}

fn flush() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    let flush = Operation::Flush {
        remote,
        length: 64,
        selectivity: FlushSelectivity(0),
        placement: FlushPlacement(1),
    };
    lab.post_data(0, flush, Data::NONE)?;
    lab.complete(0)?;
    lab.finish()
}

fn atomic_write() -> Outcome<Record> {
    remote(8, |remote| Operation::AtomicWrite { remote })
}

fn bind() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let b = &lab.ends[1];
    let window = b.pd.window(WindowKind::Type2).map_err(text)?;
    let bind = window.bind(&b.region, 0, 64, AccessFlags::REMOTE_WRITE);
    let address = b.region.address();
    lab.post_data(1, bind, Data::NONE)?;
    lab.complete(1)?;
    let remote = RemoteAddress { address, key: window.key() };
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.finish()
}

fn local_invalidate() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let b = &lab.ends[1];
    let window = b.pd.window(WindowKind::Type2).map_err(text)?;
    let bind = window.bind(&b.region, 0, 64, AccessFlags::REMOTE_WRITE);
    let address = b.region.address();
    let key = window.key();
    lab.post_data(1, bind, Data::NONE)?;
    lab.complete(1)?;
    lab.post_data(1, Operation::LocalInvalidate { key }, Data::NONE)?;
    lab.complete(1)?;
    lab.say("the rkey no longer works:");
    lab.post(Operation::Write { remote: RemoteAddress { address, key }, immediate: None }, 0, 64)?;
    lab.complete(0)?;
    lab.finish()
}

fn uc_write() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::of(ServiceType::UnreliableConnection))?;
    lab.receive(256)?;
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: Some(Immediate(0x2a)) }, 0, LONG)?;
    lab.complete(0)?;
    lab.complete(1)?;
    lab.finish()
}

/// A's address handle of B.
fn address_handle(lab: &Lab) -> Outcome<ferroce::AddressHandle> {
    let (device, index) = device()?;
    let gid = device.gids().get(usize::from(index)).map(|entry| entry.gid);
    let vector = AddressVector {
        port: 1,
        source_index: index,
        destination: gid.ok_or("the loopback has no address")?,
        ..AddressVector::default()
    };
    lab.ends[0].pd.address_handle(&vector).map_err(text)
}

fn datagram() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::of(ServiceType::UnreliableDatagram))?;
    lab.receive(256)?;
    let handle = address_handle(&lab)?;
    let (peer, data) =
        (lab.ends[1].queue_pair.number(), Data::SgList(lab.ends[0].region.sge(0, 64).into()));
    let request = handle.request(WorkId(1), peer, QUEUE_KEY, data);
    lab.ends[0].queue_pair.post_datagram(request).map_err(text)?;
    lab.say(format!("A posts SEND, 64 bytes, to QP {:#08x} with Q_Key {:#x}", peer.0, QUEUE_KEY.0));
    lab.complete(0)?;
    lab.complete(1)?;
    lab.say("of B's 104 bytes, the first 40 are the GRH: the IP header of the sender's packet");
    lab.finish()
}

/// UD: an error of the send queue leads to SQE, not to the error state.
fn ud_error() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::of(ServiceType::UnreliableDatagram))?;
    let handle = address_handle(&lab)?;
    let sge = Sge { key: LKey(1), ..lab.ends[0].region.sge(0, 64) };
    let peer = lab.ends[1].queue_pair.number();
    let request = handle.request(WorkId(1), peer, QUEUE_KEY, Data::SgList(sge.into()));
    lab.ends[0].queue_pair.post_datagram(request).map_err(text)?;
    lab.say("A posts SEND, 64 bytes, with an lkey that does not exist");
    lab.complete(0)?;
    let state = lab.ends[0].queue_pair.state();
    lab.say(format!("A's QP is in {}; receives still work", state.name()));
    let back =
        QueuePairAttributes { state: Some(State::ReadyToSend), ..QueuePairAttributes::default() };
    let state = lab.ends[0].queue_pair.modify(&back).map_err(text)?;
    lab.say(format!("A modifies it to {}, and may send again", state.name()));
    lab.finish()
}

fn xrc() -> Outcome<Record> {
    let mut lab = Lab::unconnected(&Setup::default())?;
    let (a, b) = (&lab.ends[0], &lab.ends[1]);
    let domain = b.context.xrc_domain();
    let queue = b.pd.xrc_receive_queue(16, &domain, &b.completions).map_err(text)?;
    let target = QueuePairOptions::new(ServiceType::XrcTarget, &b.completions);
    let target = domain.target(&target).map_err(text)?;
    let initiator = QueuePairOptions::new(ServiceType::XrcInitiator, &a.completions);
    let initiator = a.pd.queue_pair(&initiator).map_err(text)?;
    Setup::of(ServiceType::XrcInitiator).bring_up(&initiator, target.number(), 0)?;
    Setup::of(ServiceType::XrcTarget).bring_up(&target, initiator.number(), 0)?;
    let sg_list = b.region.sge(0, 256).into();
    queue.post(ReceiveRequest { id: WorkId(2), sg_list }).map_err(text)?;
    let number = queue.number();
    let data = Data::SgList(a.region.sge(0, 64).into());
    let request = SendRequest::new(WorkId(1), Operation::SEND, data);
    lab.others = vec![initiator.number().0, target.number().0];
    lab.say(format!(
        "B posts a receive buffer to the shared receive queue (SRQ) {:#08x}",
        number.0
    ));
    let request = SendRequest { receive_queue: Some(number), ..request };
    initiator.post_send(request).map_err(text)?;
    lab.say(format!("A posts SEND, 64 bytes, for SRQ {:#08x}", number.0));
    lab.complete(1)?;
    lab.complete(0)?;
    lab.finish()
}

fn states() -> Outcome<Record> {
    let setup = Setup::default();
    let mut lab = Lab::unconnected(&setup)?;
    let peer = lab.ends[1].queue_pair.number();
    let all = setup.attributes(peer, 0)?;
    lab.say("A creates a QP: it is in RESET");
    use State::{Error, Init, ReadyToReceive, ReadyToSend, Reset};
    for (from, to) in [
        (Reset, Init),
        (Init, ReadyToReceive),
        (ReadyToReceive, ReadyToSend),
        (ReadyToSend, Error),
        (Error, Reset),
    ] {
        if from == Init {
            let data = Data::SgList(lab.ends[0].region.sge(0, 8).into());
            let request = SendRequest::new(WorkId(1), Operation::SEND, data);
            if let Err(error) = lab.ends[0].queue_pair.post_send(request) {
                lab.say(format!("posting a SEND in {} is refused: {error}", from.name()));
            }
        }
        let given = change(&lab.ends[0].queue_pair, &all, from, to)?;
        let with = match given.is_empty() {
            true => "no further attribute".to_owned(),
            false => given.join(", "),
        };
        let now = lab.ends[0].queue_pair.state();
        lab.say(format!(
            "{} → {} with {with}: the QP is in {}",
            from.name(),
            to.name(),
            now.name()
        ));
    }
    lab.finish()
}

fn drain() -> Outcome<Record> {
    let mut lab = Lab::start(&Setup::default())?;
    let to = |state| QueuePairAttributes { state: Some(state), ..Default::default() };
    let state = lab.ends[0].queue_pair.modify(&to(State::SendQueueDrain)).map_err(text)?;
    lab.say(format!("A modifies its QP to {}", state.name()));
    let remote = lab.ends[1].region.remote(0);
    lab.post(Operation::Write { remote, immediate: None }, 0, 64)?;
    lab.say("the request waits: no packet is sent");
    let state = lab.ends[0].queue_pair.modify(&to(State::ReadyToSend)).map_err(text)?;
    lab.say(format!("A modifies its QP to {}: the request starts", state.name()));
    lab.complete(0)?;
    lab.finish()
}

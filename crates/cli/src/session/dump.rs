//! One-line descriptions of objects and work requests, with the names of verbs programs.

use ferroce::{
    CompletionKind, Data, MemoryRegion, Operation, QueuePair, RemoteAddress, SendRequest, Sge,
    Status, WorkCompletion,
};

use super::failure::name;
use super::log::Log;

/// An attribute; `-` if it is not set yet.
fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A QP: state, attributes and capabilities.
pub(crate) fn queue_pair(log: &mut Log, queue_pair: &QueuePair) {
    let now = queue_pair.attributes();
    let text = format!(
        "QP dump: qpn={:#08x} state={} mtu={} sq_psn={} rq_psn={} max_rd_atomic={} \
         max_dest_rd_atomic={} retry={} rnr_retry={} timeout={}",
        queue_pair.number().0,
        queue_pair.state(),
        known(now.path_mtu.and_then(|mtu| mtu.bytes())),
        known(now.send_psn.map(|psn| format!("{:#08x}", psn.0))),
        known(now.receive_psn.map(|psn| format!("{:#08x}", psn.0))),
        known(now.max_rd_atomic),
        known(now.max_dest_rd_atomic),
        known(now.retry_count),
        known(now.rnr_retry.map(|retry| retry.0)),
        known(now.timeout.map(|timeout| timeout.0)),
    );
    log.say("dump_qp", text);
    let sizes = queue_pair.capabilities();
    let text = format!(
        "QP caps: max_send_wr={} max_recv_wr={} max_sge={{s={},r={}}}",
        sizes.max_send_wr, sizes.max_recv_wr, sizes.max_send_sge, sizes.max_recv_sge
    );
    log.say("dump_qp", text);
}

/// An MR: its address and keys.
pub(crate) fn region(log: &mut Log, since: u64, what: &str, region: &MemoryRegion) {
    let text = format!(
        "MR({what}): addr={:#x} len={} lkey={:#x} rkey={:#x}",
        region.address().0,
        region.len(),
        region.lkey().0,
        region.rkey().0
    );
    log.done("dump_mr", since, text);
}

fn sg_list(data: &Data) -> &[Sge] {
    match data {
        Data::SgList(sg_list) => sg_list.as_slice(),
        Data::Inline(_) => &[],
    }
}

/// A request about to be posted.
pub(crate) fn request(log: &mut Log, request: &SendRequest) {
    let opcode = opcode(&request.operation);
    let sg_list = sg_list(&request.data);
    for sge in sg_list {
        let text = format!(
            "SGE({opcode}): addr={:#x} len={} lkey={:#x}",
            sge.address.0, sge.length, sge.key.0
        );
        log.say("dump_sge", text);
    }
    let mut text = format!(
        "WR: wr_id={} opcode={opcode} signaled={} num_sge={}",
        request.id.0,
        u8::from(request.signaled),
        sg_list.len()
    );
    let place = |remote: &RemoteAddress| {
        format!(" remote_addr={:#x} rkey={:#x}", remote.address.0, remote.key.0)
    };
    match &request.operation {
        Operation::Write { remote, immediate } => {
            text += &place(remote);
            if let Some(immediate) = immediate {
                text += &format!(" imm_data={}", immediate.0);
            }
        }
        Operation::Read { remote } => text += &place(remote),
        Operation::CompareSwap { remote, compare, swap } => {
            text += &format!("{} compare={compare} swap={swap}", place(remote));
        }
        Operation::FetchAdd { remote, add } => text += &format!("{} add={add}", place(remote)),
        _ => {}
    }
    log.say("dump_wr", text);
}

fn opcode(operation: &Operation) -> &'static str {
    match operation {
        Operation::Write { immediate: Some(_), .. } => "RDMA_WRITE_WITH_IMM",
        other => name(CompletionKind::from(other)),
    }
}

/// A completion; `bytes` is the length of the request, for completions that do not contain it.
pub(crate) fn completion(
    log: &mut Log,
    since: Option<u64>,
    bytes: Option<u64>,
    done: &WorkCompletion,
) {
    let status = if done.status == Status::Success { 0 } else { 1 };
    let length = bytes.unwrap_or(u64::from(done.length));
    let mut text = format!(
        "WC: wr_id={} status={status} opcode={} byte_len={length} qp_num={:#08x}",
        done.id.0,
        name(done.kind),
        done.queue_pair.0
    );
    if let Some(immediate) = done.immediate {
        text += &format!(" imm_data={}", immediate.0);
    }
    match since {
        Some(since) => log.done("dump_wc", since, text),
        None => log.say("dump_wc", text),
    };
}

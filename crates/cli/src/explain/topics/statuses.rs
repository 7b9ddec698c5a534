//! Completion statuses, in the order of `ibv_wc_status`. Their aliases contain the number.

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::{Impossible, Ladder, Steps};
use crate::explain::topic::Topic;

const RD: &str = "it belongs to the reliable datagram service (RD), which no known device implements, so no example exists";
const VENDOR: &str = "it comes from hardware or its driver; Ferroce never reports it";

pub(super) const TOPICS: &[Topic] = &[
    topic!(Status "success", "IBV_WC_SUCCESS (0)", ["status 0", "IBV_WC_SUCCESS", "ok"],
        "The request is done.",
        "On RC the responder has acknowledged all packets; on UC and UD they were sent. The other fields of the CQE are \
         valid only with this status, except wr_id, qp_num and vendor_err.",
        "IBA 11.6.2", ["cqe", "ack"], Ladder(Write), ["IBV_WC_SUCCESS (0)", "ACK"]),
    topic!(Status "loc_len_err", "IBV_WC_LOC_LEN_ERR (1): local length error", ["status 1", "IBV_WC_LOC_LEN_ERR", "local length error"],
        "A message did not fit into the receive buffer, or a request is longer than the service allows.",
        "The receiver gets this status, the sender \"remote invalid request error\" (RC). Post larger receive buffers; UD \
         needs 40 bytes more for the GRH. Both QPs are in the error state afterwards.",
        "IBA 11.6.2, C9-94", ["rem_inv_req_err", "recv"], Ladder(ShortReceive), ["IBV_WC_LOC_LEN_ERR (1)", "NAK", "invalid request"]),
    topic!(Status "loc_qp_op_err", "IBV_WC_LOC_QP_OP_ERR (2): local QP operation error", ["status 2", "IBV_WC_LOC_QP_OP_ERR", "local qp operation error"],
        "The QP could not carry out the request: something about it is inconsistent on this side.",
        "For example a local invalidate of a key that is not valid. No packet is sent.",
        "IBA 11.6.2", ["local_inv"], Steps(BadInvalidate), ["IBV_WC_LOC_QP_OP_ERR (2)"]),
    topic!(Status "loc_eec_op_err", "IBV_WC_LOC_EEC_OP_ERR (3): local EE context operation error", ["status 3", "IBV_WC_LOC_EEC_OP_ERR"],
        "An error of a kind of connection that nobody uses.", "An end-to-end (EE) context connects nodes for the RD service.",
        "IBA 11.6.2", ["rc"], Impossible(RD), []),
    topic!(Status "loc_prot_err", "IBV_WC_LOC_PROT_ERR (4): local protection error", ["status 4", "IBV_WC_LOC_PROT_ERR", "local protection error"],
        "The memory named in the request is not registered, or not for this: a wrong lkey, address or length.",
        "An SGE names an lkey of another PD, a range outside of its MR, or an MR without LOCAL_WRITE that data is to be \
         written to. No packet is sent.",
        "IBA 11.6.2", ["lkey", "sge", "mr", "pd"], Steps(WrongLkey), ["IBV_WC_LOC_PROT_ERR (4)", "lkey"]),
    topic!(Status "wr_flush_err", "IBV_WC_WR_FLUSH_ERR (5): work request flushed", ["status 5", "IBV_WC_WR_FLUSH_ERR", "flushed", "flush error"],
        "The QP is in the error state, so this request was not executed. Look at the first completion that is not flushed.",
        "All work requests that are queued or posted in ERR complete with this status (in SQE those of the send queue). It \
         is also how receives complete after a disconnect.",
        "IBA 10.3.1.7, 11.6.2", ["err", "sqe"], Steps(Flushed), ["IBV_WC_WR_FLUSH_ERR (5)", "ERR"]),
    topic!(Status "mw_bind_err", "IBV_WC_MW_BIND_ERR (6): memory window bind error", ["status 6", "IBV_WC_MW_BIND_ERR", "memory window bind error"],
        "A memory window could not be bound to this memory.",
        "The MR was registered without MW_BIND, the range is outside of it, or the window and the MR have different PDs.",
        "IBA 11.6.2, 10.6.7.2", ["bind_mw", "mw"], Steps(BadBind), ["IBV_WC_MW_BIND_ERR (6)"]),
    topic!(Status "bad_resp_err", "IBV_WC_BAD_RESP_ERR (7): bad response error", ["status 7", "IBV_WC_BAD_RESP_ERR", "bad response error"],
        "The peer answered with something that does not fit the request.",
        "A response with an unexpected opcode, length or PSN, for instance an atomic response to a READ. It indicates a \
         faulty peer.",
        "IBA 11.6.2, 9.9.2", ["aeth", "read"], Ladder(BadResponse), ["IBV_WC_BAD_RESP_ERR (7)", "forged peer"]),
    topic!(Status "loc_access_err", "IBV_WC_LOC_ACCESS_ERR (8): local access error", ["status 8", "IBV_WC_LOC_ACCESS_ERR", "local access error"],
        "The peer tried to access memory that it may not access, in a request that uses one of your receive buffers.",
        "Status of the receive that an RDMA WRITE with immediate would have consumed, if its rkey does not permit the \
         access. The peer gets \"remote access error\".",
        "IBA 11.6.2", ["rem_access_err", "write_with_imm"], Ladder(WrongRkeyImmediate), ["IBV_WC_LOC_ACCESS_ERR (8)", "IBV_WC_REM_ACCESS_ERR (10)"]),
    topic!(Status "rem_inv_req_err", "IBV_WC_REM_INV_REQ_ERR (9): remote invalid request error", ["status 9", "IBV_WC_REM_INV_REQ_ERR", "remote invalid request error", "invalid request"],
        "The peer considers the request impossible: too long for its buffer, or not allowed on its QP.",
        "NAK code 1. A SEND longer than the receive buffer, an operation that the QP's access flags do not allow, more READs \
         in flight than max_dest_rd_atomic, or a misaligned atomic.",
        "IBA 11.6.2, 9.7.5.2.6", ["loc_len_err", "nak"], Ladder(ShortReceive), ["IBV_WC_REM_INV_REQ_ERR (9)", "invalid request"]),
    topic!(Status "rem_access_err", "IBV_WC_REM_ACCESS_ERR (10): remote access error", ["status 10", "IBV_WC_REM_ACCESS_ERR", "remote access error"],
        "The peer does not let you access that memory: wrong rkey, wrong address, or missing permission.",
        "NAK code 2. The rkey is unknown, belongs to another PD, its range does not contain the request, or its access flags \
         lack REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC. Nothing was written. Both QPs go to the error state.",
        "IBA 11.6.2, 9.7.5.2.8", ["rkey", "nak", "mr"], Ladder(WrongRkey), ["IBV_WC_REM_ACCESS_ERR (10)", "NAK", "remote access error", "A's QP is in ERR"]),
    topic!(Status "rem_op_err", "IBV_WC_REM_OP_ERR (11): remote operation error", ["status 11", "IBV_WC_REM_OP_ERR", "remote operation error", "remote operational error"],
        "The peer could not complete the request for a reason of its own.",
        "NAK code 3. For example the receive buffer that the SEND would have used names an invalid lkey: the receiver gets \
         \"local protection error\".",
        "IBA 11.6.2, 9.7.5.2.8", ["loc_prot_err", "nak"], Ladder(WrongLkeyReceive), ["IBV_WC_REM_OP_ERR (11)", "remote operational error"]),
    topic!(Status "retry_exc_err", "IBV_WC_RETRY_EXC_ERR (12): transport retry counter exceeded", ["status 12", "IBV_WC_RETRY_EXC_ERR", "retry exceeded", "retry", "retry_cnt", "transport retry counter exceeded", "transport retry count exceeded"],
        "The peer does not answer. It has ended, its address or QPN is wrong, the network drops the packets, or the two \
         sides were connected with different PSNs or MTUs.",
        "The requester sent a packet retry_cnt + 1 times and waited for the local ACK timeout after each; Ferroce doubles the wait \
         each time and sends probes in between, which cost no retry. Check that both QPs \
         are in RTR or RTS, that UDP port 4791 is open (`ferroce doctor`), the GID index, and the MTU of the path.",
        "IBA 11.6.2, 9.7.6.1.3", ["timeout", "local_ack_timeout_err", "rnr_retry_exc_err"], Ladder(Nobody), ["IBV_WC_RETRY_EXC_ERR (12)", "retry_cnt 2", "A's QP is in ERR"]),
    topic!(Status "rnr_retry_exc_err", "IBV_WC_RNR_RETRY_EXC_ERR (13): RNR retry counter exceeded", ["status 13", "IBV_WC_RNR_RETRY_EXC_ERR", "rnr retry exceeded", "rnr_retry", "RNR_RETRY_EXC"],
        "The peer answers, but never had a receive buffer for the message.",
        "The requester repeated it rnr_retry times, each after the time in the RNR NAK. Post receives before the peer sends, \
         or set rnr_retry to 7, which means without limit.",
        "IBA 11.6.2, 9.7.5.2.8", ["rnr", "recv"], Ladder(NeverReady), ["IBV_WC_RNR_RETRY_EXC_ERR (13)", "RNR"]),
    topic!(Status "loc_rdd_viol_err", "IBV_WC_LOC_RDD_VIOL_ERR (14): local RDD violation error", ["status 14", "IBV_WC_LOC_RDD_VIOL_ERR"],
        "An error of a kind of connection that nobody uses.", "The QP and the EE context belong to different RD domains.",
        "IBA 11.6.2", [], Impossible(RD), []),
    topic!(Status "rem_inv_rd_req_err", "IBV_WC_REM_INV_RD_REQ_ERR (15): remote invalid RD request", ["status 15", "IBV_WC_REM_INV_RD_REQ_ERR"],
        "An error of a kind of connection that nobody uses.", "The responder rejected an RD request: NAK code 4.",
        "IBA 11.6.2", ["nak"], Impossible(RD), []),
    topic!(Status "rem_abort_err", "IBV_WC_REM_ABORT_ERR (16): remote aborted error", ["status 16", "IBV_WC_REM_ABORT_ERR"],
        "The peer cancelled the operation.", "RD: the requester aborted the operation. Some drivers use it for other aborts.",
        "IBA 11.6.2", [], Impossible(RD), []),
    topic!(Status "inv_eecn_err", "IBV_WC_INV_EECN_ERR (17): invalid EE context number", ["status 17", "IBV_WC_INV_EECN_ERR"],
        "An error of a kind of connection that nobody uses.", "RD: no EE context has this number.",
        "IBA 11.6.2", [], Impossible(RD), []),
    topic!(Status "inv_eec_state_err", "IBV_WC_INV_EEC_STATE_ERR (18): invalid EE context state", ["status 18", "IBV_WC_INV_EEC_STATE_ERR"],
        "An error of a kind of connection that nobody uses.", "RD: the EE context is in the wrong state.",
        "IBA 11.6.2", [], Impossible(RD), []),
    topic!(Status "fatal_err", "IBV_WC_FATAL_ERR (19): fatal error", ["status 19", "IBV_WC_FATAL_ERR"],
        "The device has failed.", "The completion could not be produced because of an unrecoverable device error; an async \
         event IBV_EVENT_DEVICE_FATAL usually accompanies it.",
        "rdma-core, ibv_poll_cq(3)", [], Impossible(VENDOR), []),
    topic!(Status "resp_timeout_err", "IBV_WC_RESP_TIMEOUT_ERR (20): response timeout", ["status 20", "IBV_WC_RESP_TIMEOUT_ERR"],
        "No response in time.", "Used by drivers for operations beyond the specification's. RC reports \"retry counter exceeded\" instead.",
        "rdma-core, ibv_poll_cq(3)", ["retry_exc_err"], Impossible(VENDOR), []),
    topic!(Status "general_err", "IBV_WC_GENERAL_ERR (21): general error", ["status 21", "IBV_WC_GENERAL_ERR"],
        "Some other error.", "The driver has no better status; vendor_err may say more.",
        "rdma-core, ibv_poll_cq(3)", [], Impossible(VENDOR), []),
    topic!(Status "tm_err", "IBV_WC_TM_ERR (22): tag matching error", ["status 22", "IBV_WC_TM_ERR"],
        "An error of hardware that sorts messages by tag for MPI.", "A tag-matching SRQ of rdma-core could not process a request.",
        "rdma-core, ibv_create_srq_ex(3)", ["srq"], Impossible(VENDOR), []),
    topic!(Status "tm_rndv_incomplete", "IBV_WC_TM_RNDV_INCOMPLETE (23): tag matching rendezvous incomplete", ["status 23", "IBV_WC_TM_RNDV_INCOMPLETE"],
        "Tag-matching hardware leaves the rest of a transfer to the program.", "A rendezvous request arrived that the device could not complete by itself.",
        "rdma-core, ibv_create_srq_ex(3)", ["srq"], Impossible(VENDOR), []),
];

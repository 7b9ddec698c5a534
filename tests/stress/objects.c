/* The objects of a half, and the exchange of their attributes. */
#include "stress.h"

#include <unistd.h>

void exchange(struct half *h, const void *out, void *in, size_t size)
{
    h->waits = "the other half";
    MUST(h, write(h->control, out, size) == (ssize_t)size);
    for (size_t got = 0; got < size;) {
        ssize_t more = read(h->control, (char *)in + got, size - got);
        MUST(h, more > 0);
        got += more;
    }
    h->waits = NULL;
}

void meet(struct half *h)
{
    char mine = 'm', yours = 0;
    exchange(h, &mine, &yours, 1);
    MUST(h, yours == 'm');
}

static enum ibv_qp_type type_of(struct half *h)
{
    switch (h->life->service) {
    case UC: return IBV_QPT_UC;
    case UD: return IBV_QPT_UD;
    case XRC: return h->sender ? IBV_QPT_XRC_SEND : IBV_QPT_XRC_RECV;
    default: return IBV_QPT_RC;
    }
}

void create_objects(struct half *h)
{
    struct life *life = h->life;
    if (life->events)
        MUST(h, h->channel = ibv_create_comp_channel(h->device.context));
    MUST(h, h->cq = ibv_create_cq(h->device.context, 2 * OPERATIONS, NULL, h->channel, 0));
    MUST(h, h->mr = ibv_reg_mr(h->device.pd, h->memory, SIZE, PAIR_ACCESS));
    if (!h->sender && life->service == RC_SRQ) {
        struct ibv_srq_init_attr init = { .attr = { .max_wr = OPERATIONS, .max_sge = 1 } };
        MUST(h, h->srq = ibv_create_srq(h->device.pd, &init));
    }
    if (!h->sender && life->service == XRC) {
        struct ibv_srq_init_attr_ex init = {
            .attr = { .max_wr = OPERATIONS, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = h->device.pd,
            .xrcd = h->xrcd, .cq = h->cq,
            .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
        };
        MUST(h, h->srq = ibv_create_srq_ex(h->device.context, &init));
    }
    enum ibv_qp_type type = type_of(h);
    struct ibv_qp_init_attr_ex init = {
        .send_cq = h->cq, .recv_cq = h->cq, .qp_type = type, .sq_sig_all = 1,
        .srq = life->service == RC_SRQ ? h->srq : NULL,
        .cap = { .max_send_wr = life->depth, .max_recv_wr = OPERATIONS, .max_send_sge = 1, .max_recv_sge = 1 },
        .comp_mask = type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
        .pd = h->device.pd, .xrcd = h->xrcd,
    };
    MUST(h, h->qp = ibv_create_qp_ex(h->device.context, &init));
    h->me = (struct card){ .qpn = h->qp->qp_num, .rkey = h->mr->rkey, .address = (uintptr_t)h->memory };
    if (life->service == XRC && h->srq)
        MUST(h, !ibv_get_srq_num(h->srq, &h->me.srqn));
}

void destroy_queue_pair(struct half *h)
{
    MUST(h, !ibv_destroy_qp(h->qp));
    h->qp = NULL;
    counts->destroyed++;
}

void reset(struct half *h)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    MUST(h, !ibv_modify_qp(h->qp, &attr, IBV_QP_STATE));
    counts->resets[h->life->service]++;
}

void initialise(struct half *h)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = PAIR_QKEY, .qp_access_flags = PAIR_ACCESS,
    };
    MUST(h, !ibv_modify_qp(h->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                         (h->qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

/* Far from that of the round before, whose last packets may still be on their way. */
static uint32_t first_psn(struct half *h)
{
    return (h->life->seed + h->round * (uint64_t)(0x1000000 / ROUNDS)) & 0xffffff;
}

void connect_objects(struct half *h)
{
    enum ibv_qp_type type = h->qp->qp_type;
    bool ud = type == IBV_QPT_UD, responds = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
    bool requests = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
    exchange(h, &h->me, &h->you, sizeof h->me);
    struct ibv_ah_attr address = pair_address(&h->device);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = h->life->mtu, .rq_psn = first_psn(h), .ah_attr = address,
        .dest_qp_num = h->you.qpn, .max_dest_rd_atomic = h->life->reads, .min_rnr_timer = 1 /* 0.01 ms */,
    };
    MUST(h, !ibv_modify_qp(h->qp, &attr, IBV_QP_STATE |
                                         (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
                                         (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = first_psn(h), .max_rd_atomic = h->life->reads, .retry_cnt = 7,
        .rnr_retry = 7 /* unlimited */,
        /* 1 s, so that a peer that is not scheduled is not considered dead; 134 ms with injected loss. */
        .timeout = faulty() ? 15 : 18,
    };
    MUST(h, !ibv_modify_qp(h->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
                                         (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0) |
                                         (requests || responds ? IBV_QP_TIMEOUT : 0)));
    counts->reconnects += h->round > 0;
    if (ud && !h->ah)
        MUST(h, h->ah = ibv_create_ah(h->device.pd, &address));
}

void destroy_objects(struct half *h)
{
    if (h->qp)
        destroy_queue_pair(h);
    if (h->srq)
        MUST(h, !ibv_destroy_srq(h->srq));
    MUST(h, !ibv_destroy_cq(h->cq));
    if (h->channel)
        MUST(h, !ibv_destroy_comp_channel(h->channel));
    if (h->ah)
        MUST(h, !ibv_destroy_ah(h->ah));
    MUST(h, !ibv_dereg_mr(h->mr));
    h->channel = NULL, h->srq = NULL, h->ah = NULL;
}

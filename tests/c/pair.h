/* Connected queue pairs over the loopback device, for small C programs. */
#ifndef PAIR_H
#define PAIR_H

#include "check.h"

#include <infiniband/verbs.h>
#include <stdint.h>

enum {
    PAIR_QKEY = 0x11111111,
    PAIR_PSN = 0x1000,
    PAIR_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

struct pair_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid;
    int gid_index;
};

/* Opens the device that has 127.0.0.1. */
static inline struct pair_device pair_open(void)
{
    const union ibv_gid loopback = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct pair_device it = { 0 };
    CHECK(devices);
    for (int i = 0; devices[i] && !it.context; i++) {
        CHECK(it.context = ibv_open_device(devices[i]));
        for (it.gid_index = 0; !ibv_query_gid(it.context, 1, it.gid_index, &it.gid); it.gid_index++)
            if (!memcmp(&it.gid, &loopback, sizeof it.gid))
                break;
        if (memcmp(&it.gid, &loopback, sizeof it.gid)) {
            CHECK(!ibv_close_device(it.context));
            it.context = NULL;
        }
    }
    ibv_free_device_list(devices);
    CHECK(it.context && (it.pd = ibv_alloc_pd(it.context)));
    return it;
}

static inline struct ibv_qp *pair_create(struct pair_device *device, enum ibv_qp_type type, struct ibv_cq *send_cq,
                                         struct ibv_cq *recv_cq, int depth)
{
    struct ibv_qp_init_attr init = {
        .send_cq = send_cq, .recv_cq = recv_cq, .qp_type = type, .sq_sig_all = 1,
        .cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 4, .max_recv_sge = 4 },
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = PAIR_QKEY, .qp_access_flags = PAIR_ACCESS,
    };
    struct ibv_qp *qp = ibv_create_qp(device->pd, &init);
    CHECK(qp);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                    (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
    return qp;
}

static inline struct ibv_ah_attr pair_address(struct pair_device *device)
{
    return (struct ibv_ah_attr){
        .is_global = 1, .port_num = 1,
        .grh = { .dgid = device->gid, .sgid_index = device->gid_index, .hop_limit = 64 },
    };
}

/* Moves a queue pair to RTS; a connected one with this destination QPN. */
static inline void pair_connect(struct pair_device *device, struct ibv_qp *qp, uint32_t to)
{
    int rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = PAIR_PSN, .ah_attr = pair_address(device),
        .dest_qp_num = to, .max_dest_rd_atomic = 16, .min_rnr_timer = 1 /* 0.01 ms */,
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE |
                                    (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
                                    (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = PAIR_PSN, .max_rd_atomic = 16, .timeout = 14 /* 67 ms */,
        .retry_cnt = 7, .rnr_retry = 7 /* unlimited */,
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
                                    (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                          IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static inline struct ibv_wc pair_take(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        ;
    CHECK(found == 1);
    return wc;
}

#endif

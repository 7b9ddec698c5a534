/* A side's objects, and the transitions of its queue pair to RTS. */
#include "conformance.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int gid_index;

/* The device with this address, and the index of its GID: IPv4 addresses are mapped ones. */
struct ibv_context *open_by_address(const char *address)
{
    union ibv_gid wanted = { .raw = { [10] = 0xff, [11] = 0xff } }, gid;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (inet_pton(AF_INET, address, wanted.raw + 12) != 1 && inet_pton(AF_INET6, address, wanted.raw) != 1)
        give_up("not an address: %s", address);
    for (int i = 0; devices && devices[i]; i++) {
        struct ibv_context *context = ibv_open_device(devices[i]);
        if (!context)
            continue;
        for (gid_index = 0; gid_index < 16 && !ibv_query_gid(context, 1, gid_index, &gid); gid_index++) {
            struct ibv_gid_entry entry;
            if (!memcmp(&gid, &wanted, sizeof gid) && !ibv_query_gid_ex(context, 1, gid_index, &entry, 0) &&
                entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
                ibv_free_device_list(devices);
                return context;
            }
        }
        ibv_close_device(context);
    }
    give_up("no RDMA device has the address %s", address);
}

void modify(struct end *e, struct ibv_qp_attr *attr, int mask)
{
    int error = ibv_modify_qp(e->qp, attr, mask);
    if (error)
        give_up("modify_qp to state %d: %s", attr->qp_state, strerror(error));
}

enum ibv_qp_state state(struct end *e)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    if (ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init))
        give_up("query_qp: %m");
    return attr.qp_state;
}

void open_end(struct end *e)
{
    const struct test *test = e->test;
    const int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    int region = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | (e->active ? all : all & ~test->region_access);
    if (test->channel && !e->active && !(e->channel = ibv_create_comp_channel(e->context)))
        give_up("create_comp_channel: %m");
    e->pd = ibv_alloc_pd(e->context);
    e->cq = ibv_create_cq(e->context, 4 * DEPTH, NULL, e->channel, 0);
    if (!e->pd || !e->cq || posix_memalign((void **)&e->memory, 4096, MEMORY))
        give_up("no protection domain, completion queue or memory: %m");
    fill(e, 0, MEMORY, e->active ? 1 : 2);
    if (!(e->mr = ibv_reg_mr(e->pd, e->memory, MEMORY, region)))
        give_up("reg_mr: %m");
    if (test->shared && !e->active) {
        struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = SGES } };
        if (!(e->srq = ibv_create_srq(e->pd, &init)))
            give_up("create_srq: %m");
    }
    struct ibv_qp_init_attr init = {
        .send_cq = e->cq, .recv_cq = e->cq, .srq = e->srq, .qp_type = test->type, .sq_sig_all = !test->unsignaled,
        .cap = { DEPTH, e->srq ? 0 : DEPTH, SGES, SGES, INLINE },
    };
    if (!(e->qp = ibv_create_qp(e->pd, &init)))
        give_up("create_qp: %m");
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
        .qp_access_flags = e->active ? all : all & ~test->qp_access,
    };
    modify(e, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                     (test->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    e->me = (struct peer){ .qpn = e->qp->qp_num, .rkey = e->mr->rkey, .address = (uintptr_t)e->memory,
                           .psn = e->active && test->psn ? test->psn : 0x1000 };
    if (ibv_query_gid(e->context, 1, gid_index, &e->me.gid))
        give_up("query_gid: %m");
}

static enum ibv_mtu mtu_code(int bytes)
{
    return bytes >= 4096 ? IBV_MTU_4096 : bytes >= 2048 ? IBV_MTU_2048 : bytes >= 1024 ? IBV_MTU_1024 :
           bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

void connect_end(struct end *e)
{
    const struct test *test = e->test;
    bool rc = test->type == IBV_QPT_RC, ud = test->type == IBV_QPT_UD;
    exchange(&e->me, &e->you, sizeof e->me);
    struct ibv_ah_attr address = {
        .is_global = 1, .port_num = 1, .grh = { .dgid = e->you.gid, .sgid_index = gid_index, .hop_limit = 64 },
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(e->mtu), .rq_psn = e->you.psn, .ah_attr = address,
        .dest_qp_num = e->you.qpn ^ (e->active && test->wrong_qpn ? 0x7770 : 0),
        .max_dest_rd_atomic = 16, .min_rnr_timer = 14 /* 1.28 ms */,
    };
    modify(e, &attr, IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
                     (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = e->me.psn, .max_rd_atomic = 16,
        .timeout = test->timeout ? test->timeout : 16 /* 268 ms */,
        .retry_cnt = test->retries ? test->retries : 7,
        .rnr_retry = test->rnr_retries ? test->rnr_retries : 7 /* unlimited */,
    };
    modify(e, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
                     (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
    if (ud && !(e->ah = ibv_create_ah(e->pd, &address)))
        give_up("create_ah: %m");
}

static void gone(int error, const char *what)
{
    check(!error, "%s: %s", what, strerror(error));
}

void close_end(struct end *e)
{
    struct ibv_async_event event;
    if (e->ah)
        gone(ibv_destroy_ah(e->ah), "destroy_ah");
    /* Destroying an object with unacknowledged events would wait for them. */
    int flags = fcntl(e->context->async_fd, F_GETFL);
    fcntl(e->context->async_fd, F_SETFL, flags | O_NONBLOCK);
    while (!ibv_get_async_event(e->context, &event))
        ibv_ack_async_event(&event);
    fcntl(e->context->async_fd, F_SETFL, flags);
    gone(ibv_destroy_qp(e->qp), "destroy_qp");
    if (e->srq)
        gone(ibv_destroy_srq(e->srq), "destroy_srq");
    gone(ibv_destroy_cq(e->cq), "destroy_cq");
    if (e->channel)
        gone(ibv_destroy_comp_channel(e->channel), "destroy_comp_channel");
    if (e->mr)
        gone(ibv_dereg_mr(e->mr), "dereg_mr");
    gone(ibv_dealloc_pd(e->pd), "dealloc_pd");
    free(e->memory);
}

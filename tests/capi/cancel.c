/* pthread_cancel of threads within calls of ours: waiting for an event can be cancelled as a read can, posting and polling
 * are no cancellation points, and the device goes on afterwards.
 *
 *   usage: cancel CASE
 */
#include "pair.h"

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 50, DEPTH = 32 };

static struct pair_device device;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qps[2];
static struct ibv_mr *mr;
static struct rdma_event_channel *events;
static struct rdma_cm_id *listener;
static char memory[8192];
static atomic_int started, cleaned;

static void clean(void *unused)
{
    (void)unused;
    atomic_fetch_add(&cleaned, 1);
}

static void post(struct ibv_qp *qp)
{
    struct ibv_sge sge = { (uintptr_t)memory, 1024, mr->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
    wr.wr.rdma.rkey = mr->rkey;
    int error = ibv_post_send(qp, &wr, &bad);
    CHECK(!error || error == ENOMEM);
}

static void get_cq_event(void)
{
    struct ibv_cq *got;
    void *context;
    ibv_get_cq_event(channel, &got, &context);
}

static void get_async_event(void)
{
    struct ibv_async_event event;
    ibv_get_async_event(device.context, &event);
}

static void get_cm_event(void)
{
    struct rdma_cm_event *event;
    rdma_get_cm_event(events, &event);
}

static void get_request(void)
{
    struct rdma_cm_id *id;
    rdma_get_request(listener, &id);
}

static void post_send(void)
{
    struct ibv_wc wc[DEPTH];
    for (;; pthread_testcancel()) {
        for (int i = 0; i < DEPTH; i++)
            post(qps[0]);
        ibv_poll_cq(cq, DEPTH, wc);
    }
}

static void poll_cq(void)
{
    struct ibv_wc wc;
    for (;; pthread_testcancel())
        ibv_poll_cq(cq, 1, &wc);
}

/* The call is not a cancellation point: one made with a cancellation pending returns. */
static void pending(void)
{
    struct ibv_wc wc;
    CHECK(!pthread_cancel(pthread_self()));
    for (int i = 0; i < 100; i++) {
        post(qps[0]);
        CHECK(ibv_poll_cq(cq, 1, &wc) >= 0);
        CHECK(!ibv_req_notify_cq(cq, 0));
    }
    struct ibv_mr *other = ibv_reg_mr(device.pd, memory, 100, 0);
    CHECK(other && !ibv_dereg_mr(other));
    pthread_testcancel();
}

/* A wait is a cancellation point, even if an event is available. */
static void pending_event(void)
{
    CHECK(!ibv_req_notify_cq(cq, 0));
    post(qps[0]);
    pair_take(cq);
    CHECK(!pthread_cancel(pthread_self()));
    get_cq_event();
}

static const struct {
    const char *name;
    void (*run)(void);
    int rounds;
} cases[] = {
    { "get_cq_event", get_cq_event, ROUNDS },
    { "get_async_event", get_async_event, ROUNDS },
    { "get_cm_event", get_cm_event, ROUNDS },
    { "get_request", get_request, ROUNDS },
    { "post_send", post_send, ROUNDS },
    { "poll_cq", poll_cq, ROUNDS },
    { "pending", pending, 1 },
    { "pending_event", pending_event, 1 },
};

static void *thread(void *run)
{
    pthread_cleanup_push(clean, NULL);
    atomic_store(&started, 1);
    (*(void (**)(void))run)();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    device = pair_open();
    CHECK(events = rdma_create_event_channel());
    struct sockaddr_in loopback = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&loopback) && !rdma_listen(listener, 1));
    CHECK(channel = ibv_create_comp_channel(device.context));
    CHECK(cq = ibv_create_cq(device.context, 4 * DEPTH, NULL, channel, 0));
    CHECK(mr = ibv_reg_mr(device.pd, memory, sizeof memory, PAIR_ACCESS));
    for (int i = 0; i < 2; i++)
        qps[i] = pair_create(&device, IBV_QPT_RC, cq, cq, DEPTH);
    for (int i = 0; i < 2; i++)
        pair_connect(&device, qps[i], qps[!i]->qp_num);

    void (*run)(void) = NULL;
    int rounds = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1]))
            run = cases[i].run, rounds = cases[i].rounds;
    CHECK(run);
    for (int round = 0; round < rounds; round++) {
        pthread_t id;
        void *result;
        atomic_store(&started, 0);
        CHECK(!pthread_create(&id, NULL, thread, &run));
        while (!atomic_load(&started))
            sched_yield();
        /* At a different point each time: before the call, in it, and while asleep. */
        for (int i = 0; i < round % 10; i++)
            sched_yield();
        pthread_cancel(id);
        CHECK(!pthread_join(id, &result));
        CHECK(result == PTHREAD_CANCELED && atomic_load(&cleaned) == round + 1);
    }

    /* Everything still works: no lock is held, no event is lost. */
    struct ibv_wc wc;
    struct ibv_cq *got;
    void *context;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    while (ibv_poll_cq(cq, 1, &wc))
        CHECK(wc.status == IBV_WC_SUCCESS);
    if (run != pending_event)
        CHECK(!ibv_req_notify_cq(cq, 0));
    memset(memory, 0x55, 1024);
    post(qps[1]);
    CHECK(!ibv_get_cq_event(channel, &got, &context) && got == cq);
    ibv_ack_cq_events(cq, 1);
    do
        wc = pair_take(cq);
    while (wc.qp_num != qps[1]->qp_num);
    CHECK(wc.status == IBV_WC_SUCCESS && memory[4096] == 0x55);
    CHECK(!ibv_query_qp(qps[0], &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_RTS);
    rdma_destroy_event_channel(events);
    CHECK(!rdma_destroy_id(listener));
    CHECK(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[1]) && !ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
    return 0;
}

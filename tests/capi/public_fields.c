/* Fields of the public structures that programs read: the state of a queue pair, and the counters of acknowledged
 * events with their conditions. And the index and the completion vectors of a device.
 *
 *   usage: public_fields CASE
 */
#include "pair.h"

#include <pthread.h>
#include <unistd.h>

enum { LENGTH = 64 };

/* A state that no queue pair here ever has. */
#define UNTOUCHED IBV_QPS_SQE

static uint8_t memory[2 * LENGTH];

/* Writes to the peer's memory with this key. */
static void post_write(struct ibv_qp *qp, struct ibv_mr *mr, uint32_t rkey)
{
    struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = LENGTH, .lkey = mr->lkey };
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { .remote_addr = (uintptr_t)memory + LENGTH, .rkey = rkey },
    }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* Waits for a counter as the header allows: with the mutex and the condition of the object. */
struct counter {
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    uint32_t *value;
    uint32_t until;
};

static void *wait_for(void *argument)
{
    struct counter *it = argument;
    CHECK(!pthread_mutex_lock(it->mutex));
    while (*it->value != it->until)
        CHECK(!pthread_cond_wait(it->cond, it->mutex));
    CHECK(!pthread_mutex_unlock(it->mutex));
    return NULL;
}

static struct ibv_async_event take_event(struct pair_device *device, enum ibv_event_type type)
{
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(device->context, &event));
    CHECK(event.event_type == type);
    return event;
}

/* ibv_modify_qp and ibv_query_qp change the field only with IBV_QP_STATE in the mask. */
static void state(struct pair_device *device)
{
    struct ibv_mr *mr = ibv_reg_mr(device->pd, memory, sizeof memory, PAIR_ACCESS);
    struct ibv_cq *cq = ibv_create_cq(device->context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = pair_create(device, IBV_QPT_RC, cq, cq, 4);
    struct ibv_qp *peer = pair_create(device, IBV_QPT_RC, cq, cq, 4);
    struct ibv_async_event event;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(mr && qp->state == IBV_QPS_INIT);
    pair_connect(device, qp, peer->qp_num);
    pair_connect(device, peer, qp->qp_num);
    CHECK(qp->state == IBV_QPS_RTS);

    qp->state = UNTOUCHED;
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init));
    CHECK(qp->state == UNTOUCHED && attr.dest_qp_num == peer->qp_num);
    attr = (struct ibv_qp_attr){ .min_rnr_timer = 2 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER));
    CHECK(qp->state == UNTOUCHED);
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    CHECK(qp->state == IBV_QPS_RTS && attr.qp_state == IBV_QPS_RTS);

    /* An error of the queue pair shows with a query of the state. */
    post_write(qp, mr, mr->rkey ^ 0x55);
    CHECK(pair_take(cq).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_AV, &init));
    CHECK(qp->state == IBV_QPS_RTS && attr.qp_state == IBV_QPS_ERR);
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    CHECK(qp->state == IBV_QPS_ERR);
    attr.qp_state = IBV_QPS_RESET;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE) && qp->state == IBV_QPS_RESET);
    /* A refused change changes nothing. */
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL && qp->state == IBV_QPS_RESET);
    event = take_event(device, IBV_EVENT_QP_ACCESS_ERR);
    ibv_ack_async_event(&event);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr));
}

/* The kernel has no index for our devices. */
static void device_index(struct pair_device *device)
{
    CHECK(ibv_get_device_index(device->context->device) == -1);
}

/* Programs spread their CQs over the vectors, often by the number of a CPU. */
static void vectors(struct pair_device *device)
{
    int vectors = device->context->num_comp_vectors;
    CHECK(vectors == sysconf(_SC_NPROCESSORS_CONF));
    for (int i = 0; i < vectors; i++) {
        struct ibv_cq *cq = ibv_create_cq(device->context, 1, NULL, NULL, i);
        struct ibv_cq_init_attr_ex init = { .cqe = 1, .comp_vector = i };
        struct ibv_cq_ex *extended = ibv_create_cq_ex(device->context, &init);
        CHECK(cq && extended);
        CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(extended)));
    }
    CHECK(!ibv_create_cq(device->context, 1, NULL, NULL, vectors) && errno == EINVAL);
    CHECK(!ibv_create_cq(device->context, 1, NULL, NULL, -1) && errno == EINVAL);
}

static void completions(struct pair_device *device)
{
    struct ibv_mr *mr = ibv_reg_mr(device->pd, memory, sizeof memory, PAIR_ACCESS);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(device->context);
    struct ibv_cq *cq = ibv_create_cq(device->context, 16, NULL, channel, 0), *which;
    struct ibv_qp *qp = pair_create(device, IBV_QPT_RC, cq, cq, 4);
    struct counter counter = { &cq->mutex, &cq->cond, &cq->comp_events_completed, 3 };
    pthread_t waiter;
    void *context;
    CHECK(mr && cq->comp_events_completed == 0);
    pair_connect(device, qp, qp->qp_num);
    CHECK(!pthread_create(&waiter, NULL, wait_for, &counter));
    for (int i = 0; i < 3; i++) {
        CHECK(!ibv_req_notify_cq(cq, 0));
        post_write(qp, mr, mr->rkey);
        CHECK(!ibv_get_cq_event(channel, &which, &context) && which == cq);
        pair_take(cq);
    }
    CHECK(cq->comp_events_completed == 0);
    ibv_ack_cq_events(cq, 1);
    ibv_ack_cq_events(cq, 2);
    CHECK(!pthread_join(waiter, NULL));
    CHECK(cq->comp_events_completed == 3 && cq->async_events_completed == 0);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr));
}

/* Acknowledges an event while another thread waits for the counter of its object. */
static void acknowledge(struct pair_device *device, enum ibv_event_type type, struct counter counter)
{
    struct ibv_async_event event = take_event(device, type);
    pthread_t waiter;
    counter.until = *counter.value + 1;
    CHECK(!pthread_create(&waiter, NULL, wait_for, &counter));
    ibv_ack_async_event(&event);
    CHECK(!pthread_join(waiter, NULL));
}

#define COUNTER(object, name) ((struct counter){ &(object)->mutex, &(object)->cond, &(object)->name, 0 })

static void asynchronous(struct pair_device *device)
{
    struct ibv_mr *mr = ibv_reg_mr(device->pd, memory, sizeof memory, PAIR_ACCESS);
    struct ibv_cq *cq = ibv_create_cq(device->context, 16, NULL, NULL, 0);
    struct ibv_cq *small = ibv_create_cq(device->context, 1, NULL, NULL, 0);
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
    struct ibv_srq *srq = ibv_create_srq(device->pd, &shared);
    struct ibv_qp *qp = pair_create(device, IBV_QPT_RC, cq, cq, 4);
    struct ibv_qp *peer = pair_create(device, IBV_QPT_RC, cq, cq, 4);
    CHECK(mr && srq);

    /* An SRQ below its limit: there are no receives. */
    shared.attr.srq_limit = 8;
    CHECK(!ibv_modify_srq(srq, &shared.attr, IBV_SRQ_LIMIT));
    acknowledge(device, IBV_EVENT_SRQ_LIMIT_REACHED, COUNTER(srq, events_completed));
    CHECK(srq->events_completed == 1);

    /* A WRITE with a key that does not exist. */
    pair_connect(device, qp, peer->qp_num);
    pair_connect(device, peer, qp->qp_num);
    post_write(qp, mr, mr->rkey ^ 0x55);
    CHECK(pair_take(cq).status == IBV_WC_REM_ACCESS_ERR);
    acknowledge(device, IBV_EVENT_QP_ACCESS_ERR, COUNTER(peer, events_completed));
    CHECK(peer->events_completed == 1 && qp->events_completed == 0);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer));

    /* More completions than a CQ holds. */
    qp = pair_create(device, IBV_QPT_RC, small, small, 2 * small->cqe);
    pair_connect(device, qp, qp->qp_num);
    for (int i = 0; i <= small->cqe; i++)
        post_write(qp, mr, mr->rkey);
    acknowledge(device, IBV_EVENT_CQ_ERR, COUNTER(small, async_events_completed));
    CHECK(small->async_events_completed == 1 && small->comp_events_completed == 0);
    acknowledge(device, IBV_EVENT_QP_FATAL, COUNTER(qp, events_completed));
    CHECK(qp->events_completed == 1);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(small) && !ibv_destroy_cq(cq) && !ibv_destroy_srq(srq));
    CHECK(!ibv_dereg_mr(mr));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(struct pair_device *);
    } cases[] = {
        { "state", state }, { "device_index", device_index }, { "vectors", vectors },
        { "completions", completions }, { "asynchronous", asynchronous },
    };
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name))
            continue;
        struct pair_device device = pair_open();
        cases[i].run(&device);
        CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}

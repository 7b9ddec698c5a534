/* SRQs, draining, full queues, and errors that are returned immediately. */
#include "conformance.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static bool event(struct end *e, enum ibv_event_type wanted)
{
    struct pollfd descriptor = { .fd = e->context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    while (poll(&descriptor, 1, 5000) == 1 && !ibv_get_async_event(e->context, &event)) {
        ibv_ack_async_event(&event);
        if (event.event_type == wanted)
            return true;
    }
    return false;
}

static void shared(struct end *e)
{
    enum { COUNT = 20 };
    if (e->active) {
        meet();
        for (int i = 0; i < COUNT; i++) {
            fill(e, 0, 777, i);
            simple(e, IBV_WR_SEND, 0, 777, 0, IBV_WC_SUCCESS, "send");
        }
        return;
    }
    for (int i = 0; i < COUNT; i++)
        receive(e, 4096 * i, 4096, i);
    struct ibv_srq_attr limit = { .srq_limit = 5 };
    check(!ibv_modify_srq(e->srq, &limit, IBV_SRQ_LIMIT), "modify_srq failed");
    meet();
    for (int i = 0; i < COUNT; i++) {
        struct ibv_wc wc = expect_receive(e, 777, false, "receive");
        check(holds(e, 4096 * wc.wr_id, 777, i), "message %d: other data", i);
    }
    check(event(e, IBV_EVENT_SRQ_LIMIT_REACHED), "no event when the limit was passed");
    /* IBA 10.2.9.3: in the error state, a queue pair with an SRQ reports when it takes no more requests from it. */
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    modify(e, &attr, IBV_QP_STATE);
    check(event(e, IBV_EVENT_QP_LAST_WQE_REACHED), "no event for the last receive");
}

static void drain(struct end *e)
{
    meet();
    if (!e->active)
        return;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
    struct ibv_sge sge = piece(e, 0, 1000);
    struct ibv_send_wr wr = request(e, IBV_WR_RDMA_WRITE, &sge, 0);
    for (int i = 0; i < 10; i++)
        post(e, &wr);
    modify(e, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
    check(event(e, IBV_EVENT_SQ_DRAINED), "no event when the send queue was drained");
    check(state(e) == IBV_QPS_SQD, "state %d", state(e));
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
    int error = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
    check(!error, "from SQD to RTS: %s", strerror(error));
    if (error)
        return;
    for (int i = 0; i < 10; i++)
        expect(e, IBV_WC_SUCCESS, "write before the drain");
    post(e, &wr);
    expect(e, IBV_WC_SUCCESS, "write after the drain");
}

/* A list that does not fit: earlier requests are executed, bad_wr is the first that is not, and nothing is lost. */
static void full(struct end *e)
{
    meet();
    if (!e->active)
        return;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    check(!ibv_query_qp(e->qp, &attr, IBV_QP_CAP, &init), "query_qp failed");
    struct ibv_sge sges[SGES + 60];
    struct ibv_send_wr wr[2], *bad = NULL;
    for (size_t i = 0; i < sizeof sges / sizeof *sges; i++)
        sges[i] = piece(e, 0, 8);
    wr[0] = request(e, IBV_WR_RDMA_WRITE, sges, 0);
    wr[1] = request(e, IBV_WR_RDMA_WRITE, sges, 0);
    wr[1].num_sge = init.cap.max_send_sge + 1;
    wr[0].next = &wr[1];
    check(ibv_post_send(e->qp, wr, &bad) != 0 && bad == &wr[1], "too many pieces were taken");
    expect(e, IBV_WC_SUCCESS, "the request before it");
    sges[0].length = init.cap.max_inline_data + 1;
    wr[0].next = NULL;
    wr[0].send_flags = IBV_SEND_INLINE;
    bad = NULL;
    check(ibv_post_send(e->qp, wr, &bad) != 0 && bad == wr, "more inline data than there is room for was taken");
    check(nothing(e), "a completion of what was refused");
    wr[0] = request(e, IBV_WR_SEND, sges, 0);
    sges[0].length = 8;
    /* No receive is posted for these: they stay until the queue is full. */
    unsigned taken = 0;
    int error = 0;
    while (taken <= init.cap.max_send_wr && !(error = ibv_post_send(e->qp, wr, &bad)))
        taken++;
    check(error == ENOMEM && bad == wr, "a full queue said %s", strerror(error));
    check(taken == init.cap.max_send_wr, "%u requests were taken, not %u", taken, init.cap.max_send_wr);
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR };
    modify(e, &attr, IBV_QP_STATE);
    for (unsigned i = 0; i < taken; i++)
        expect(e, IBV_WC_WR_FLUSH_ERR, "a request of the full queue");
    check(nothing(e), "a completion too many");
}

/* Before RTS nothing is sent (IBA 10.3.1), and requests cleared by RESET never complete. */
static void wrong_state(struct end *e)
{
    meet();
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
    struct ibv_sge sge = piece(e, 0, 8);
    struct ibv_send_wr wr = request(e, IBV_WR_RDMA_WRITE, &sge, 0), *bad = NULL;
    receive(e, 0, 100, 0);
    modify(e, &attr, IBV_QP_STATE);
    check(nothing(e), "a completion of what was cleared");
    check(ibv_post_send(e->qp, &wr, &bad) != 0 && bad == &wr, "a request was taken in RESET");
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
    check(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE) != 0, "RESET became RTR");
    check(state(e) == IBV_QPS_RESET, "a refused change has changed the state to %d", state(e));
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 99 };
    check(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0,
          "port 99 was taken");
    check(state(e) == IBV_QPS_RESET, "a refused change has changed the state to %d", state(e));
}

const struct test queue_tests[] = {
    { "shared", "a shared receive queue, its limit, its last receive", shared, IBV_QPT_RC, .shared = true },
    { "drain", "SQD, its event, and back", drain, IBV_QPT_RC },
    { "full", "too many pieces, too much inline, too many requests", full, IBV_QPT_RC },
    { "wrong_state", "requests and changes that a state does not allow", wrong_state, IBV_QPT_RC },
    { 0 },
};

/* Every kind of refused request: the status of requester and responder, and the state of both queue pairs. */
#include "conformance.h"

#include <unistd.h>

/* After an error all remaining requests are flushed and not executed (IBA 10.3.1.5). */
static void in_error(struct end *e, int flushed, const char *whose)
{
    for (int i = 0; i < flushed; i++)
        expect(e, IBV_WC_WR_FLUSH_ERR, whose);
    check(state(e) == IBV_QPS_ERR, "%s: the queue pair is in state %d, not in error", whose, state(e));
}

/* A request that the passive side must refuse, followed by two that must not be executed. */
static void refused(struct end *e, enum ibv_wr_opcode opcode, size_t length, size_t remote, uint32_t rkey,
                    enum ibv_wc_status status)
{
    int posted = 0;
    if (!e->active) {
        fill(e, 0, 4096, 42);
        receive(e, 8192, 4096, 0);
        meet();
        exchange(&posted, &posted, sizeof posted);
        if (!posted)
            return;
        in_error(e, 1, "the responder's receive");
        check(holds(e, 0, 4096, 42), "something was written");
        check(nothing(e), "a completion too many");
        return;
    }
    struct ibv_sge sge = piece(e, 0, length), small = piece(e, 0, 8);
    struct ibv_send_wr wr = request(e, opcode, &sge, remote), behind = request(e, IBV_WR_RDMA_WRITE, &small, 0), *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.rkey = rkey, wr.wr.atomic.compare_add = 1;
    else
        wr.wr.rdma.rkey = rkey;
    meet();
    wr.next = &behind;
    posted = !ibv_post_send(e->qp, &wr, &bad);
    check(posted, "the request was not even taken");
    exchange(&posted, &(int){ 0 }, sizeof posted);
    if (!posted)
        return;
    expect(e, status, "the request");
    in_error(e, 1, "the request behind it");
    check(nothing(e), "a completion too many");
}

#define REFUSED(name, opcode, length, remote, rkey, status) \
    static void name(struct end *e) { refused(e, opcode, length, remote, rkey, status); }

REFUSED(bad_key_write, IBV_WR_RDMA_WRITE, 3000, 0, e->you.rkey ^ 0x5500, IBV_WC_REM_ACCESS_ERR)
REFUSED(bad_key_read, IBV_WR_RDMA_READ, 3000, 0, e->you.rkey ^ 0x5500, IBV_WC_REM_ACCESS_ERR)
REFUSED(bad_key_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, e->you.rkey ^ 0x5500, IBV_WC_REM_ACCESS_ERR)
REFUSED(past_the_end_write, IBV_WR_RDMA_WRITE, 100, MEMORY - 99, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(past_the_end_read, IBV_WR_RDMA_READ, 100, MEMORY - 99, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(before_the_start, IBV_WR_RDMA_WRITE, 100, -1, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(plain_write, IBV_WR_RDMA_WRITE, 100, 0, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(plain_read, IBV_WR_RDMA_READ, 100, 0, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(plain_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, e->you.rkey, IBV_WC_REM_ACCESS_ERR)
REFUSED(unwanted_write, IBV_WR_RDMA_WRITE, 100, 0, e->you.rkey, IBV_WC_REM_INV_REQ_ERR)
REFUSED(unwanted_read, IBV_WR_RDMA_READ, 100, 0, e->you.rkey, IBV_WC_REM_INV_REQ_ERR)
REFUSED(unwanted_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, e->you.rkey, IBV_WC_REM_INV_REQ_ERR)
REFUSED(unaligned_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, e->you.rkey, IBV_WC_REM_INV_REQ_ERR)

/* No memory is accessed, so no key is checked. */
static void no_bytes_no_key(struct end *e)
{
    meet();
    if (!e->active)
        return;
    by_key(e, IBV_WR_RDMA_WRITE, 0, 0, e->you.rkey ^ 0x5500, IBV_WC_SUCCESS, "write of nothing");
    by_key(e, IBV_WR_RDMA_READ, 0, 0, e->you.rkey ^ 0x5500, IBV_WC_SUCCESS, "read of nothing");
}

static void gone_region(struct end *e)
{
    if (!e->active) {
        check(!ibv_dereg_mr(e->mr), "dereg_mr failed");
        e->mr = NULL;
        meet();
        return meet();
    }
    meet();
    by_key(e, IBV_WR_RDMA_WRITE, 100, 0, e->you.rkey, IBV_WC_REM_ACCESS_ERR, "write to what is no longer registered");
    meet();
}

static void too_long(struct end *e)
{
    if (e->active) {
        meet();
        simple(e, IBV_WR_SEND, 0, 2000, 0, IBV_WC_REM_INV_REQ_ERR, "send longer than the receive");
        return in_error(e, 0, "the requester");
    }
    receive(e, 0, 100, 0);
    receive(e, 0, 4096, 1);
    meet();
    check(expect(e, IBV_WC_LOC_LEN_ERR, "the receive").wr_id == 0, "another receive");
    in_error(e, 1, "the receive behind it");
}

static void bad_receive(struct end *e)
{
    if (e->active) {
        meet();
        simple(e, IBV_WR_SEND, 0, 100, 0, IBV_WC_REM_OP_ERR, "send into a bad receive");
        return in_error(e, 0, "the requester");
    }
    e->mr->lkey ^= 0x5500;
    receive(e, 0, 4096, 0);
    e->mr->lkey ^= 0x5500;
    meet();
    expect(e, IBV_WC_LOC_PROT_ERR, "the receive");
    in_error(e, 0, "the responder");
}

/* A local error of the requester: the peer is not notified, and stays connected. */
static void own_mistake(struct end *e, enum ibv_wr_opcode opcode)
{
    if (!e->active) {
        meet();
        meet();
        return check(state(e) == IBV_QPS_RTS, "the responder is in state %d", state(e));
    }
    struct ibv_sge sge = piece(e, 0, 100);
    struct ibv_send_wr wr = request(e, opcode, &sge, 0);
    sge.lkey ^= 0x5500;
    meet();
    post(e, &wr);
    expect(e, IBV_WC_LOC_PROT_ERR, "the request");
    in_error(e, 0, "the requester");
    meet();
}

static void bad_local_key_write(struct end *e) { own_mistake(e, IBV_WR_RDMA_WRITE); }
static void bad_local_key_read(struct end *e) { own_mistake(e, IBV_WR_RDMA_READ); }

static void late_receive(struct end *e)
{
    if (e->active) {
        meet();
        simple(e, IBV_WR_SEND, 0, 2500, 0, IBV_WC_SUCCESS, "send with no receive posted");
        return simple(e, IBV_WR_SEND, 0, 10, 0, IBV_WC_SUCCESS, "next send");
    }
    meet();
    usleep(20000); /* several RNR NAKs long, on any computer: what is waited for cannot be seen from here */
    receive(e, 0, 65536, 0);
    receive(e, 0, 65536, 1);
    expect_receive(e, 2500, false, "receive");
    expect_receive(e, 10, false, "next receive");
}

static void never_received(struct end *e)
{
    meet();
    if (e->active) {
        simple(e, IBV_WR_SEND, 0, 100, 0, IBV_WC_RNR_RETRY_EXC_ERR, "send with no receive posted");
        in_error(e, 0, "the requester");
    }
    meet();
    if (!e->active)
        check(state(e) == IBV_QPS_RTS, "the responder is in state %d", state(e));
}

static void no_answer(struct end *e)
{
    meet();
    if (!e->active)
        return;
    struct ibv_sge sge = piece(e, 0, 100);
    struct ibv_send_wr wr = request(e, IBV_WR_SEND, &sge, 0);
    receive(e, 0, 100, 0);
    post(e, &wr);
    post(e, &wr);
    expect(e, IBV_WC_RETRY_EXC_ERR, "send to a queue pair that is not there");
    in_error(e, 2, "what is left");
}

const struct test refusal_tests[] = {
    { "bad_key_write", "remote access error", bad_key_write, IBV_QPT_RC },
    { "bad_key_read", "remote access error", bad_key_read, IBV_QPT_RC },
    { "bad_key_atomic", "remote access error", bad_key_atomic, IBV_QPT_RC },
    { "past_the_end_write", "remote access error", past_the_end_write, IBV_QPT_RC },
    { "past_the_end_read", "remote access error", past_the_end_read, IBV_QPT_RC },
    { "before_the_start", "remote access error", before_the_start, IBV_QPT_RC },
    { "region_without_write", "remote access error", plain_write, IBV_QPT_RC,
      .region_access = IBV_ACCESS_REMOTE_WRITE },
    { "region_without_read", "remote access error", plain_read, IBV_QPT_RC, .region_access = IBV_ACCESS_REMOTE_READ },
    { "region_without_atomic", "remote access error", plain_atomic, IBV_QPT_RC,
      .region_access = IBV_ACCESS_REMOTE_ATOMIC },
    { "qp_without_write", "remote invalid request", unwanted_write, IBV_QPT_RC, .qp_access = IBV_ACCESS_REMOTE_WRITE },
    { "qp_without_read", "remote invalid request", unwanted_read, IBV_QPT_RC, .qp_access = IBV_ACCESS_REMOTE_READ },
    { "qp_without_atomic", "remote invalid request", unwanted_atomic, IBV_QPT_RC,
      .qp_access = IBV_ACCESS_REMOTE_ATOMIC },
    { "unaligned_atomic", "remote invalid request", unaligned_atomic, IBV_QPT_RC },
    { "no_bytes_no_key", "no key is needed for nothing", no_bytes_no_key, IBV_QPT_RC },
    { "gone_region", "a key whose region is gone", gone_region, IBV_QPT_RC },
    { "too_long", "a send longer than the receive", too_long, IBV_QPT_RC },
    { "bad_receive", "a receive with a wrong lkey: remote operation error", bad_receive, IBV_QPT_RC },
    { "bad_local_key_write", "local protection error", bad_local_key_write, IBV_QPT_RC },
    { "bad_local_key_read", "local protection error", bad_local_key_read, IBV_QPT_RC },
    { "late_receive", "RNR NAKs, then success", late_receive, IBV_QPT_RC },
    { "never_received", "RNR retries exceeded", never_received, IBV_QPT_RC, .rnr_retries = 2 },
    { "no_answer", "retries exceeded, the rest flushed", no_answer, IBV_QPT_RC, .timeout = 11, .retries = 3,
      .wrong_qpn = true },
    { 0 },
};

/* Work requests, their completions, and the data. */
#include "conformance.h"

#include <string.h>
#include <time.h>

/* Bytes that depend on offset and seed, so that misplaced or stale data is detected. */
static uint8_t byte(size_t at, unsigned seed)
{
    return (at * 7 + (at >> 8) * 13 + (at >> 16) * 29 + seed * 101) % 251;
}

void fill(struct end *e, size_t offset, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        e->memory[offset + i] = byte(i, seed);
}

bool holds(struct end *e, size_t offset, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (e->memory[offset + i] != byte(i, seed))
            return false;
    return true;
}

struct ibv_sge piece(struct end *e, size_t offset, size_t length)
{
    return (struct ibv_sge){ (uintptr_t)e->memory + offset, length, e->mr->lkey };
}

struct ibv_send_wr request(struct end *e, enum ibv_wr_opcode opcode, struct ibv_sge *sge, size_t remote)
{
    struct ibv_send_wr wr = {
        .wr_id = 0x5e11d, .opcode = opcode, .sg_list = sge, .num_sge = sge && sge->length > 0,
        .imm_data = htobe32(IMMEDIATE),
    };
    if (e->test->type == IBV_QPT_UD) {
        wr.wr.ud.ah = e->ah;
        wr.wr.ud.remote_qpn = e->you.qpn;
        wr.wr.ud.remote_qkey = QKEY;
    } else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = e->you.address + remote;
        wr.wr.atomic.rkey = e->you.rkey;
    } else {
        wr.wr.rdma.remote_addr = e->you.address + remote;
        wr.wr.rdma.rkey = e->you.rkey;
    }
    return wr;
}

void post(struct end *e, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(e->qp, wr, &bad);
    if (error)
        give_up("post_send of opcode %d: %s", wr->opcode, strerror(error));
}

void receive(struct end *e, size_t offset, size_t length, uint64_t id)
{
    struct ibv_sge sge = piece(e, offset, length);
    struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
    int error = e->srq ? ibv_post_srq_recv(e->srq, &wr, &bad) : ibv_post_recv(e->qp, &wr, &bad);
    if (error)
        give_up("post_recv: %s", strerror(error));
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

struct ibv_wc take(struct end *e)
{
    struct ibv_wc wc;
    /* Longer than any timeout of these queue pairs: a completion that has not arrived by then never will. */
    double limit = now() + 40;
    int found;
    while (!(found = ibv_poll_cq(e->cq, 1, &wc)))
        if (now() > limit)
            give_up("a completion that was expected has not come");
    if (found < 0)
        give_up("poll_cq failed");
    return wc;
}

bool nothing(struct end *e)
{
    struct ibv_wc wc;
    return ibv_poll_cq(e->cq, 1, &wc) == 0;
}

struct ibv_wc expect(struct end *e, enum ibv_wc_status status, const char *what)
{
    struct ibv_wc wc = take(e);
    check(wc.status == status, "%s ended with \"%s\", not \"%s\"", what, ibv_wc_status_str(wc.status),
          ibv_wc_status_str(status));
    check(wc.qp_num == e->qp->qp_num, "%s: completion of another queue pair", what);
    /* rdma_rxe and mlx5 set the GRH flag for every message received over RoCE, by any service, but not for sends. */
    bool received = status == IBV_WC_SUCCESS && wc.status == status && wc.opcode & IBV_WC_RECV;
    if (wc.status == IBV_WC_SUCCESS)
        check(!!(wc.wc_flags & IBV_WC_GRH) == received, "%s: the GRH is %s: flags %x", what,
              received ? "missing" : "not expected", wc.wc_flags);
    return wc;
}

struct ibv_wc expect_receive(struct end *e, uint32_t length, bool immediate, const char *what)
{
    struct ibv_wc wc = expect(e, IBV_WC_SUCCESS, what);
    check(wc.opcode & IBV_WC_RECV, "%s: opcode %d", what, wc.opcode);
    check(wc.byte_len == length, "%s: %u bytes, not %u", what, wc.byte_len, length);
    check(!!(wc.wc_flags & IBV_WC_WITH_IMM) == immediate, "%s: flags %x", what, wc.wc_flags);
    check(!immediate || wc.imm_data == htobe32(IMMEDIATE), "%s: immediate %x", what, be32toh(wc.imm_data));
    return wc;
}

void by_key(struct end *e, enum ibv_wr_opcode opcode, size_t length, size_t remote, uint32_t rkey,
            enum ibv_wc_status status, const char *what)
{
    struct ibv_sge sge = piece(e, 0, length);
    struct ibv_send_wr wr = request(e, opcode, &sge, remote);
    wr.wr.rdma.rkey = rkey;
    post(e, &wr);
    expect(e, status, what);
}

void simple(struct end *e, enum ibv_wr_opcode opcode, size_t local, size_t length, size_t remote,
            enum ibv_wc_status status, const char *what)
{
    struct ibv_sge sge = piece(e, local, length);
    struct ibv_send_wr wr = request(e, opcode, &sge, remote);
    post(e, &wr);
    struct ibv_wc wc = expect(e, status, what);
    check(wc.wr_id == 0x5e11d, "%s: completion of another request", what);
}

uint64_t atomic(struct end *e, enum ibv_wr_opcode opcode, size_t remote, uint32_t rkey, uint64_t compare_add,
                uint64_t swap, enum ibv_wc_status status, const char *what)
{
    struct ibv_sge sge = piece(e, MEMORY - 8, 8);
    struct ibv_send_wr wr = request(e, opcode, &sge, remote);
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = compare_add;
    wr.wr.atomic.swap = swap;
    post(e, &wr);
    expect(e, status, what);
    return *(uint64_t *)(e->memory + MEMORY - 8);
}

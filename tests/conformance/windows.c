/* Memory windows and invalidation. */
#include "conformance.h"

enum { WINDOW = 4096 };

/* The passive side's part of every case: a window over the first page, whose key it sends. */
static struct ibv_mw *bound(struct end *e, enum ibv_mw_type type)
{
    struct ibv_mw_bind_info info = {
        .mr = e->mr, .addr = (uintptr_t)e->memory, .length = WINDOW, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };
    struct ibv_mw *window = ibv_alloc_mw(e->pd, type);
    if (!window)
        give_up("alloc_mw: %m");
    if (type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = { .wr_id = 1, .bind_info = info, .send_flags = IBV_SEND_SIGNALED };
        if (ibv_bind_mw(e->qp, window, &bind))
            give_up("bind_mw: %m");
    } else {
        struct ibv_send_wr wr = {
            .opcode = IBV_WR_BIND_MW,
            .bind_mw = { .mw = window, .rkey = ibv_inc_rkey(window->rkey), .bind_info = info },
        };
        post(e, &wr);
        window->rkey = wr.bind_mw.rkey;
    }
    check(expect(e, IBV_WC_SUCCESS, "bind").opcode == IBV_WC_BIND_MW, "bind: another opcode");
    e->me.other_rkey = window->rkey;
    exchange(&e->me, &e->you, sizeof e->me);
    return window;
}

static void learn(struct end *e) { exchange(&e->me, &e->you, sizeof e->me); }

/* Waits until the other side has tried everything, and deallocates the window. */
static void freed(struct ibv_mw *window)
{
    meet();
    check(!ibv_dealloc_mw(window), "dealloc_mw failed");
}

static void written(struct end *e)
{
    check(holds(e, 0, 3000, 8), "what was written by the window is not there");
}

static void window(struct end *e, enum ibv_mw_type type)
{
    if (e->active) {
        learn(e);
        fill(e, 0, 3000, 8);
        by_key(e, IBV_WR_RDMA_WRITE, 3000, 0, e->you.other_rkey, IBV_WC_SUCCESS, "write by the window");
        meet();
        by_key(e, IBV_WR_RDMA_WRITE, 100, WINDOW - 99, e->you.other_rkey, IBV_WC_REM_ACCESS_ERR,
               "write past the window's end");
        return meet();
    }
    struct ibv_mw *mine = bound(e, type);
    meet();
    written(e);
    freed(mine);
}

static void type_1(struct end *e) { window(e, IBV_MW_TYPE_1); }
static void type_2(struct end *e) { window(e, IBV_MW_TYPE_2); }

static void read_by_window(struct end *e)
{
    if (e->active) {
        learn(e);
        by_key(e, IBV_WR_RDMA_READ, 100, 0, e->you.other_rkey, IBV_WC_REM_ACCESS_ERR,
               "read by a window for writing");
        return meet();
    }
    freed(bound(e, IBV_MW_TYPE_2));
}

static void remote_invalidate(struct end *e)
{
    if (e->active) {
        struct ibv_sge sge = piece(e, 0, 50);
        struct ibv_send_wr wr = request(e, IBV_WR_SEND_WITH_INV, &sge, 0);
        learn(e);
        fill(e, 0, 3000, 8);
        by_key(e, IBV_WR_RDMA_WRITE, 3000, 0, e->you.other_rkey, IBV_WC_SUCCESS, "write by the window");
        wr.invalidate_rkey = e->you.other_rkey;
        post(e, &wr);
        expect(e, IBV_WC_SUCCESS, "send with invalidate");
        meet();
        by_key(e, IBV_WR_RDMA_WRITE, 50, 0, e->you.other_rkey, IBV_WC_REM_ACCESS_ERR,
               "write by the window, now invalid");
        return meet();
    }
    receive(e, 65536, 4096, 0);
    struct ibv_mw *mine = bound(e, IBV_MW_TYPE_2);
    struct ibv_wc wc = expect(e, IBV_WC_SUCCESS, "receive");
    check(wc.wc_flags & IBV_WC_WITH_INV, "the receive does not say that a key was invalidated: flags %x", wc.wc_flags);
    check(wc.invalidated_rkey == mine->rkey, "the receive names key %#x, not %#x", wc.invalidated_rkey, mine->rkey);
    written(e);
    meet();
    freed(mine);
}

static void local_invalidate(struct end *e)
{
    if (e->active) {
        learn(e);
        by_key(e, IBV_WR_RDMA_WRITE, 100, 0, e->you.other_rkey, IBV_WC_SUCCESS, "write by the window");
        meet();
        meet();
        by_key(e, IBV_WR_RDMA_WRITE, 100, 0, e->you.other_rkey, IBV_WC_REM_ACCESS_ERR,
               "write by the window, now invalid");
        return meet();
    }
    struct ibv_mw *mine = bound(e, IBV_MW_TYPE_2);
    struct ibv_send_wr wr = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mine->rkey };
    meet();
    post(e, &wr);
    check(expect(e, IBV_WC_SUCCESS, "local invalidate").opcode == IBV_WC_LOCAL_INV, "local invalidate: opcode");
    meet();
    freed(mine);
}

const struct test window_tests[] = {
    { "window_type_1", "written by, and not past its end", type_1, IBV_QPT_RC },
    { "window_type_2", "written by, and not past its end", type_2, IBV_QPT_RC },
    { "window_access", "a window for writing is not one for reading", read_by_window, IBV_QPT_RC },
    { "remote_invalidate", "send with invalidate ends a window", remote_invalidate, IBV_QPT_RC },
    { "local_invalidate", "so does a local request", local_invalidate, IBV_QPT_RC },
    { 0 },
};

/* RC: all operations, with every byte checked. */
#include "conformance.h"

#include <poll.h>
#include <string.h>

/* Lengths from zero to several packets, around the pad and the MTU. */
static size_t sizes(struct end *e, const size_t **out)
{
    static size_t list[] = { 0, 1, 2, 3, 4, 5, 255, 0, 0, 0, 0, 0, 65539, 1000001 };
    const size_t mtu = e->mtu, around[] = { mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 1 };
    memcpy(list + 7, around, sizeof around);
    *out = list;
    return sizeof list / sizeof *list;
}

enum { THERE = 2 << 20 };

static void all_sizes(struct end *e)
{
    const size_t *list, count = sizes(e, &list);
    for (size_t i = 0; i < count; i++) {
        size_t length = list[i];
        unsigned seed = 10 + i;
        if (e->active) {
            fill(e, 0, length, seed);
            meet();
            simple(e, IBV_WR_SEND, 0, length, 0, IBV_WC_SUCCESS, "send");
            simple(e, IBV_WR_RDMA_WRITE, 0, length, THERE, IBV_WC_SUCCESS, "write");
            simple(e, IBV_WR_RDMA_READ, THERE, length, THERE, IBV_WC_SUCCESS, "read");
            check(holds(e, THERE, length, seed), "read of %zu bytes: other data", length);
            meet();
        } else {
            fill(e, length, 1, 99);
            receive(e, 0, 1 << 20, i);
            meet();
            struct ibv_wc wc = expect_receive(e, length, false, "receive");
            check(wc.wr_id == i, "completion of another receive");
            check(holds(e, 0, length, seed), "receive of %zu bytes: other data", length);
            check(holds(e, length, 1, 99), "receive of %zu bytes: a byte more was written", length);
            meet();
            check(holds(e, THERE, length, seed), "write of %zu bytes: other data", length);
        }
    }
}

static void immediate(struct end *e)
{
    const size_t lengths[] = { 0, 1, 100, 5000 };
    for (unsigned i = 0; i < 8; i++) {
        bool write = i % 2;
        size_t length = lengths[i / 2];
        if (e->active) {
            fill(e, 0, length, i);
            meet();
            simple(e, write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM, 0, length, THERE, IBV_WC_SUCCESS,
                   write ? "write with immediate" : "send with immediate");
        } else {
            receive(e, 0, 1 << 20, i);
            meet();
            struct ibv_wc wc = expect_receive(e, length, true, "receive");
            check(wc.opcode == (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV), "opcode %d", wc.opcode);
            check(holds(e, write ? THERE : 0, length, i), "%zu bytes with immediate: other data", length);
        }
    }
}

static void pieces(struct end *e)
{
    struct ibv_sge list[] = { piece(e, 0, 10), piece(e, 4096, 2000), piece(e, 9001, 7) };
    uint8_t whole[2017];
    if (!e->active) {
        receive(e, THERE + 4096, 4096, 0);
        meet();
        expect_receive(e, 33, false, "receive of what was inline");
        check(holds(e, THERE + 4096, 33, 7), "inline: other data");
        return;
    }
    fill(e, 0, 10, 3);
    fill(e, 4096, 2000, 4);
    fill(e, 9001, 7, 5);
    for (int i = 0, at = 0; i < 3; at += list[i++].length)
        memcpy(whole + at, (void *)(uintptr_t)list[i].addr, list[i].length);
    meet();
    struct ibv_send_wr wr = request(e, IBV_WR_RDMA_WRITE, list, THERE);
    wr.num_sge = 3;
    post(e, &wr);
    expect(e, IBV_WC_SUCCESS, "write of three pieces");
    simple(e, IBV_WR_RDMA_READ, THERE, sizeof whole, THERE, IBV_WC_SUCCESS, "read in one piece");
    check(!memcmp(whole, e->memory + THERE, sizeof whole), "gathered wrongly");
    for (int i = 0; i < 3; i++)
        memset((void *)(uintptr_t)list[i].addr, 0, list[i].length);
    wr = request(e, IBV_WR_RDMA_READ, list, THERE);
    wr.num_sge = 3;
    post(e, &wr);
    expect(e, IBV_WC_SUCCESS, "read into three pieces");
    check(holds(e, 0, 10, 3) && holds(e, 4096, 2000, 4) && holds(e, 9001, 7, 5), "scattered wrongly");
    /* Inline data may be reused when post_send returns, and needs no key. */
    fill(e, 0, 33, 7);
    struct ibv_sge copy = { (uintptr_t)e->memory, 33, 0xdead };
    wr = request(e, IBV_WR_SEND, &copy, 0);
    wr.send_flags = IBV_SEND_INLINE;
    post(e, &wr);
    memset(e->memory, 0, 33);
    expect(e, IBV_WC_SUCCESS, "inline send");
}

static void atomics(struct end *e)
{
    uint64_t *word = (uint64_t *)(e->memory + 64), start = 0x0102030405060708;
    if (!e->active) {
        *word = start;
        meet();
        meet();
        check(*word == 0x1122334455667787 + 16 * 3, "the word is %#lx at the end", *word);
        return;
    }
    const enum ibv_wr_opcode add = IBV_WR_ATOMIC_FETCH_AND_ADD, swap = IBV_WR_ATOMIC_CMP_AND_SWP;
    const struct { enum ibv_wr_opcode opcode; uint64_t compare_add, swap, before; } steps[] = {
        { add, 0x10, 0, start },
        { swap, start + 0x10, 0x1122334455667788, start + 0x10 },
        { swap, 0xdead, 0xbeef, 0x1122334455667788 }, /* no match */
        { add, -1, 0, 0x1122334455667788 },
    };
    meet();
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        uint64_t before = atomic(e, steps[i].opcode, 64, e->you.rkey, steps[i].compare_add, steps[i].swap,
                                 IBV_WC_SUCCESS, "atomic");
        check(before == steps[i].before, "atomic %u: %#lx was there before, not %#lx", i, before, steps[i].before);
    }
    /* As many in flight as the other side allows: each has its own result. */
    for (int i = 0; i < 16; i++) {
        struct ibv_sge sge = piece(e, 8 * i, 8);
        struct ibv_send_wr wr = request(e, add, &sge, 64);
        wr.wr.atomic.compare_add = 3;
        wr.wr_id = i;
        post(e, &wr);
    }
    for (uint64_t i = 0; i < 16; i++) {
        struct ibv_wc wc = expect(e, IBV_WC_SUCCESS, "one of 16 atomics");
        uint64_t before = ((uint64_t *)e->memory)[i];
        check(wc.wr_id == i && before == 0x1122334455667787 + 3 * i, "atomic %lu of 16: %#lx", i, before);
    }
    meet();
}

/* A fenced send is sent after the READs before it have completed (IBA 10.8.3.2): the data it refers to is there. */
static void fence(struct end *e)
{
    if (!e->active) {
        fill(e, 0, 300000, 21);
        receive(e, 1 << 20, 4096, 0);
        meet();
        expect_receive(e, 4, false, "receive");
        check(holds(e, 1 << 20, 4, 21), "the send left before the read ended");
        return;
    }
    struct ibv_sge all = piece(e, 0, 300000), first = piece(e, 0, 4);
    struct ibv_send_wr read = request(e, IBV_WR_RDMA_READ, &all, 0), send = request(e, IBV_WR_SEND, &first, 0);
    send.send_flags = IBV_SEND_FENCE;
    read.next = &send;
    memset(e->memory, 0, 4);
    meet();
    post(e, &read);
    expect(e, IBV_WC_SUCCESS, "read");
    expect(e, IBV_WC_SUCCESS, "fenced send");
}

/* Writes are visible when the send after them completes (IBA 9.5). */
static void order(struct end *e)
{
    enum { COUNT = 40 };
    if (!e->active) {
        receive(e, THERE, 4096, 0);
        meet();
        expect_receive(e, 1, false, "receive");
        for (int i = 0; i < COUNT; i++)
            check(holds(e, i * 3001, 3001, i), "write %d is not there although the send behind it is", i);
        return;
    }
    meet();
    for (int i = 0; i < COUNT; i++) {
        struct ibv_sge sge = piece(e, i * 3001, 3001);
        struct ibv_send_wr wr = request(e, IBV_WR_RDMA_WRITE, &sge, i * 3001);
        fill(e, i * 3001, 3001, i);
        wr.wr_id = i;
        post(e, &wr);
    }
    struct ibv_sge sge = piece(e, 0, 1);
    struct ibv_send_wr wr = request(e, IBV_WR_SEND, &sge, 0);
    post(e, &wr);
    for (uint64_t i = 0; i < COUNT; i++)
        check(expect(e, IBV_WC_SUCCESS, "write").wr_id == i, "completions out of order");
    expect(e, IBV_WC_SUCCESS, "send");
}

/* One completion covers all unsignaled requests before it (IBA 10.8.6). */
static void unsignaled(struct end *e)
{
    if (!e->active)
        return meet();
    meet();
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 32; i++) {
            struct ibv_sge sge = piece(e, 0, 100);
            struct ibv_send_wr wr = request(e, IBV_WR_RDMA_WRITE, &sge, THERE);
            wr.wr_id = i;
            wr.send_flags = i == 31 ? IBV_SEND_SIGNALED : 0;
            post(e, &wr);
        }
        check(expect(e, IBV_WC_SUCCESS, "the last write").wr_id == 31, "completion of a write that asked for none");
    }
    check(nothing(e), "a completion too many");
}

static bool raised(struct end *e, int milliseconds)
{
    struct pollfd descriptor = { .fd = e->channel->fd, .events = POLLIN };
    return poll(&descriptor, 1, milliseconds) == 1;
}

/* A CQ armed for solicited events is not notified of others (IBA 11.4.2.2). */
static void solicited(struct end *e)
{
    if (e->active) {
        struct ibv_sge sge = piece(e, 0, 10);
        struct ibv_send_wr wr = request(e, IBV_WR_SEND, &sge, 0);
        meet();
        post(e, &wr);
        expect(e, IBV_WC_SUCCESS, "send");
        meet();
        meet();
        wr.send_flags = IBV_SEND_SOLICITED;
        post(e, &wr);
        expect(e, IBV_WC_SUCCESS, "solicited send");
        return;
    }
    struct ibv_cq *cq;
    void *context;
    receive(e, 0, 100, 0);
    receive(e, 0, 100, 1);
    check(!ibv_req_notify_cq(e->cq, 1), "req_notify_cq failed");
    meet();
    meet();
    expect_receive(e, 10, false, "receive");
    check(!raised(e, 0), "an event that nobody asked for");
    meet();
    check(raised(e, 30000) && !ibv_get_cq_event(e->channel, &cq, &context) && cq == e->cq, "no event");
    ibv_ack_cq_events(e->cq, 1);
    expect_receive(e, 10, false, "solicited receive");
}

/* Both sides are requesters at the same time. */
static void both(struct end *e)
{
    unsigned mine = e->active ? 31 : 32, theirs = e->active ? 32 : 31;
    fill(e, 0, 100000, mine);
    meet();
    for (int i = 0; i < 20; i++) {
        struct ibv_sge sge = piece(e, i % 2 ? 1 << 20 : 0, 100000);
        struct ibv_send_wr wr = request(e, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge, i % 2 ? 0 : THERE);
        post(e, &wr);
    }
    for (int i = 0; i < 20; i++)
        expect(e, IBV_WC_SUCCESS, "one of 20");
    check(holds(e, 1 << 20, 100000, theirs), "read: other data");
    meet();
    check(holds(e, THERE, 100000, theirs), "written: other data");
}

/* All operations, four requests in flight, every byte and count checked: for lossy networks. */
static void mix(struct end *e)
{
    uint64_t *counter = (uint64_t *)(e->memory + MEMORY - 16), *fetched = (uint64_t *)(e->memory + MEMORY - 8);
    const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
    };
    if (!e->active) {
        *counter = 0;
        for (int i = 0; i < DEPTH / 2; i++)
            receive(e, 4096 * i, 4096, i);
        meet();
        for (int round = 0; round < e->rounds; round++) {
            struct ibv_wc wc = expect_receive(e, 4001, false, "receive");
            check(holds(e, 4096 * wc.wr_id, 4001, round), "round %d: receive of other data", round);
            receive(e, 4096 * wc.wr_id, 4096, wc.wr_id);
        }
        meet();
        check(*counter == (uint64_t)e->rounds, "%lu atomics were done, not %d", *counter, e->rounds);
        return;
    }
    meet();
    for (int round = 0; round < e->rounds; round++) {
        fill(e, 0, 4001, round);
        for (int i = 0; i < 4; i++) {
            struct ibv_sge sge = i == 3 ? piece(e, MEMORY - 8, 8) : piece(e, i == 2 ? 8192 : 0, 4001);
            struct ibv_send_wr wr = request(e, opcodes[i], &sge, i == 3 ? MEMORY - 16 : THERE);
            wr.wr.atomic.compare_add = i == 3 ? 1 : wr.wr.atomic.compare_add;
            wr.wr_id = i;
            post(e, &wr);
        }
        for (uint64_t i = 0; i < 4; i++)
            check(expect(e, IBV_WC_SUCCESS, "one of four").wr_id == i, "round %d: out of order", round);
        check(holds(e, 8192, 4001, round), "round %d: read of other data", round);
        check(*fetched == (uint64_t)round, "round %d: the counter was %lu", round, *fetched);
    }
    meet();
}

const struct test reliable_tests[] = {
    { "rc_sizes", "send, write and read of all sizes", all_sizes, IBV_QPT_RC },
    { "rc_psn_wrap", "the same, the PSN going past its end", all_sizes, IBV_QPT_RC, .psn = 0xfffff8 },
    { "rc_immediate", "sends and writes with immediate", immediate, IBV_QPT_RC },
    { "rc_pieces", "gather, scatter, inline", pieces, IBV_QPT_RC },
    { "rc_atomics", "add, swap with and without match, 16 at once", atomics, IBV_QPT_RC },
    { "rc_fence", "a fenced send behind a read", fence, IBV_QPT_RC },
    { "rc_order", "writes before the send behind them", order, IBV_QPT_RC },
    { "rc_unsignaled", "one completion for many requests", unsignaled, IBV_QPT_RC, .unsignaled = true },
    { "rc_solicited", "events for solicited sends only", solicited, IBV_QPT_RC, .channel = true },
    { "rc_both", "requests from both sides at once", both, IBV_QPT_RC },
    { "rc_mix", "rounds of everything, also on networks that lose", mix, IBV_QPT_RC, .timeout = 14 },
    { 0 },
};

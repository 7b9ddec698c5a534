/* UC and UD: what arrives is correct, and invalid requests are dropped silently. */
#include "conformance.h"

#include <string.h>

enum { THERE = 2 << 20 };

static void uc_sizes(struct end *e)
{
    const size_t lengths[] = { 0, 1, 3, e->mtu - 1, e->mtu, e->mtu + 1, 3 * e->mtu + 1, 20001 };
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t length = lengths[i];
        if (e->active) {
            fill(e, 0, length, i);
            meet();
            simple(e, IBV_WR_SEND, 0, length, 0, IBV_WC_SUCCESS, "send");
            simple(e, IBV_WR_RDMA_WRITE, 0, length, THERE, IBV_WC_SUCCESS, "write");
            simple(e, IBV_WR_RDMA_WRITE_WITH_IMM, 0, length, THERE + 65536, IBV_WC_SUCCESS, "write with immediate");
            meet();
        } else {
            receive(e, 0, 65536, 0);
            receive(e, 0, 65536, 1);
            meet();
            expect_receive(e, length, false, "receive");
            check(holds(e, 0, length, i), "receive of %zu bytes: other data", length);
            struct ibv_wc wc = expect_receive(e, length, true, "receive of an immediate");
            check(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM, "opcode %d", wc.opcode);
            meet();
            check(holds(e, THERE, length, i) && holds(e, THERE + 65536, length, i), "%zu bytes written: other data",
                  length);
        }
    }
}

/* UC has no NAK: the requester is not notified, and later messages arrive (IBA 9.8.2). */
static void uc_bad_key(struct end *e)
{
    if (e->active) {
        meet();
        by_key(e, IBV_WR_RDMA_WRITE, 3000, THERE, e->you.rkey ^ 0x5500, IBV_WC_SUCCESS, "write with a wrong rkey");
        fill(e, 0, 10, 3);
        simple(e, IBV_WR_SEND, 0, 10, 0, IBV_WC_SUCCESS, "send after it");
        return;
    }
    fill(e, THERE, 3000, 42);
    receive(e, 0, 4096, 0);
    meet();
    expect_receive(e, 10, false, "receive after it");
    check(holds(e, 0, 10, 3), "other data");
    check(holds(e, THERE, 3000, 42), "a wrong rkey has written");
    check(state(e) == IBV_QPS_RTS, "the queue pair is in state %d", state(e));
}

static void ud_sizes(struct end *e)
{
    const size_t lengths[] = { 0, 1, 3, 100, e->mtu - 1, e->mtu };
    for (unsigned i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        size_t length = lengths[i / 2];
        if (e->active) {
            fill(e, 0, length, i);
            meet();
            simple(e, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, 0, length, 0, IBV_WC_SUCCESS, "send");
            continue;
        }
        receive(e, 0, 8192, i);
        meet();
        struct ibv_wc wc = expect_receive(e, GRH + length, i % 2, "receive");
        check(wc.src_qp == e->you.qpn, "it came from queue pair %#x, not %#x", wc.src_qp, e->you.qpn);
        check(wc.wc_flags & IBV_WC_GRH, "no GRH");
        check(holds(e, GRH, length, i), "receive of %zu bytes: other data", length);
        /* Annex 17: an IPv4 header is in the last 20 of the 40 bytes, an IPv6 header takes all of them. */
        bool mapped = !memcmp(e->you.gid.raw + 8, "\0\0\xff\xff", 4) && !e->you.gid.global.subnet_prefix;
        const uint8_t *from = e->memory + (mapped ? 20 + 12 : 8), *to = from + (mapped ? 4 : 16);
        check(!memcmp(from, e->you.gid.raw + (mapped ? 12 : 0), mapped ? 4 : 16), "the GRH's source is another");
        check(!memcmp(to, e->me.gid.raw + (mapped ? 12 : 0), mapped ? 4 : 16), "the GRH's destination is another");
    }
}

static void ud_wrong_qkey(struct end *e)
{
    if (e->active) {
        struct ibv_sge sge = piece(e, 0, 50);
        struct ibv_send_wr wr = request(e, IBV_WR_SEND, &sge, 0);
        wr.wr.ud.remote_qkey = QKEY + 1;
        meet();
        post(e, &wr);
        expect(e, IBV_WC_SUCCESS, "send with a wrong Q_Key");
        simple(e, IBV_WR_SEND, 0, 60, 0, IBV_WC_SUCCESS, "send with the right one");
        return;
    }
    receive(e, 0, 4096, 7);
    meet();
    struct ibv_wc wc = expect_receive(e, GRH + 60, false, "receive");
    check(wc.wr_id == 7, "a wrong Q_Key has used a receive");
}

/* A reply needs only the completion and the GRH. */
static void ud_reply(struct end *e)
{
    receive(e, 0, 4096, 7);
    meet();
    if (e->active) {
        struct ibv_sge sge = piece(e, 8192, 77);
        struct ibv_send_wr wr = request(e, IBV_WR_SEND, &sge, 0);
        post(e, &wr);
        /* The reply may arrive before the send completes: there is no order between two queues. */
        for (int i = 0; i < 2; i++) {
            struct ibv_wc wc = expect(e, IBV_WC_SUCCESS, "send or receive");
            check(wc.wr_id != 7 || wc.byte_len == GRH + 77, "receive: %u bytes", wc.byte_len);
        }
        return check(nothing(e), "a completion too many");
    }
    struct ibv_wc wc = expect_receive(e, GRH + 77, false, "receive");
    struct ibv_ah *forward = e->ah;
    if (!(e->ah = ibv_create_ah_from_wc(e->pd, &wc, (struct ibv_grh *)e->memory, 1)))
        give_up("create_ah_from_wc: %m");
    simple(e, IBV_WR_SEND, 8192, 77, 0, IBV_WC_SUCCESS, "reply");
    check(!ibv_destroy_ah(forward), "destroy_ah failed");
}

const struct test unreliable_tests[] = {
    { "uc_sizes", "send, write, write with immediate of all sizes", uc_sizes, IBV_QPT_UC },
    { "uc_psn_wrap", "the same, the PSN going past its end", uc_sizes, IBV_QPT_UC, .psn = 0xfffff8 },
    { "uc_bad_key", "a wrong rkey is dropped", uc_bad_key, IBV_QPT_UC },
    { "ud_sizes", "datagrams of all sizes, with immediate and without", ud_sizes, IBV_QPT_UD },
    { "ud_wrong_qkey", "a wrong Q_Key is dropped", ud_wrong_qkey, IBV_QPT_UD },
    { "ud_reply", "a reply by what a completion tells", ud_reply, IBV_QPT_UD },
    { 0 },
};

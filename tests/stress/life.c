/* One life of a lane: its seed determines the operations, and both halves check the results. */
#include "stress.h"

#include <sched.h>

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void plan(struct life *life, uint64_t seed, enum service service)
{
    uint64_t r = seed;
    *life = (struct life){ .seed = seed, .service = service };
    /* The long operations of many lanes are more than a socket holds: their queue pairs wait for credit. */
    life->scale = service != UD && random_next(&r) % 2 ? 8 : 1;
    life->count = 1 + random_next(&r) % (OPERATIONS / life->scale);
    life->depth = 1 + random_next(&r) % 16;
    life->reads = 1 + random_next(&r) % 8;
    life->mtu = IBV_MTU_256 + random_next(&r) % 5;
    if (life->service == UD)
        life->mtu = DATAGRAM_MTU;
    life->events = random_next(&r) % 4 == 0;
    life->late = reliable(life->service) && random_next(&r) % 4 == 0;
    /* UC and UD accept messages of the round before, which may still be on their way. */
    life->rounds = reliable(life->service) ? 1 + random_next(&r) % ROUNDS : 1;
    /* Receives that an abrupt end leaves in an SRQ would be used in the next round. */
    for (int round = 0; round < life->rounds; round++)
        life->abrupt[round] = random_next(&r) % 3 == 0 && (life->service == RC || round == life->rounds - 1);
    life->destroys = random_next(&r) % 2;
    life->sender_first = random_next(&r) % 2;
    for (int i = 0; i < life->count; i++) {
        struct operation *it = &life->operations[i];
        int kinds = life->service == UD ? SEND_IMM + 1 : life->service == UC ? WRITE_IMM + 1 : KINDS;
        it->kind = random_next(&r) % kinds;
        uint64_t length = random_next(&r);
        /* Short and long ones are equally likely. */
        it->length = length % (life->service == UD ? DATAGRAM + 1 : length >> 32 & 1 ? LENGTH * life->scale + 1 : 65);
        if (it->kind >= FETCH_ADD)
            it->length = 8;
    }
}

static bool is_abrupt(struct half *h)
{
    return h->life->abrupt[h->round];
}

/* Bytes that depend on life, round, operation and offset. */
static uint8_t byte(struct half *h, int operation, size_t at)
{
    return (uint8_t)(h->life->seed + h->round * 101 + operation * 37 + at * 7 + (at >> 8) * 13);
}

static size_t offset(struct half *h, uint64_t operation)
{
    return operation * SLOT * h->life->scale;
}

static uint8_t *slot(struct half *h, int operation)
{
    return h->memory + offset(h, operation);
}

static void fill(struct half *h, int operation)
{
    for (size_t i = 0; i < h->life->operations[operation].length; i++)
        slot(h, operation)[i] = byte(h, operation, i);
}

static void check(struct half *h, int operation, const uint8_t *at, const char *what)
{
    for (size_t i = 0; i < h->life->operations[operation].length; i++)
        if (at[i] != byte(h, operation, i))
            fail(h, "operation %d, %s: byte %zu of %u is %d, not %d", operation, what, i,
                 h->life->operations[operation].length, at[i], byte(h, operation, i));
    counts->bytes += h->life->operations[operation].length;
}

static bool takes_receive(enum kind kind)
{
    return kind == SEND || kind == SEND_IMM || kind == WRITE_IMM;
}

static uint8_t *received(struct half *h, uint64_t wr_id)
{
    return h->memory + RECEIVES + offset(h, wr_id);
}

static void post_receives(struct half *h)
{
    for (int i = 0; i < h->life->count; i++) {
        /* If messages may be lost, any message may be next. */
        uint32_t length = reliable(h->life->service) ? h->life->operations[i].length : LENGTH * h->life->scale + GRH;
        struct ibv_sge sge = { (uintptr_t)received(h, i), length, h->mr->lkey };
        struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
        if (takes_receive(h->life->operations[i].kind))
            MUST(h, !(h->srq ? ibv_post_srq_recv(h->srq, &wr, &bad) : ibv_post_recv(h->qp, &wr, &bad)));
        h->posted++;
    }
}

/* The result of the compare-and-swaps before this operation. */
static uint64_t last_swap(struct half *h, int operation)
{
    while (operation-- > 0)
        if (h->life->operations[operation].kind == COMPARE_SWAP)
            return operation + 1;
    return 0;
}

static int post(struct half *h, int i)
{
    static const enum ibv_wr_opcode opcodes[KINDS] = {
        IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
    };
    struct operation *it = &h->life->operations[i];
    struct ibv_sge sge = { (uintptr_t)slot(h, i), it->length, h->mr->lkey };
    struct ibv_send_wr wr = {
        .wr_id = i, .sg_list = &sge, .num_sge = it->length > 0, .opcode = opcodes[it->kind], .imm_data = htobe32(i),
    }, *bad;
    if (h->life->service == UD) {
        wr.wr.ud.ah = h->ah;
        wr.wr.ud.remote_qpn = h->you.qpn;
        wr.wr.ud.remote_qkey = PAIR_QKEY;
    } else if (it->kind >= FETCH_ADD) {
        wr.wr.atomic.remote_addr = h->you.address + WORDS + (it->kind == FETCH_ADD ? 0 : 8);
        wr.wr.atomic.rkey = h->you.rkey;
        wr.wr.atomic.compare_add = it->kind == FETCH_ADD ? (uint64_t)i + 1 : last_swap(h, i);
        wr.wr.atomic.swap = i + 1;
    } else {
        wr.wr.rdma.remote_addr = h->you.address + offset(h, i);
        wr.wr.rdma.rkey = h->you.rkey;
    }
    if (h->life->service == XRC)
        wr.qp_type.xrc.remote_srqn = h->you.srqn;
    return ibv_post_send(h->qp, &wr, &bad);
}

/* Waits for a completion; with `may_be_lost`, only as long as one that has arrived can take to be found. On a busy machine
 * each poll may take a time slice, so neither a number of polls nor a time is enough on its own. */
static bool take(struct half *h, struct ibv_wc *wc, bool may_be_lost)
{
    double until = now() + 0.05;
    h->waits = "a completion";
    for (long look = 0; !may_be_lost || look < 100 || now() < until; look++) {
        int found = ibv_poll_cq(h->cq, 1, wc);
        MUST(h, found >= 0);
        if (found) {
            if (wc->qp_num != h->qp->qp_num)
                fail(h, "a completion of queue pair %#x, which is not that of this life", wc->qp_num);
            return true;
        }
        if (h->channel && !may_be_lost) {
            struct ibv_cq *cq;
            void *context;
            MUST(h, !ibv_req_notify_cq(h->cq, 0));
            if ((found = ibv_poll_cq(h->cq, 1, wc)) == 1)
                return true;
            MUST(h, found == 0 && !ibv_get_cq_event(h->channel, &cq, &context) && cq == h->cq);
            ibv_ack_cq_events(cq, 1);
        } else if (look % 16 == 15) {
            sched_yield();
        }
    }
    return false;
}

/* Objects that are created and destroyed beside the work. */
static void churn(struct half *h, uint64_t *r)
{
    struct ibv_ah_attr address = pair_address(&h->device);
    struct ibv_ah *ah = NULL;
    struct ibv_mr *mr = NULL;
    struct ibv_cq *cq = NULL;
    struct ibv_wc wc;
    switch (random_next(r) % 8) {
    case 0:
        MUST(h, (ah = ibv_create_ah(h->device.pd, &address)) && !ibv_destroy_ah(ah));
        break;
    case 1:
        MUST(h, (mr = ibv_reg_mr(h->device.pd, h->memory, SIZE, 0)) && !ibv_dereg_mr(mr));
        break;
    case 2:
        MUST(h, (cq = ibv_create_cq(h->device.context, 16, NULL, NULL, 0)) && !ibv_poll_cq(cq, 1, &wc));
        MUST(h, !ibv_destroy_cq(cq));
        break;
    default:
        return;
    }
    counts->churned++;
}

static void send_all(struct half *h)
{
    struct life *life = h->life;
    uint64_t r = ~life->seed, sum = 0, swapped = 0;
    /* In a round that ends abruptly, nothing is certain to complete if the receiver ends first. */
    int stop = !is_abrupt(h) ? life->count : life->sender_first ? life->count / 2 : 0;
    struct ibv_wc wc;
    while (stop == 0 && h->posted < life->count && h->posted < life->depth) {
        MUST(h, !post(h, h->posted));
        h->posted++;
    }
    while (h->done < stop) {
        churn(h, &r);
        while (h->posted < life->count && h->posted - h->done < life->depth) {
            MUST(h, !post(h, h->posted));
            h->posted++;
        }
        take(h, &wc, false);
        if (wc.status != IBV_WC_SUCCESS || wc.wr_id != (uint64_t)h->done)
            fail(h, "completion %d: of request %lu, %s", h->done, (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
        struct operation *it = &life->operations[h->done];
        uint64_t was;
        memcpy(&was, slot(h, h->done), 8);
        if (it->kind == READ)
            check(h, h->done, slot(h, h->done), "READ");
        else if (it->kind == FETCH_ADD)
            MUST(h, was == sum);
        else if (it->kind == COMPARE_SWAP)
            MUST(h, was == swapped);
        if (it->kind == FETCH_ADD)
            sum += h->done + 1;
        if (it->kind == COMPARE_SWAP)
            swapped = h->done + 1;
        counts->done[life->service][it->kind]++;
        h->done++;
    }
    if (!is_abrupt(h))
        MUST(h, !ibv_poll_cq(h->cq, 1, &wc));
}

/* Whether a message that was received can be the one of this operation. */
static bool is_message(struct half *h, int operation, struct ibv_wc *wc)
{
    struct operation *it = &h->life->operations[operation];
    uint32_t header = h->life->service == UD ? GRH : 0;
    if (!takes_receive(it->kind) || wc->byte_len != it->length + header)
        return false;
    if (wc->wc_flags & IBV_WC_WITH_IMM)
        return it->kind != SEND && be32toh(wc->imm_data) == (uint32_t)operation &&
               (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) == (it->kind == WRITE_IMM);
    if (it->kind != SEND)
        return false;
    for (uint32_t i = 0; !reliable(h->life->service) && i < it->length; i++)
        if (received(h, wc->wr_id)[header + i] != byte(h, operation, i))
            return false;
    return true;
}

/* Messages arrive in order, once, and whole; only unreliable services may lose some. */
static void receive_all(struct half *h)
{
    struct life *life = h->life;
    uint64_t r = life->seed ^ 0x5555;
    struct ibv_wc wc;
    /* Reordering and duplication affect datagrams, too. */
    bool disordered = life->service == UD && faulty();
    if (life->late)
        post_receives(h);
    for (int i = 0; i < life->count; i++) {
        if (!takes_receive(life->operations[i].kind))
            continue;
        churn(h, &r);
        /* All unreliable messages were sent before, and have arrived or are lost. */
        if (!take(h, &wc, !reliable(life->service))) {
            for (; i < life->count; i++)
                counts->lost += takes_receive(life->operations[i].kind);
            return;
        }
        h->done++;
        if (wc.status != IBV_WC_SUCCESS)
            fail(h, "receive %d: %s", i, ibv_wc_status_str(wc.status));
        int due = i;
        for (i = disordered ? 0 : i; !reliable(life->service) && i < life->count && !is_message(h, i, &wc); i++)
            counts->lost += !disordered && takes_receive(life->operations[i].kind);
        if (i == life->count || !is_message(h, i, &wc))
            fail(h, "receive %lu of %u bytes, flags %u, is none of the messages that can come", (unsigned long)wc.wr_id,
                 wc.byte_len, wc.wc_flags);
        if (reliable(life->service))
            MUST(h, wc.wr_id == (uint64_t)i);
        if (life->operations[i].kind == WRITE_IMM)
            check(h, i, slot(h, i), "WRITE with immediate");
        else
            check(h, i, received(h, wc.wr_id) + (life->service == UD ? GRH : 0), "receive");
        if (disordered)
            i = due;
    }
}

static void check_written(struct half *h)
{
    uint64_t sum = 0, words[2];
    for (int i = 0; i < h->life->count; i++) {
        enum kind kind = h->life->operations[i].kind;
        if (kind == WRITE || kind == WRITE_IMM)
            check(h, i, slot(h, i), "WRITE");
        sum += kind == FETCH_ADD ? i + 1 : 0;
    }
    memcpy(words, h->memory + WORDS, sizeof words);
    MUST(h, words[0] == sum && words[1] == last_swap(h, h->life->count));
}

static bool is_last(struct half *h)
{
    return h->round == h->life->rounds - 1;
}

/* The queue pair is reset or destroyed in the middle of its work: no completion may follow. */
static void end_abruptly(struct half *h)
{
    const char *call = is_last(h) && h->life->destroys ? "ibv_destroy_qp" : "the RESET";
    struct ibv_wc wc;
    bool first = h->sender == h->life->sender_first;
    if (!first)
        meet(h);
    if (is_last(h) && h->life->destroys)
        destroy_queue_pair(h);
    else
        reset(h);
    memset(h->memory, 0xd1, SIZE);
    /* Messages received by an XRC target belong to the SRQ, and stay. */
    while (h->life->service == XRC && !h->sender && ibv_poll_cq(h->cq, 1, &wc))
        ;
    if (first)
        meet(h);
    for (int i = 0; i < 50; i++)
        if (ibv_poll_cq(h->cq, 1, &wc))
            fail(h, "a completion came after %s had returned", call);
    meet(h);
    for (size_t i = 0; i < SIZE; i++)
        if (h->memory[i] != 0xd1)
            fail(h, "byte %zu was written after %s had returned", i, call);
    counts->abrupt[h->life->service]++;
}

static void run_round(struct half *h)
{
    struct life *life = h->life;
    memset(h->memory, 0, SIZE);
    /* The sender's memory has the data to send, the receiver's the data to read. */
    for (int i = 0; i < life->count; i++)
        if (h->sender ? life->operations[i].kind <= WRITE_IMM : life->operations[i].kind == READ)
            fill(h, i);
    h->posted = h->done = 0;
    initialise(h);
    if (!h->sender && !life->late)
        post_receives(h);
    connect_objects(h);
    meet(h);
    if (h->sender)
        send_all(h);
    else if (is_abrupt(h) && life->late)
        post_receives(h);
    else if (!is_abrupt(h) && reliable(life->service))
        receive_all(h);
    if (is_abrupt(h)) {
        end_abruptly(h);
        return;
    }
    meet(h);
    if (!h->sender && reliable(life->service))
        check_written(h);
    else if (!h->sender)
        receive_all(h);
    /* The peer may still need an acknowledgement from us. */
    meet(h);
    if (!is_last(h)) {
        reset(h);
        meet(h);
    }
}

void run_life(struct half *h)
{
    create_objects(h);
    for (h->round = 0; h->round < h->life->rounds; h->round++)
        run_round(h);
    destroy_objects(h);
    if (h->sender)
        counts->lives[h->life->service]++;
}

/* After ibv_destroy_qp has returned, nothing of the queue pair appears in a CQ or in memory any more. Queue pairs are
 * destroyed with work in flight, over and over, while other threads drive the device.
 *
 *   usage: destroy rc|uc|ud ROUNDS
 *          destroy xrc
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

enum { DEPTH = 64, LENGTH = 4096, GRH = 40, POLLERS = 2 };

static struct pair_device device;
static atomic_bool stop;

static void *poller(void *unused)
{
    struct ibv_cq *cq = ibv_create_cq(device.context, 1, NULL, NULL, 0);
    struct ibv_wc wc;
    CHECK(cq);
    while (!atomic_load(&stop))
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    CHECK(!ibv_destroy_cq(cq));
    return unused;
}

/* Polls a CQ of which all queue pairs are destroyed: whatever is in it came late. */
static int late(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int count = 0;
    for (int i = 0; i < 20; i++)
        count += ibv_poll_cq(cq, 1, &wc);
    return count;
}

/* A CQ that the messages of an XRC SRQ complete in is in use. */
static int xrc(void)
{
    device = pair_open();
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
    };
    struct ibv_xrcd *xrcd = ibv_open_xrcd(device.context, &init);
    struct ibv_cq *cq = ibv_create_cq(device.context, 16, NULL, NULL, 0);
    CHECK(xrcd && cq);
    struct ibv_srq_init_attr_ex attr = {
        .attr = { .max_wr = 16, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = device.pd, .xrcd = xrcd, .cq = cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
    };
    struct ibv_srq *srq = ibv_create_srq_ex(device.context, &attr);
    CHECK(srq);
    CHECK(ibv_destroy_cq(cq) == EBUSY);
    CHECK(!ibv_destroy_srq(srq));
    CHECK(!ibv_destroy_cq(cq) && !ibv_close_xrcd(xrcd));
    CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "xrc"))
        return xrc();
    CHECK(argc == 3);
    enum ibv_qp_type type = !strcmp(argv[1], "rc") ? IBV_QPT_RC : !strcmp(argv[1], "uc") ? IBV_QPT_UC : IBV_QPT_UD;
    int rounds = atoi(argv[2]), completions = 0, writes = 0, landed = 0;
    size_t size = (size_t)DEPTH * LENGTH;
    uint8_t *memory = malloc(2 * size);
    uint8_t *in = memory + size;
    pthread_t threads[POLLERS];

    device = pair_open();
    struct ibv_mr *mr = ibv_reg_mr(device.pd, memory, 2 * size, PAIR_ACCESS);
    struct ibv_cq *send_cq = ibv_create_cq(device.context, 2 * DEPTH, NULL, NULL, 0);
    struct ibv_cq *recv_cq = ibv_create_cq(device.context, 2 * DEPTH, NULL, NULL, 0);
    struct ibv_ah_attr address = pair_address(&device);
    struct ibv_ah *ah = ibv_create_ah(device.pd, &address);
    CHECK(memory && mr && send_cq && recv_cq && ah);
    memset(memory, 0xee, size);
    for (int i = 0; i < POLLERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, poller, NULL));

    for (int round = 0; round < rounds; round++) {
        struct ibv_qp *sender = pair_create(&device, type, send_cq, send_cq, DEPTH);
        struct ibv_qp *receiver = pair_create(&device, type, recv_cq, recv_cq, DEPTH);
        pair_connect(&device, sender, receiver->qp_num);
        pair_connect(&device, receiver, sender->qp_num);
        memset(in, 0x11, size);
        for (int i = 0; i < DEPTH; i++) {
            struct ibv_sge sge = { (uintptr_t)in + (size_t)i * LENGTH, LENGTH, mr->lkey };
            struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
            CHECK(!ibv_post_recv(receiver, &wr, &bad));
        }
        for (int i = 0; i < DEPTH; i++) {
            /* Sends, and WRITEs where there are any: both ways into the memory of the peer. */
            int writes_it = type != IBV_QPT_UD && i % 2;
            struct ibv_sge sge = { (uintptr_t)memory, type == IBV_QPT_UD ? 1024 : LENGTH, mr->lkey };
            struct ibv_send_wr wr = {
                .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = writes_it ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
            }, *bad;
            if (type == IBV_QPT_UD) {
                wr.wr.ud.ah = ah;
                wr.wr.ud.remote_qpn = receiver->qp_num;
                wr.wr.ud.remote_qkey = PAIR_QKEY;
            } else {
                wr.wr.rdma.remote_addr = (uintptr_t)in + (size_t)i * LENGTH;
                wr.wr.rdma.rkey = mr->rkey;
            }
            CHECK(!ibv_post_send(sender, &wr, &bad));
        }
        /* In most rounds, destroy in the middle of the data. */
        struct ibv_wc wc;
        for (int i = 0; round % 4 != 3 && i < 1000000 && !ibv_poll_cq(recv_cq, 1, &wc); i++)
            ;
        /* Which of them goes first matters: both must be gone when they are. */
        struct ibv_qp *first = round % 2 ? sender : receiver, *second = round % 2 ? receiver : sender;
        if (first == receiver) {
            CHECK(!ibv_destroy_qp(first));
            landed += in[GRH] != 0x11;
            memset(in, 0x22, size);
            completions += late(recv_cq);
            CHECK(!ibv_destroy_qp(second));
            completions += late(send_cq);
        } else {
            CHECK(!ibv_destroy_qp(first));
            completions += late(send_cq);
            CHECK(!ibv_destroy_qp(second));
            landed += in[GRH] != 0x11;
            memset(in, 0x22, size);
            completions += late(recv_cq) + late(send_cq);
        }
        for (size_t i = 0; i < size; i++)
            if (in[i] != 0x22) {
                writes++;
                break;
            }
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < POLLERS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    printf("%s: %d rounds, data arrived in %d; late completions %d, late writes %d\n", argv[1], rounds, landed,
           completions, writes);
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_cq(send_cq) && !ibv_destroy_cq(recv_cq) && !ibv_dereg_mr(mr));
    CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
    free(memory);
    return completions || writes;
}

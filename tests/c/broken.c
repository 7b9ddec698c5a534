/* Programs with one mistake each, over two queue pairs on the loopback: `broken SITUATION`. Prints the completions, and
 * before it exits what the command in $LOOK prints, once that has a last error. */
#include "pair.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 65536 };

static const char *situation;
static struct pair_device device;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static int is(const char *name)
{
    return !strcmp(situation, name);
}

static void end(void)
{
    char line[1024], all[65536], command[1024];
    fflush(stdout);
    snprintf(command, sizeof command, "%s --pid %d", getenv("LOOK"), getpid());
    do {
        FILE *output = popen(command, "r");
        CHECK(output);
        *all = 0;
        while (fgets(line, sizeof line, output))
            strncat(all, line, sizeof all - strlen(all) - 1);
        pclose(output);
    } while (!strstr(all, "last error"));
    fputs(all, stdout);
    exit(0);
}

/* Connects a queue pair to another, with what the situation gets wrong on the second side. */
static void join(struct ibv_qp *qp, uint32_t to, int second)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = PAIR_PSN, .ah_attr = pair_address(&device),
        .dest_qp_num = to, .max_dest_rd_atomic = 16, .min_rnr_timer = 1 /* 0.01 ms */,
    };
    if (second && is("path-mtu"))
        attr.path_mtu = IBV_MTU_256;
    if (second && is("first-psn"))
        attr.rq_psn = 0x1388;
    if (!second && is("wrong-qpn"))
        attr.dest_qp_num ^= 0x5a5a;
    if (!second && is("wrong-address")) /* 127.0.0.9, where no process has a device open. */
        attr.ah_attr.grh.dgid.raw[15] = 9;
    if (!second && is("gid-index"))
        attr.ah_attr.grh.sgid_index = 17;
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
        perror("ibv_modify_qp");
        end();
    }
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .sq_psn = PAIR_PSN, .max_rd_atomic = 16, .timeout = 10 /* 4 ms */,
        .retry_cnt = 3, .rnr_retry = is("rnr-forever") ? 7 : 3,
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static struct ibv_qp *create(enum ibv_qp_type type, struct ibv_cq *send_cq, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = send_cq, .recv_cq = cq, .srq = srq, .qp_type = type, .sq_sig_all = 1,
        .cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = PAIR_QKEY, .qp_access_flags = PAIR_ACCESS,
    };
    struct ibv_qp *qp = ibv_create_qp(device.pd, &init);
    CHECK(qp);
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                    (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
    return qp;
}

static void receive(struct ibv_qp *qp, uint32_t length)
{
    struct ibv_sge sge = { (uintptr_t)mr->addr, length, mr->lkey };
    struct ibv_recv_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t length, uint32_t lkey)
{
    struct ibv_sge sge = { (uintptr_t)mr->addr, length, lkey };
    struct ibv_send_wr *bad;
    wr->wr_id = 1;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    return ibv_post_send(qp, wr, &bad);
}

/* Prints completions, up to that of the request. */
static void finish(void)
{
    for (;;) {
        struct ibv_wc wc = pair_take(cq);
        printf("%s: %s, vendor_err %u\n", wc.wr_id == 1 ? "request" : "receive", ibv_wc_status_str(wc.status),
               wc.vendor_err);
        if (wc.wr_id == 1)
            return;
    }
}

/* A datagram with a wrong Q_Key. */
static void datagram(void)
{
    struct ibv_qp *a = create(IBV_QPT_UD, cq, NULL), *b = create(IBV_QPT_UD, cq, NULL);
    struct ibv_ah_attr address = pair_address(&device);
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
    pair_connect(&device, a, 0);
    pair_connect(&device, b, 0);
    receive(b, 4096);
    CHECK(wr.wr.ud.ah = ibv_create_ah(device.pd, &address));
    wr.wr.ud.remote_qpn = b->qp_num;
    wr.wr.ud.remote_qkey = 0x7777;
    CHECK(!post(a, &wr, 64, mr->lkey));
    finish();
    end();
}

/* The peer is another process, which is killed when it is connected. */
static void killed(void)
{
    struct { _Atomic uint32_t a, b, ready; } *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t child = fork();
    alarm(60);
    device = pair_open();
    CHECK(cq = ibv_create_cq(device.context, 64, NULL, NULL, 0));
    CHECK(mr = ibv_reg_mr(device.pd, calloc(1, SIZE), SIZE, PAIR_ACCESS));
    struct ibv_qp *qp = create(IBV_QPT_RC, cq, NULL);
    if (!child) {
        shared->b = qp->qp_num;
        while (!shared->a)
            usleep(100);
        join(qp, shared->a, 1);
        receive(qp, 4096);
        shared->ready = 1;
        pause();
    }
    shared->a = qp->qp_num;
    while (!shared->b)
        usleep(100);
    join(qp, shared->b, 0);
    while (!shared->ready)
        usleep(100);
    struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
    CHECK(!post(qp, &wr, 64, mr->lkey));
    finish();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND };
    CHECK(!post(qp, &wr, 64, mr->lkey));
    finish();
    end();
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    situation = arguments[1];
    alarm(60); /* Nothing takes so long: whatever it waits for will not happen. */
    if (is("peer-killed"))
        killed();
    device = pair_open();
    CHECK(cq = ibv_create_cq(device.context, 1024, NULL, NULL, 0));
    int access = is("access-flag") ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ : PAIR_ACCESS;
    CHECK(mr = ibv_reg_mr(device.pd, calloc(1, SIZE), SIZE, access));
    if (is("q-key"))
        datagram();
    struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
    struct ibv_srq *srq = is("srq-empty") ? ibv_create_srq(device.pd, &init) : NULL;
    struct ibv_cq *small = is("cq-overrun") ? ibv_create_cq(device.context, 1, NULL, NULL, 0) : cq;
    struct ibv_qp *a = create(IBV_QPT_RC, small, NULL), *b = create(IBV_QPT_RC, cq, srq);
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { (uintptr_t)mr->addr, mr->rkey },
    };
    if (is("state")) {
        if (post(a, &wr, 64, mr->lkey))
            perror("ibv_post_send");
        end();
    }
    join(a, b->qp_num, 0);
    join(b, a->qp_num, 1);
    uint32_t length = 4096, lkey = mr->lkey;
    if (is("wrong-rkey"))
        wr.wr.rdma.rkey = 0x12345678;
    else if (is("range"))
        wr.wr.rdma.remote_addr += SIZE - 4000;
    else if (is("wrong-lkey"))
        lkey = 0x77;
    else if (is("too-long") || is("path-mtu")) {
        length = is("path-mtu") ? 1000 : 200;
        receive(b, is("path-mtu") ? 4096 : 100);
        wr.opcode = IBV_WR_SEND;
    } else if (is("no-receive") || is("rnr-forever") || is("srq-empty"))
        wr.opcode = IBV_WR_SEND;
    else if (is("destroyed"))
        CHECK(!ibv_destroy_qp(b));
    for (int round = is("cq-overrun") ? 3 : is("traffic") ? 200 : 1; round; round--) {
        if (is("cq-overrun")) {
            post(a, &wr, length, lkey);
            continue;
        }
        CHECK(!post(a, &wr, length, lkey));
        if (!is("rnr-forever"))
            finish();
    }
    if (is("traffic"))
        return 0;
    if (is("cq-overrun")) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr unused;
        do /* No event needs to be read for this state. */
            CHECK(!ibv_query_qp(a, &attr, IBV_QP_STATE, &unused));
        while (attr.qp_state != IBV_QPS_ERR);
    }
    end();
}

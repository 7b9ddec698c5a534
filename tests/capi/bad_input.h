/* Common parts of the bad-input cases: an open device, connected queue pairs, and checks that print what they found. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int failures;

/* A call that returns 0 or an errno value. */
#define RETURNS(wanted, call)                                                                              \
	do {                                                                                               \
		long got_ = (long)(call);                                                                  \
		if (got_ != (long)(wanted)) {                                                              \
			failures++;                                                                        \
			printf("line %d: %s: %ld, not %ld\n", __LINE__, #call, got_, (long)(wanted));      \
		}                                                                                          \
	} while (0)

/* A call that returns NULL and sets errno. */
#define NO_POINTER(wanted, call)                                                                           \
	do {                                                                                               \
		errno = 0;                                                                                 \
		void *got_ = (void *)(call);                                                               \
		int errno_ = errno;                                                                        \
		if (got_ || errno_ != (wanted)) {                                                          \
			failures++;                                                                        \
			printf("line %d: %s: %p and errno %d, not NULL and %d\n", __LINE__, #call, got_,   \
			       errno_, (wanted));                                                          \
		}                                                                                          \
	} while (0)

/* A call that returns -1 and sets errno. */
#define MINUS_ONE(wanted, call)                                                                            \
	do {                                                                                               \
		errno = 0;                                                                                 \
		long got_ = (long)(call);                                                                  \
		int errno_ = errno;                                                                        \
		if (got_ != -1 || errno_ != (wanted)) {                                                    \
			failures++;                                                                        \
			printf("line %d: %s: %ld and errno %d, not -1 and %d\n", __LINE__, #call, got_,    \
			       errno_, (wanted));                                                          \
		}                                                                                          \
	} while (0)

/* A precondition of the case. */
#define MUST(condition)                                                                                    \
	do {                                                                                               \
		if (!(condition)) {                                                                        \
			printf("line %d: %s does not hold, errno %d\n", __LINE__, #condition, errno);      \
			exit(1);                                                                           \
		}                                                                                          \
	} while (0)

enum { SIZE = 1 << 16, DEPTH = 8, SGES = 3, INLINE = 64, CQES = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char *memory;

static inline void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	MUST(list);
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), "ferroce_lo"); i++)
		;
	MUST(list[i]);
	MUST(context = ibv_open_device(list[i]));
	ibv_free_device_list(list);
	MUST(pd = ibv_alloc_pd(context));
	MUST(cq = ibv_create_cq(context, CQES, NULL, NULL, 0));
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	MUST(mr = ibv_reg_mr(pd, memory, SIZE,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_MW_BIND));
}

static inline struct ibv_qp *create(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = SGES, .max_recv_sge = SGES,
			 .max_inline_data = INLINE },
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	MUST(qp);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	MUST(!ibv_modify_qp(qp, &attr, mask));
}

static inline struct ibv_ah_attr to_ourselves(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	MUST(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	return attr;
}

/* Moves it to RTS, connected to itself or to another. */
static inline void to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = to_ourselves() };
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	MUST(!ibv_modify_qp(qp, &attr, mask));
}

static inline void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
				    .max_rd_atomic = 1 };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	MUST(!ibv_modify_qp(qp, &attr, mask));
}

static inline struct ibv_qp *connected(enum ibv_qp_type type)
{
	struct ibv_qp *qp = create(type);

	to_init(qp);
	to_rtr(qp, qp->qp_num);
	to_rts(qp);
	return qp;
}

static inline void to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Waits for the next completion without a timeout: the test has its own. */
static inline struct ibv_wc next_wc(void)
{
	struct ibv_wc wc;
	int found;

	while (!(found = ibv_poll_cq(cq, 1, &wc)))
		;
	MUST(found == 1);
	return wc;
}

static inline struct ibv_sge sge(uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory, .length = length, .lkey = mr->lkey };
}

/* Builds a list of requests, with ids from 0. */
static inline void chain_sends(struct ibv_send_wr *wr, int count, struct ibv_sge *one)
{
	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i + 1 < count ? wr + i + 1 : NULL, .sg_list = one,
					      .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					      .send_flags = IBV_SEND_SIGNALED,
					      .wr.rdma = { (uintptr_t)memory + SIZE / 2, mr->rkey } };
}

static inline void chain_receives(struct ibv_recv_wr *wr, int count, struct ibv_sge *one)
{
	for (int i = 0; i < count; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = i, .next = i + 1 < count ? wr + i + 1 : NULL, .sg_list = one,
					      .num_sge = 1 };
}

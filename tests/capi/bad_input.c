/* Bad input, case by case: `bad_input --list` names the cases, `bad_input CASE` runs one and says what was not as it
 * should be. The numbers are those of rdma-core's man pages where they name one, else what its providers return. */
#include "bad_input.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* The whole list is executed, and the queue pair is unchanged. */
static void taken(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;

	RETURNS(0, ibv_post_send(qp, wr, &bad));
	RETURNS(0, bad);
	for (; wr; wr = wr->next) {
		wc = next_wc();
		RETURNS(IBV_WC_SUCCESS, wc.status);
		RETURNS(wr->wr_id, wc.wr_id);
	}
	RETURNS(0, ibv_poll_cq(cq, 1, &wc));
	RETURNS(IBV_QPS_RTS, state_of(qp));
}

/* Every request of a list before the refused one is executed, bad_wr is the refused one, and none after it is posted. */
static void refused_in_the_middle(struct ibv_qp *qp, struct ibv_send_wr *wr, int which, int error)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;

	RETURNS(error, ibv_post_send(qp, wr, &bad));
	RETURNS(which, bad ? bad - wr : -1);
	for (int i = 0; i < which; i++) {
		wc = next_wc();
		RETURNS(IBV_WC_SUCCESS, wc.status);
		RETURNS(i, wc.wr_id);
	}
	RETURNS(0, ibv_poll_cq(cq, 1, &wc));
	RETURNS(IBV_QPS_RTS, state_of(qp));
}

static void too_many_sges(void)
{
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	struct ibv_sge list[SGES + 1];
	struct ibv_send_wr wr[4];
	struct ibv_recv_wr receive[3], *bad = NULL;

	for (int i = 0; i <= SGES; i++)
		list[i] = sge(16);
	chain_sends(wr, 4, list);
	wr[2].num_sge = SGES + 1;
	refused_in_the_middle(qp, wr, 2, EINVAL);
	wr[2].num_sge = -1;
	refused_in_the_middle(qp, wr, 2, EINVAL);
	wr[2].num_sge = SGES;
	wr[3].num_sge = 0;
	taken(qp, wr);
	chain_receives(receive, 3, list);
	receive[1].num_sge = SGES + 1;
	RETURNS(EINVAL, ibv_post_recv(qp, receive, &bad));
	RETURNS(1, bad - receive);
	receive[1].num_sge = -1;
	RETURNS(EINVAL, ibv_post_recv(qp, receive + 1, &bad));
	RETURNS(1, bad - receive);
}

static void over_long_inline(void)
{
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr[3];
	struct ibv_sge one, huge;

	MUST(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
	MUST(init.cap.max_inline_data >= INLINE);
	one = sge(init.cap.max_inline_data + 1);
	chain_sends(wr, 3, &one);
	wr[1].send_flags |= IBV_SEND_INLINE;
	refused_in_the_middle(qp, wr, 1, EINVAL);
	/* Not accessed: the address is invalid. */
	huge = sge(1 << 30);
	wr[1].sg_list = &huge;
	refused_in_the_middle(qp, wr, 1, EINVAL);
	wr[1].sg_list = &one;
	/* READs cannot be inline, however short. */
	one = sge(8);
	wr[1].opcode = IBV_WR_RDMA_READ;
	refused_in_the_middle(qp, wr, 1, EINVAL);
	/* Inline data needs no key. */
	wr[1].opcode = IBV_WR_RDMA_WRITE;
	one.length = init.cap.max_inline_data;
	one.lkey = 0xdead;
	wr[0].send_flags |= IBV_SEND_INLINE;
	wr[2].send_flags |= IBV_SEND_INLINE;
	taken(qp, wr);
}

static void full_send_queue(void)
{
	struct ibv_qp *qp = connected(IBV_QPT_RC);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr[CQES], *bad = NULL;
	struct ibv_sge one = sge(100);
	int room;

	MUST(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
	room = init.cap.max_send_wr;
	MUST(room >= DEPTH && room + 2 <= CQES);
	chain_sends(wr, room + 2, &one);
	RETURNS(ENOMEM, ibv_post_send(qp, wr, &bad));
	RETURNS(room, bad - wr);
	for (int i = 0; i < room; i++) {
		struct ibv_wc wc = next_wc();

		RETURNS(IBV_WC_SUCCESS, wc.status);
		RETURNS(i, wc.wr_id);
	}
	/* There is space again. */
	taken(qp, wr + room);
}

static void full_receive_queues(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_srq_init_attr with = { .attr = { .max_wr = DEPTH, .max_sge = SGES } };
	struct ibv_srq *srq = ibv_create_srq(pd, &with);
	struct ibv_srq_attr attr;
	struct ibv_recv_wr wr[2 * CQES], *bad = NULL;
	struct ibv_sge list[SGES + 1], one = sge(100);

	to_init(qp);
	chain_receives(wr, CQES, &one);
	RETURNS(ENOMEM, ibv_post_recv(qp, wr, &bad));
	RETURNS(DEPTH, bad - wr);
	to_error(qp);
	for (int i = 0; i < DEPTH; i++) {
		struct ibv_wc wc = next_wc();

		RETURNS(IBV_WC_WR_FLUSH_ERR, wc.status);
		RETURNS(i, wc.wr_id);
	}
	MUST(srq && !ibv_query_srq(srq, &attr));
	MUST(attr.max_wr < CQES);
	for (int i = 0; i <= SGES; i++)
		list[i] = one;
	wr[1].sg_list = list;
	wr[1].num_sge = SGES + 1;
	RETURNS(EINVAL, ibv_post_srq_recv(srq, wr, &bad));
	RETURNS(1, bad - wr);
	wr[1].num_sge = 1;
	RETURNS(ENOMEM, ibv_post_srq_recv(srq, wr, &bad));
	/* One was there already. */
	RETURNS(attr.max_wr - 1, bad - wr);
	RETURNS(0, ibv_destroy_srq(srq));
}

static void posting_in_the_wrong_state(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_send_wr wr[2], *bad_send = NULL;
	struct ibv_recv_wr receive[2], *bad = NULL;
	struct ibv_sge one = sge(8);

	chain_sends(wr, 2, &one);
	chain_receives(receive, 2, &one);
	RETURNS(EINVAL, ibv_post_send(qp, wr, &bad_send));
	RETURNS(0, bad_send - wr);
	RETURNS(EINVAL, ibv_post_recv(qp, receive, &bad));
	RETURNS(0, bad - receive);
	to_init(qp);
	bad_send = NULL;
	RETURNS(EINVAL, ibv_post_send(qp, wr, &bad_send));
	RETURNS(0, bad_send - wr);
	RETURNS(0, ibv_post_recv(qp, receive, &bad));
	to_rtr(qp, qp->qp_num);
	bad_send = NULL;
	RETURNS(EINVAL, ibv_post_send(qp, wr, &bad_send));
	RETURNS(0, bad_send - wr);
	to_rts(qp);
	taken(qp, wr);
	/* In the error state all requests are accepted and flushed. */
	to_error(qp);
	RETURNS(0, ibv_post_send(qp, wr, &bad_send));
	RETURNS(0, ibv_post_recv(qp, receive, &bad));
	for (int i = 0; i < 6; i++)
		RETURNS(IBV_WC_WR_FLUSH_ERR, next_wc().status);
}

static void operations_that_a_service_does_not_have(void)
{
	static const struct { enum ibv_qp_type type; int opcode; } cases[] = {
		{ IBV_QPT_RC, 77 },
		{ IBV_QPT_UC, IBV_WR_RDMA_READ },
		{ IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ IBV_QPT_UD, IBV_WR_RDMA_WRITE },
		{ IBV_QPT_UD, IBV_WR_RDMA_READ },
		{ IBV_QPT_UD, IBV_WR_SEND_WITH_INV },
	};
	struct ibv_ah_attr attr = to_ourselves();
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_sge one = sge(8), large = sge(4097);
	struct ibv_send_wr wr, *bad;

	MUST(ah);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ibv_qp *qp = connected(cases[i].type);

		chain_sends(&wr, 1, &one);
		wr.opcode = cases[i].opcode;
		if (cases[i].type == IBV_QPT_UD) {
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = qp->qp_num;
		}
		bad = NULL;
		RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
		RETURNS(0, bad - &wr);
		if (cases[i].type == IBV_QPT_UD) {
			wr.opcode = IBV_WR_SEND;
			wr.sg_list = &large;
			RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
			wr.sg_list = &one;
			wr.wr.ud.ah = NULL;
			RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
		}
		RETURNS(IBV_QPS_RTS, state_of(qp));
		RETURNS(0, ibv_destroy_qp(qp));
	}
	RETURNS(0, ibv_destroy_ah(ah));
}

static void extended_posting(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = SGES, .max_recv_sge = 1,
			 .max_inline_data = INLINE },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
	struct ibv_qp_ex *ex;
	struct ibv_wc wc;

	MUST(qp && (ex = ibv_qp_to_qp_ex(qp)));
	/* A queue pair that was created without it has none. */
	RETURNS(0, ibv_qp_to_qp_ex(create(IBV_QPT_RC)));
	to_init(qp);
	to_rtr(qp, qp->qp_num);
	to_rts(qp);
	ex->wr_flags = IBV_SEND_SIGNALED;
	/* All or none: the first is valid, the second is too long. */
	for (int way = 0; way < 5; way++) {
		struct ibv_sge many[SGES + 1] = { sge(1), sge(1), sge(1), sge(1) };

		ibv_wr_start(ex);
		ex->wr_id = 1;
		ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
		ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
		ex->wr_id = 2;
		if (way == 0) {
			ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
			ibv_wr_set_sge_list(ex, SGES + 1, many);
		} else if (way == 1) {
			ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
			ibv_wr_set_inline_data(ex, memory, attr.cap.max_inline_data + 1);
		} else if (way == 4) {
			/* The address is invalid. */
			ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
			ibv_wr_set_inline_data(ex, memory, (size_t)1 << 30);
		} else if (way == 2) {
			/* It was not created for this. */
			ibv_wr_rdma_read(ex, mr->rkey, (uintptr_t)memory);
			ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
		} else {
			for (uint32_t i = 0; i < attr.cap.max_send_wr; i++) {
				ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
				ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
			}
		}
		RETURNS(way == 3 ? ENOMEM : EINVAL, ibv_wr_complete(ex));
		RETURNS(0, ibv_poll_cq(cq, 1, &wc));
	}
	ibv_wr_start(ex);
	ex->wr_id = 3;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	ex->wr_id = 4;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)memory);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
	RETURNS(0, ibv_wr_complete(ex));
	wc = next_wc();
	RETURNS(IBV_WC_SUCCESS, wc.status);
	RETURNS(4, wc.wr_id);
}

/* Keys of deregistered regions, and keys that never existed. */
static void keys_that_are_none(void)
{
	struct ibv_mr *old = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge one = sge(8);
	struct ibv_send_wr wr, *bad;
	struct ibv_qp *qp;

	MUST(old);
	one.lkey = old->lkey;
	MUST(!ibv_dereg_mr(old));
	for (int way = 0; way < 2; way++) {
		qp = connected(IBV_QPT_RC);
		chain_sends(&wr, 1, &one);
		RETURNS(0, ibv_post_send(qp, &wr, &bad));
		RETURNS(IBV_WC_LOC_PROT_ERR, next_wc().status);
		RETURNS(IBV_QPS_ERR, state_of(qp));
		one.lkey = 0;
	}
}

/* A CQ with a channel and a pending event. */
static struct ibv_comp_channel *raised(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_send_wr wr, *bad;
	struct ibv_sge one = sge(16);
	struct ibv_qp *qp;

	MUST(channel);
	MUST(cq = ibv_create_cq(context, CQES, NULL, channel, 0));
	qp = connected(IBV_QPT_RC);
	RETURNS(0, ibv_req_notify_cq(cq, 0));
	chain_sends(&wr, 1, &one);
	RETURNS(0, ibv_post_send(qp, &wr, &bad));
	next_wc();
	RETURNS(1, poll(&(struct pollfd){ .fd = channel->fd, .events = POLLIN }, 1, -1));
	RETURNS(0, ibv_destroy_qp(qp));
	return channel;
}

static atomic_int begun, ended;

static void *destroys(void *queue)
{
	begun = 1;
	RETURNS(0, ibv_destroy_cq(queue));
	ended = 1;
	return NULL;
}

/* ibv_get_cq_event(3): destroying a CQ waits for events that were taken to be acknowledged, and discards the others. */
static void events_of_queues_that_end(void)
{
	struct ibv_comp_channel *channel = raised();
	struct ibv_cq *which;
	void *about;
	pthread_t thread;

	RETURNS(0, ibv_destroy_cq(cq));
	RETURNS(0, poll(&(struct pollfd){ .fd = channel->fd, .events = POLLIN }, 1, 0));
	RETURNS(0, ibv_destroy_comp_channel(channel));
	channel = raised();
	RETURNS(0, ibv_get_cq_event(channel, &which, &about));
	RETURNS(cq, which);
	MUST(!pthread_create(&thread, NULL, destroys, cq));
	while (!begun)
		sched_yield();
	for (int turn = 0; turn < 2000; turn++) {
		MUST(!ended);
		sched_yield();
	}
	ibv_ack_cq_events(which, 1);
	MUST(!pthread_join(thread, NULL) && ended);
	RETURNS(0, ibv_destroy_comp_channel(channel));
}

#include "bad_input_objects.h"

static const struct { const char *name; void (*run)(void); } cases[] = {
#define CASE(name) { #name, name }
	CASE(too_many_sges),
	CASE(over_long_inline),
	CASE(full_send_queue),
	CASE(full_receive_queues),
	CASE(posting_in_the_wrong_state),
	CASE(operations_that_a_service_does_not_have),
	CASE(extended_posting),
	CASE(keys_that_are_none),
	CASE(null_handles),
	CASE(objects_in_use),
	CASE(masks_of_the_future),
	CASE(sizes_out_of_range),
	CASE(registering_what_cannot_be),
	CASE(changing_states),
	CASE(asking_for_what_is_not_there),
	CASE(completion_queue_overrun),
	CASE(datagrams_tell_their_header),
	CASE(groups),
	CASE(verbs_that_are_absent),
	CASE(importing),
	CASE(waiting_without_blocking),
	CASE(events_of_queues_that_end),
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc == 2 && !strcmp(argv[1], "--list"))
			printf("%s\n", cases[i].name);
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			open_all();
			cases[i].run();
			return failures > 0;
		}
	}
	return argc == 2 && !strcmp(argv[1], "--list") ? 0 : 2;
}

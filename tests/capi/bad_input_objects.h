/* Cases about objects: creation, modification and destruction. */

static void null_handles(void)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_qp_init_attr init = { 0 };
	struct ibv_srq_attr srq = { 0 };

	NO_POINTER(EINVAL, ibv_open_device(NULL));
	NO_POINTER(EINVAL, ibv_alloc_pd(NULL));
	NO_POINTER(EINVAL, ibv_create_comp_channel(NULL));
	NO_POINTER(EINVAL, ibv_create_cq(NULL, 1, NULL, NULL, 0));
	NO_POINTER(EINVAL, ibv_create_qp(NULL, &init));
	NO_POINTER(EINVAL, ibv_create_qp(pd, NULL));
	NO_POINTER(EINVAL, ibv_create_srq(pd, NULL));
	NO_POINTER(EINVAL, ibv_create_ah(pd, NULL));
	NO_POINTER(EINVAL, ibv_reg_mr_iova2(NULL, memory, SIZE, 0, 0));
	/* No completion queues. */
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = 1;
	NO_POINTER(EINVAL, ibv_create_qp(pd, &init));
	RETURNS(EINVAL, ibv_dealloc_pd(NULL));
	RETURNS(EINVAL, ibv_destroy_cq(NULL));
	RETURNS(EINVAL, ibv_destroy_qp(NULL));
	RETURNS(EINVAL, ibv_destroy_srq(NULL));
	RETURNS(EINVAL, ibv_destroy_ah(NULL));
	RETURNS(EINVAL, ibv_dereg_mr(NULL));
	RETURNS(EINVAL, ibv_destroy_comp_channel(NULL));
	RETURNS(EINVAL, ibv_modify_qp(NULL, &attr, 0));
	RETURNS(EINVAL, ibv_modify_qp(create(IBV_QPT_RC), NULL, 0));
	RETURNS(EINVAL, ibv_query_qp(NULL, &attr, 0, &init));
	RETURNS(EINVAL, ibv_query_srq(NULL, &srq));
	RETURNS(EINVAL, ibv_resize_cq(NULL, 1));
	RETURNS(EINVAL, ibv_query_device(context, NULL));
	RETURNS(EINVAL, (ibv_query_port)(context, 1, NULL));
	RETURNS(EINVAL, (ibv_query_port)(NULL, 1, (struct _compat_ibv_port_attr *)&port));
	MINUS_ONE(EINVAL, ibv_close_device(NULL));
	ibv_free_device_list(NULL);
	ibv_ack_cq_events(NULL, 1);
	ibv_unimport_pd(NULL);
	ibv_unimport_mr(NULL);
	ibv_unimport_dm(NULL);
}

/* An object that is in use is not destroyed, and still works. */
static void objects_in_use(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *other = ibv_create_cq(context, 1, NULL, channel, 0);
	struct ibv_srq_init_attr with = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &with);
	struct ibv_qp_init_attr init = { .send_cq = other, .recv_cq = other, .srq = srq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 }, .qp_type = IBV_QPT_RC };
	struct ibv_alloc_dm_attr dm_attr = { .length = 4096 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	struct ibv_recv_wr wr, *bad = NULL;
	struct ibv_xrcd_init_attr xrcd_attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
						.oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrcd_attr);
	struct ibv_srq_init_attr_ex xrc = { .attr = with.attr, .srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd,
					    .cq = cq,
					    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
							 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_srq *xsrq;
	struct ibv_qp *qp;
	struct ibv_mr *part;
	struct ibv_sge one = sge(8);

	MUST(channel && other && srq && dm && xrcd);
	MUST(qp = ibv_create_qp(pd, &init));
	MUST(part = ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE));
	MUST(xsrq = ibv_create_srq_ex(context, &xrc));
	RETURNS(EBUSY, ibv_dealloc_pd(pd));
	RETURNS(EBUSY, ibv_destroy_cq(other));
	RETURNS(EBUSY, ibv_destroy_srq(srq));
	RETURNS(EBUSY, ibv_destroy_comp_channel(channel));
	RETURNS(EBUSY, ibv_free_dm(dm));
	RETURNS(EBUSY, ibv_close_xrcd(xrcd));
	/* It receives from the SRQ. */
	chain_receives(&wr, 1, &one);
	to_init(qp);
	RETURNS(EINVAL, ibv_post_recv(qp, &wr, &bad));
	RETURNS(0, bad - &wr);
	RETURNS(0, ibv_post_srq_recv(srq, &wr, &bad));
	RETURNS(0, ibv_destroy_srq(xsrq));
	RETURNS(0, ibv_close_xrcd(xrcd));
	RETURNS(0, ibv_dereg_mr(part));
	RETURNS(0, ibv_free_dm(dm));
	RETURNS(0, ibv_destroy_qp(qp));
	RETURNS(0, ibv_destroy_srq(srq));
	RETURNS(0, ibv_destroy_cq(other));
	RETURNS(0, ibv_destroy_comp_channel(channel));
	/* Services other than RC and UD have no SRQ: ibv_create_qp(3). */
	MUST(srq = ibv_create_srq(pd, &with));
	init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = cq, .srq = srq,
					  .cap = { .max_send_wr = 1, .max_send_sge = 1 }, .qp_type = IBV_QPT_UC };
	NO_POINTER(EINVAL, ibv_create_qp(pd, &init));
}

/* Bits that a later header may define. */
static void masks_of_the_future(void)
{
	enum { FUTURE = 1 << 30 };
	struct ibv_qp_init_attr_ex qp_attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
					       .cap = { .max_send_wr = 1, .max_send_sge = 1 },
					       .comp_mask = IBV_QP_INIT_ATTR_PD | FUTURE };
	struct ibv_srq_init_attr_ex srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 }, .pd = pd,
						 .comp_mask = IBV_SRQ_INIT_ATTR_PD | FUTURE };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 1, .comp_mask = FUTURE };
	struct ibv_alloc_dm_attr dm_attr = { .length = 64, .comp_mask = FUTURE };
	struct ibv_td_init_attr td_attr = { .comp_mask = FUTURE };
	struct ibv_parent_domain_init_attr parent = { .pd = pd, .comp_mask = FUTURE };
	struct ibv_xrcd_init_attr xrcd_attr = { .comp_mask = FUTURE | IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
						.fd = -1, .oflags = O_CREAT };
	struct ibv_query_device_ex_input input = { .comp_mask = FUTURE };
	struct ibv_device_attr_ex device;
	struct ibv_values_ex values = { .comp_mask = FUTURE | IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_poll_cq_attr poll_attr = { .comp_mask = FUTURE };
	struct ibv_cq_ex *ex;
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };

	NO_POINTER(EOPNOTSUPP, ibv_create_qp_ex(context, &qp_attr));
	NO_POINTER(EOPNOTSUPP, ibv_create_srq_ex(context, &srq_attr));
	NO_POINTER(EINVAL, ibv_create_cq_ex(context, &cq_attr));
	NO_POINTER(EINVAL, ibv_alloc_dm(context, &dm_attr));
	NO_POINTER(EOPNOTSUPP, ibv_alloc_td(context, &td_attr));
	NO_POINTER(EINVAL, ibv_alloc_parent_domain(context, &parent));
	NO_POINTER(EINVAL, ibv_open_xrcd(context, &xrcd_attr));
	RETURNS(EINVAL, ibv_query_device_ex(context, &input, &device));
	/* What is not known is not answered, and the mask says so. */
	RETURNS(0, ibv_query_rt_values_ex(context, &values));
	RETURNS(IBV_VALUES_MASK_RAW_CLOCK, values.comp_mask);
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE | FUTURE));
	RETURNS(IBV_QPS_RESET, state_of(qp));
	cq_attr = (struct ibv_cq_init_attr_ex){ .cqe = 1, .wc_flags = 1ULL << 40 };
	NO_POINTER(EOPNOTSUPP, ibv_create_cq_ex(context, &cq_attr));
	cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS;
	MUST(ex = ibv_create_cq_ex(context, &cq_attr));
	RETURNS(EINVAL, ibv_start_poll(ex, &poll_attr));
	poll_attr.comp_mask = 0;
	RETURNS(ENOENT, ibv_start_poll(ex, &poll_attr));
	/* Flags of creation that are unknown, and operations that a service does not have. */
	qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	qp_attr.create_flags = 1 << 30;
	NO_POINTER(EOPNOTSUPP, ibv_create_qp_ex(context, &qp_attr));
	qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	qp_attr.qp_type = IBV_QPT_UD;
	qp_attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	NO_POINTER(EOPNOTSUPP, ibv_create_qp_ex(context, &qp_attr));
}

static void sizes_out_of_range(void)
{
	struct ibv_device_attr device;
	struct ibv_qp_init_attr good = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
						  .max_recv_sge = 1 } }, attr;
	struct ibv_srq_init_attr srq_attr;
	struct ibv_srq *srq;
	struct ibv_srq_attr change = { 0 };
	struct ibv_wc wc;

	MUST(!ibv_query_device(context, &device));
	NO_POINTER(EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
	NO_POINTER(EINVAL, ibv_create_cq(context, -1, NULL, NULL, 0));
	NO_POINTER(EINVAL, ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0));
	NO_POINTER(EINVAL, ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors));
	NO_POINTER(EINVAL, ibv_create_cq(context, 1, NULL, NULL, -1));
	RETURNS(EINVAL, ibv_resize_cq(cq, 0));
	RETURNS(EINVAL, ibv_resize_cq(cq, device.max_cqe + 1));
	RETURNS(CQES, cq->cqe);
	MUST(ibv_poll_cq(cq, -1, &wc) < 0);
	RETURNS(0, ibv_poll_cq(cq, 0, NULL));
#define BEYOND(field, most)                                                                                \
	attr = good;                                                                                       \
	attr.cap.field = (most) + 1;                                                                       \
	NO_POINTER(EINVAL, ibv_create_qp(pd, &attr))
	BEYOND(max_send_wr, device.max_qp_wr);
	BEYOND(max_recv_wr, device.max_qp_wr);
	BEYOND(max_send_sge, device.max_sge);
	BEYOND(max_recv_sge, device.max_sge);
	BEYOND(max_inline_data, 1 << 20);
	attr = good;
	attr.qp_type = 99;
	NO_POINTER(EOPNOTSUPP, ibv_create_qp(pd, &attr));
	attr.qp_type = IBV_QPT_RAW_PACKET;
	NO_POINTER(EOPNOTSUPP, ibv_create_qp(pd, &attr));
	srq_attr = (struct ibv_srq_init_attr){ .attr = { .max_wr = device.max_srq_wr + 1, .max_sge = 1 } };
	NO_POINTER(EINVAL, ibv_create_srq(pd, &srq_attr));
	srq_attr.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = device.max_srq_sge + 1 };
	NO_POINTER(EINVAL, ibv_create_srq(pd, &srq_attr));
	srq_attr.attr = (struct ibv_srq_attr){ .max_wr = DEPTH, .max_sge = 1 };
	MUST(srq = ibv_create_srq(pd, &srq_attr));
	change.srq_limit = DEPTH + 1;
	RETURNS(EINVAL, ibv_modify_srq(srq, &change, IBV_SRQ_LIMIT));
	change.max_wr = device.max_srq_wr + 1;
	RETURNS(EINVAL, ibv_modify_srq(srq, &change, IBV_SRQ_MAX_WR));
	RETURNS(EINVAL, ibv_modify_srq(srq, &change, 1 << 20));
	MUST(!ibv_query_srq(srq, &change));
	RETURNS(DEPTH, change.max_wr);
	RETURNS(0, change.srq_limit);
}

static void registering_what_cannot_be(void)
{
	char *hole = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *readable = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *region;

	MUST(hole != MAP_FAILED && readable != MAP_FAILED && !munmap(hole, SIZE));
	NO_POINTER(EFAULT, ibv_reg_mr(pd, hole, SIZE, IBV_ACCESS_LOCAL_WRITE));
	NO_POINTER(EFAULT, ibv_reg_mr(pd, readable, SIZE, IBV_ACCESS_LOCAL_WRITE));
	NO_POINTER(EINVAL, ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_WRITE));
	NO_POINTER(EINVAL, ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_REMOTE_ATOMIC));
	NO_POINTER(EINVAL, ibv_reg_mr(pd, memory, SIZE, 1 << 19));
	/* Bits of this range may be ignored. */
	MUST(region = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | 1 << 29));
	RETURNS(0, ibv_dereg_mr(region));
	MUST(region = ibv_reg_mr(pd, readable, SIZE, 0));
	RETURNS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(region, 0, NULL, NULL, 0, 0));
	RETURNS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(region, 1 << 20, NULL, NULL, 0, 0));
	RETURNS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
	RETURNS(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0));
	RETURNS(IBV_REREG_MR_ERR_INPUT,
		ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
	RETURNS(0, ibv_dereg_mr(region));
}

static void changing_states(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	RETURNS(IBV_QPS_RESET, state_of(qp));
	/* Something is missing. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX));
	/* Ports and partitions that there are not. */
	attr.port_num = 2;
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	attr.port_num = 1;
	attr.pkey_index = 1;
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	RETURNS(IBV_QPS_RESET, state_of(qp));
	to_init(qp);
	/* A GID that is not in the table. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				     .max_dest_rd_atomic = 1, .ah_attr = to_ourselves() };
	attr.ah_attr.grh.sgid_index = 100;
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	RETURNS(IBV_QPS_INIT, state_of(qp));
	to_rtr(qp, qp->qp_num);
	/* More than the device has. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .max_rd_atomic = 255 };
	RETURNS(EINVAL, ibv_modify_qp(qp, &attr,
				      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
	RETURNS(IBV_QPS_RTR, state_of(qp));
	to_rts(qp);
}

static void asking_for_what_is_not_there(void)
{
	struct ibv_port_attr port;
	union ibv_gid gid, none = { 0 };
	struct ibv_gid_entry entries[1], entry;
	struct ibv_device_attr_ex device;
	__be16 pkey;

	MUST(!ibv_query_port(context, 1, &port));
	RETURNS(EINVAL, ibv_query_port(context, 0, &port));
	RETURNS(EINVAL, ibv_query_port(context, 2, &port));
	MINUS_ONE(EINVAL, ibv_query_gid(context, 2, 0, &gid));
	MINUS_ONE(EINVAL, ibv_query_gid(context, 1, -1, &gid));
	MINUS_ONE(EINVAL, ibv_query_gid(context, 1, port.gid_tbl_len, &gid));
	RETURNS(0, ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid));
	RETURNS(0, memcmp(&gid, &none, sizeof(gid)));
	RETURNS(ENODATA, ibv_query_gid_ex(context, 1, port.gid_tbl_len - 1, &entry, 0));
	RETURNS(EINVAL, ibv_query_gid_ex(context, 1, port.gid_tbl_len, &entry, 0));
	RETURNS(EINVAL, ibv_query_gid_ex(context, 1, 0, &entry, 1));
	RETURNS(EINVAL, ibv_query_gid_ex(context, 2, 0, &entry, 0));
	RETURNS(-EINVAL, ibv_query_gid_table(context, entries, 0, 0));
	RETURNS(-EINVAL, ibv_query_gid_table(context, entries, 1, 1));
	MINUS_ONE(EINVAL, ibv_query_pkey(context, 1, 1, &pkey));
	MINUS_ONE(EINVAL, ibv_query_pkey(context, 2, 0, &pkey));
	MINUS_ONE(EINVAL, ibv_get_pkey_index(context, 1, htobe16(0x1234)));
	RETURNS(EINVAL, verbs_get_ctx(context)->query_device_ex(context, NULL, &device, 8));
}

/* Completions that find no room are lost: an event says so, and what was there stays. */
static void completion_queue_overrun(void)
{
	struct ibv_cq *small = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = small, .recv_cq = small, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_recv_wr = CQES, .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	struct ibv_recv_wr wr[CQES], *bad;
	struct ibv_async_event event;
	struct ibv_sge one = sge(8);
	struct ibv_wc wc;
	int overran = 0, fatal = 0;
	struct ibv_qp *qp;

	MUST(small && (qp = ibv_create_qp(pd, &init)));
	MUST(small->cqe < CQES);
	to_init(qp);
	chain_receives(wr, CQES, &one);
	MUST(!ibv_post_recv(qp, wr, &bad));
	to_error(qp);
	MUST(!fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK));
	while (!ibv_get_async_event(context, &event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			overran++;
			RETURNS(small, event.element.cq);
		} else if (event.event_type == IBV_EVENT_QP_FATAL) {
			fatal++;
			RETURNS(qp, event.element.qp);
		}
		ibv_ack_async_event(&event);
	}
	RETURNS(EAGAIN, errno);
	/* Told once. */
	RETURNS(1, overran);
	MUST(fatal <= 1);
	for (int i = 0; i < small->cqe; i++) {
		RETURNS(1, ibv_poll_cq(small, 1, &wc));
		RETURNS(i, wc.wr_id);
	}
	RETURNS(0, ibv_poll_cq(small, 1, &wc));
	RETURNS(0, ibv_destroy_qp(qp));
	RETURNS(0, ibv_destroy_cq(small));
}

/* Where a datagram's address is depends on its header, and the service level says which it is. */
static void datagrams_tell_their_header(void)
{
	struct ibv_ah_attr attr = to_ourselves();
	struct ibv_ah *ah = ibv_create_ah(pd, &attr), *back;
	struct ibv_qp *qp = connected(IBV_QPT_UD);
	struct ibv_sge from = sge(8), to = { (uintptr_t)memory + SIZE / 2, 48, mr->lkey };
	struct ibv_recv_wr receive, *bad_receive;
	struct ibv_send_wr wr, *bad;
	struct ibv_wc wc;

	MUST(ah);
	chain_receives(&receive, 1, &to);
	MUST(!ibv_post_recv(qp, &receive, &bad_receive));
	chain_sends(&wr, 1, &from);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = 0;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 0x11111111;
	MUST(!ibv_post_send(qp, &wr, &bad));
	wc = next_wc();
	RETURNS(IBV_WC_SUCCESS, wc.status);
	RETURNS(IBV_WC_RECV, wc.opcode);
	RETURNS(48, wc.byte_len);
	RETURNS(IBV_WC_GRH, wc.wc_flags);
	RETURNS(2, wc.sl & 7);
	/* The header of IPv4 is in the last 20 bytes. */
	RETURNS(0x45, (unsigned char)memory[SIZE / 2 + 20]);
	MUST(back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(memory + SIZE / 2), 1));
	RETURNS(0, ibv_destroy_ah(back));
	NO_POINTER(EINVAL, ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(memory + SIZE / 2), 2));
	wc.wc_flags = 0;
	NO_POINTER(EINVAL, ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)(memory + SIZE / 2), 1));
	/* RoCE has no other way than by a GID, but to the loopback's own LID, which is 1. */
	attr.is_global = 0;
	NO_POINTER(EINVAL, ibv_create_ah(pd, &attr));
	attr.dlid = 1;
	MUST(back = ibv_create_ah(pd, &attr));
	RETURNS(0, ibv_destroy_ah(back));
	attr.dlid = 2;
	NO_POINTER(EINVAL, ibv_create_ah(pd, &attr));
	attr = to_ourselves();
	attr.grh.sgid_index = 100;
	NO_POINTER(EINVAL, ibv_create_ah(pd, &attr));
}

static void groups(void)
{
	struct ibv_qp *connection = create(IBV_QPT_RC), *qp = connected(IBV_QPT_UD);
	union ibv_gid group = { .raw = { [10] = 0xff, [11] = 0xff, 239, 1, 2, 3 } }, host = to_ourselves().grh.dgid;

	RETURNS(EINVAL, ibv_attach_mcast(connection, &group, 0));
	RETURNS(EINVAL, ibv_attach_mcast(qp, &host, 0));
	RETURNS(EINVAL, ibv_attach_mcast(qp, NULL, 0));
	RETURNS(EINVAL, ibv_detach_mcast(qp, &group, 0));
	RETURNS(0, ibv_attach_mcast(qp, &group, 0));
	/* ibv_create_qp(3): one that is attached cannot be destroyed. */
	RETURNS(EBUSY, ibv_destroy_qp(qp));
	RETURNS(0, ibv_detach_mcast(qp, &group, 0));
	RETURNS(0, ibv_destroy_qp(qp));
}

static void verbs_that_are_absent(void)
{
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE };
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	struct ibv_srq_init_attr with = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &with);
	struct ibv_ops_wr ops = { 0 }, *bad;
	struct ibv_ece ece = { .vendor_id = 7, .options = 7 };
	struct ibv_qp *qp = create(IBV_QPT_RC);
	struct ibv_flow_action_esp_attr esp = { 0 };

	MUST(srq);
	NO_POINTER(EOPNOTSUPP, ibv_create_counters(context, &counters));
	NO_POINTER(EOPNOTSUPP, ibv_create_flow(qp, &flow));
	NO_POINTER(EOPNOTSUPP, ibv_create_wq(context, &wq));
	NO_POINTER(EOPNOTSUPP, ibv_create_rwq_ind_table(context, &table));
	NO_POINTER(EOPNOTSUPP, ibv_create_flow_action_esp(context, &esp));
	NO_POINTER(EOPNOTSUPP, ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0));
	RETURNS(EOPNOTSUPP, ibv_modify_cq(cq, &moderate));
	RETURNS(EOPNOTSUPP, ibv_modify_qp_rate_limit(qp, &rate));
	RETURNS(EOPNOTSUPP, ibv_post_srq_ops(srq, &ops, &bad));
	RETURNS(EOPNOTSUPP, ibv_set_ece(qp, &ece));
	RETURNS(EOPNOTSUPP, ibv_query_ece(qp, &ece));
	RETURNS(0, ece.vendor_id | ece.options);
}

static void importing(void)
{
	int copy = dup(context->cmd_fd), other = memfd_create("another", 0);
	struct ibv_alloc_dm_attr dm_attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr), *same_dm;
	struct ibv_context *same;
	struct ibv_pd *same_pd;
	struct ibv_mr *same_mr;
	uint32_t word = 0x12345678;

	MUST(dm);
	NO_POINTER(EBADF, ibv_import_device(-1));
	NO_POINTER(EOPNOTSUPP, ibv_import_device(other));
	RETURNS(0, close(other));
	MUST(same = ibv_import_device(copy));
	NO_POINTER(EINVAL, ibv_import_pd(same, 12345));
	NO_POINTER(EINVAL, ibv_import_mr(pd, 12345));
	NO_POINTER(EINVAL, ibv_import_dm(same, 12345));
	MUST(same_pd = ibv_import_pd(same, pd->handle));
	MUST(same_mr = ibv_import_mr(same_pd, mr->handle));
	MUST(same_dm = ibv_import_dm(same, dm->handle));
	RETURNS(mr->lkey, same_mr->lkey);
	RETURNS(mr->rkey, same_mr->rkey);
	RETURNS(0, same_mr->addr);
	RETURNS(0, ibv_memcpy_to_dm(dm, 0, &word, 4));
	word = 0;
	RETURNS(0, ibv_memcpy_from_dm(&word, same_dm, 0, 4));
	RETURNS(0x12345678, word);
	/* Freed by one handle, it is gone for the other. */
	RETURNS(0, ibv_free_dm(dm));
	RETURNS(EINVAL, ibv_memcpy_from_dm(&word, same_dm, 0, 4));
	NO_POINTER(EINVAL, ibv_import_dm(same, dm_attr.length));
	ibv_unimport_dm(same_dm);
	ibv_unimport_mr(same_mr);
	ibv_unimport_pd(same_pd);
	RETURNS(0, ibv_close_device(same));
	/* That closed the copy. */
	RETURNS(-1, fcntl(copy, F_GETFD));
	/* And the others are as they were. */
	RETURNS(0, ibv_dereg_mr(mr));
	RETURNS(0, ibv_destroy_cq(cq));
	RETURNS(0, ibv_dealloc_pd(pd));
	RETURNS(0, ibv_close_device(context));
}

static void waiting_without_blocking(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_async_event event;
	struct ibv_cq *which;
	void *about;

	MUST(channel);
	MUST(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	MUST(!fcntl(context->async_fd, F_SETFL, O_NONBLOCK));
	MINUS_ONE(EAGAIN, ibv_get_cq_event(channel, &which, &about));
	MINUS_ONE(EAGAIN, ibv_get_async_event(context, &event));
}

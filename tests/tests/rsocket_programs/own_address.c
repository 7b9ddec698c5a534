/* Lets rdma-core's datagram sockets run on RoCE. They make an address handle that leads to themselves, for datagrams that
 * came by UDP, and make it by LID: on Ethernet there are none, Linux refuses it, and no datagram socket gets further than
 * that (librdmacm 44, `ds_add_qp_dest`). This gives that one handle the GID that it lacks, by its index in the environment,
 * and is for rdma-core's side alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#undef ibv_query_gid

struct ibv_ah *ibv_create_ah(struct ibv_pd *domain, struct ibv_ah_attr *wanted)
{
    struct ibv_ah *(*create)(struct ibv_pd *, struct ibv_ah_attr *) = dlvsym(RTLD_NEXT, "ibv_create_ah", "IBVERBS_1.1");
    int (*query)(struct ibv_context *, uint8_t, int, union ibv_gid *) = dlvsym(RTLD_NEXT, "ibv_query_gid", "IBVERBS_1.1");
    const char *index = getenv("OWN_GID_INDEX");
    struct ibv_ah_attr own = *wanted;
    if (!own.is_global && index) {
        own.is_global = 1;
        own.grh.hop_limit = 64;
        own.grh.sgid_index = atoi(index);
        if (query(domain->context, own.port_num, own.grh.sgid_index, &own.grh.dgid))
            return NULL;
    }
    return create(domain, &own);
}

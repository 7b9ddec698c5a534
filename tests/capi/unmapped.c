/* Memory that is unmapped while it is registered: whoever reaches for it gets an error, the process lives, and what is mapped
 * in its place is left alone.
 *
 *   usage: unmapped CASE
 *          unmapped --list
 */
#define _GNU_SOURCE
#include "pair.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, OURS = 0x5a, OTHERS = 0x77 };

static struct pair_device device;
static struct ibv_cq *cq;
static struct ibv_mr *mr, *victim;
static uint8_t *local, *memory;

struct pair {
    struct ibv_qp *from, *to;
};

static struct pair connect_pair(void)
{
    struct pair it = { pair_create(&device, IBV_QPT_RC, cq, cq, 16), pair_create(&device, IBV_QPT_RC, cq, cq, 16) };
    pair_connect(&device, it.from, it.to->qp_num);
    pair_connect(&device, it.to, it.from->qp_num);
    return it;
}

static void close_pair(struct pair it)
{
    CHECK(!ibv_destroy_qp(it.from) && !ibv_destroy_qp(it.to));
}

static enum ibv_wc_status rdma(enum ibv_wr_opcode opcode, struct ibv_mr *mr_remote, uint8_t *remote, uint32_t length)
{
    struct pair it = connect_pair();
    struct ibv_sge sge = { (uintptr_t)local, length, mr->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)remote;
        wr.wr.atomic.rkey = mr_remote->rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)remote;
        wr.wr.rdma.rkey = mr_remote->rkey;
    }
    CHECK(!ibv_post_send(it.from, &wr, &bad));
    enum ibv_wc_status status = pair_take(cq).status;
    close_pair(it);
    return status;
}

static void nothing_reaches(struct ibv_mr *region, uint8_t *at)
{
    CHECK(rdma(IBV_WR_RDMA_WRITE, region, at, 3000) == IBV_WC_REM_ACCESS_ERR);
    CHECK(rdma(IBV_WR_RDMA_READ, region, at, 3000) == IBV_WC_REM_ACCESS_ERR);
    CHECK(rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, region, at, 8) == IBV_WC_REM_ACCESS_ERR);
}

static void all_reach(struct ibv_mr *region, uint8_t *at)
{
    CHECK(rdma(IBV_WR_RDMA_WRITE, region, at, 3000) == IBV_WC_SUCCESS && at[2999] == OURS);
    CHECK(rdma(IBV_WR_RDMA_READ, region, at, 3000) == IBV_WC_SUCCESS);
    CHECK(rdma(IBV_WR_ATOMIC_FETCH_AND_ADD, region, at, 8) == IBV_WC_SUCCESS);
}

static uint8_t *map(void *at, size_t size, int flags)
{
    uint8_t *it = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    CHECK(it != MAP_FAILED);
    return it;
}

static struct ibv_mr *reg(void *at, size_t size)
{
    struct ibv_mr *it = ibv_reg_mr(device.pd, at, size, PAIR_ACCESS);
    CHECK(it);
    return it;
}

static void untouched(uint8_t *at, size_t size)
{
    for (size_t i = 0; i < size; i++)
        CHECK(at[i] == OTHERS);
}

static void unmap(void)
{
    CHECK(!munmap(memory, SIZE));
    nothing_reaches(victim, memory);
    nothing_reaches(victim, memory + SIZE / 2);
}

/* Another mapping is at the same addresses: it does not belong to the region. */
static void unmap_and_map(void)
{
    CHECK(!munmap(memory, SIZE));
    map(memory, SIZE, MAP_FIXED_NOREPLACE);
    memset(memory, OTHERS, SIZE);
    nothing_reaches(victim, memory);
    untouched(memory, SIZE);
    struct ibv_mr *again = reg(memory, SIZE);
    all_reach(again, memory);
    nothing_reaches(victim, memory);
    CHECK(!ibv_dereg_mr(again));
}

static void map_over(void)
{
    map(memory, SIZE, MAP_FIXED);
    memset(memory, OTHERS, SIZE);
    nothing_reaches(victim, memory);
    untouched(memory, SIZE);
}

/* The remaining part of a region is usable. */
static void unmap_part(void)
{
    CHECK(!munmap(memory + SIZE / 2, 4096));
    nothing_reaches(victim, memory + SIZE / 2);
    CHECK(rdma(IBV_WR_RDMA_WRITE, victim, memory + SIZE / 2 - 1000, 3000) == IBV_WC_REM_ACCESS_ERR);
    CHECK(rdma(IBV_WR_RDMA_READ, victim, memory + SIZE / 2 - 1000, 3000) == IBV_WC_REM_ACCESS_ERR);
    map(memory + SIZE / 2, 4096, MAP_FIXED_NOREPLACE);
    memset(memory + SIZE / 2, OTHERS, 4096);
    nothing_reaches(victim, memory + SIZE / 2);
    untouched(memory + SIZE / 2, 4096);
    all_reach(victim, memory);
    all_reach(victim, memory + SIZE / 2 + 4096);
}

/* The allocator unmaps large blocks by itself. */
static void free_and_allocate(void)
{
    uint8_t *block = malloc(SIZE), *other;
    volatile uintptr_t address = (uintptr_t)block;
    struct ibv_mr *region = reg(block, SIZE);
    all_reach(region, block);
    free(block);
    nothing_reaches(region, (uint8_t *)address);
    /* The kernel usually returns the same addresses again. */
    CHECK((other = malloc(SIZE)));
    memset(other, OTHERS, SIZE);
    nothing_reaches(region, (uint8_t *)address);
    untouched(other, SIZE);
    free(other);
    CHECK(!ibv_dereg_mr(region));
}

/* The allocator returns the end of the heap. */
static void shrink_heap(void)
{
    uint8_t *start = sbrk(SIZE);
    CHECK(start != (void *)-1);
    uint8_t *aligned = (uint8_t *)(((uintptr_t)start + 4095) & ~4095ul);
    struct ibv_mr *region = reg(aligned, SIZE - 4096);
    all_reach(region, aligned);
    CHECK(sbrk(-SIZE) != (void *)-1);
    nothing_reaches(region, aligned + SIZE / 2);
    CHECK(sbrk(SIZE) == start);
    memset(aligned, OTHERS, SIZE - 4096);
    nothing_reaches(region, aligned + SIZE / 2);
    untouched(aligned, SIZE - 4096);
    CHECK(!ibv_dereg_mr(region));
}

static void move(void)
{
    /* Another block follows it, so that it cannot grow in place. */
    uint8_t *moved = mremap(memory, SIZE / 2, SIZE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved != memory);
    nothing_reaches(victim, memory);
    map(memory, SIZE / 2, MAP_FIXED_NOREPLACE);
    memset(memory, OTHERS, SIZE / 2);
    nothing_reaches(victim, memory);
    untouched(memory, SIZE / 2);
    all_reach(victim, memory + SIZE / 2);
    CHECK(!munmap(moved, SIZE));
}

/* Pinned pages would no longer belong to the program. */
static void discard(void)
{
    CHECK(!madvise(memory, SIZE / 2, MADV_DONTNEED));
    nothing_reaches(victim, memory);
    all_reach(victim, memory + SIZE / 2);
    CHECK(!madvise(memory + SIZE / 2, SIZE / 2, MADV_FREE));
    all_reach(victim, memory + SIZE / 2);
}

/* By mprotect, which no unmapping hook sees. */
static void protect(void)
{
    CHECK(!mprotect(memory, SIZE, PROT_NONE));
    nothing_reaches(victim, memory);
    CHECK(!mprotect(memory, SIZE, PROT_READ | PROT_WRITE));
    all_reach(victim, memory);
}

static void local_access(void)
{
    struct ibv_sge gone = { (uintptr_t)memory, 3000, victim->lkey }, there = { (uintptr_t)local, 3000, mr->lkey };
    struct ibv_send_wr send = { .wr_id = 1, .sg_list = &gone, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
    struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = &there, .num_sge = 1 }, *bad_receive;
    CHECK(!munmap(memory, SIZE));

    struct pair it = connect_pair();
    CHECK(!ibv_post_recv(it.to, &receive, &bad_receive) && !ibv_post_send(it.from, &send, &bad_send));
    struct ibv_wc wc = pair_take(cq);
    CHECK(wc.wr_id == 1 && wc.status == IBV_WC_LOC_PROT_ERR);
    close_pair(it);

    it = connect_pair();
    send.sg_list = &there;
    receive.sg_list = &gone;
    CHECK(!ibv_post_recv(it.to, &receive, &bad_receive) && !ibv_post_send(it.from, &send, &bad_send));
    for (int i = 0; i < 2; i++) {
        wc = pair_take(cq);
        CHECK(wc.status == (wc.wr_id == 1 ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR));
    }
    close_pair(it);
}

static volatile sig_atomic_t handled;

static void handler(int signal, siginfo_t *about, void *context)
{
    (void)context;
    CHECK(signal == SIGSEGV && about->si_addr == memory);
    handled++;
    CHECK(!mprotect(memory, SIZE, PROT_READ | PROT_WRITE));
}

/* An earlier handler of the program is called for the program's own faults. */
static void chained(void)
{
    CHECK(!mprotect(memory, SIZE, PROT_NONE));
    nothing_reaches(victim, memory);
    CHECK(!handled);
    *(volatile uint8_t *)memory = 1;
    CHECK(handled == 1);
}

/* Without one, such a fault ends the program. */
static void unhandled(void)
{
    pid_t child = fork();
    int status;
    if (!child)
        *(volatile uint8_t *)8 = 1;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    if (!(child = fork())) {
        raise(SIGSEGV);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    { "unmap", unmap },
    { "unmap_and_map", unmap_and_map },
    { "map_over", map_over },
    { "unmap_part", unmap_part },
    { "free_and_allocate", free_and_allocate },
    { "shrink_heap", shrink_heap },
    { "move", move },
    { "discard", discard },
    { "protect", protect },
    { "local_access", local_access },
    { "chained", chained },
    { "unhandled", unhandled },
};

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    void (*run)(void) = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(argv[1], "--list"))
            puts(cases[i].name);
        else if (!strcmp(cases[i].name, argv[1]))
            run = cases[i].run;
    }
    if (!strcmp(argv[1], "--list"))
        return 0;
    CHECK(run);
    struct sigaction before = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    if (run == chained)
        CHECK(!sigaction(SIGSEGV, &before, NULL));
    device = pair_open();
    CHECK(cq = ibv_create_cq(device.context, 64, NULL, NULL, 0));
    /* Followed by a page of another mapping. */
    memory = map(NULL, SIZE + 4096, 0);
    local = map(NULL, 8192, 0);
    memset(local, OURS, 8192);
    mr = reg(local, 8192);
    victim = reg(memory, SIZE);
    all_reach(victim, memory);
    run();
    all_reach(mr, local + 4096);
    CHECK(!ibv_dereg_mr(victim) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(device.pd) && !ibv_close_device(device.context));
    return 0;
}

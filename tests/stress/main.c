/*
 * usage: stress [-s SEED] [-t SECONDS] [-l LANES] [-p 1|2] [-k rings|sockets|mixed]
 *
 * Each lane is two threads, a sender and a receiver, in one process or in two. They go from life to life until the time is
 * over: objects are created, data is moved and checked in several rounds, between which the queue pairs are reset and connected
 * again, and the objects are destroyed. What a life does is decided by the seed, its lane and its number; only how threads
 * and packets interleave differs from run to run. FERROCE_FAULTS makes the network a bad one.
 *
 * -k chooses the link, which is otherwise that of FERROCE_LOCAL. With "mixed", each process has a device with rings and one
 * without: a third of the lanes uses rings, a third sockets, and a third sockets at the device that has rings.
 *
 * At the end it prints what was done. Status 0: all as it has to be; 1: something was not, and is said; 2: bad arguments. The
 * first wrong byte or completion ends the program.
 */
#include "stress.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LANES = 64, GRACE = 60 };

struct counts *counts;
uint64_t run_seed = 1;
static double deadline;

static const char *const services[SERVICES] = { "RC", "RC with SRQ", "UC", "UD", "XRC" };
static const char *const kinds[KINDS] = { "SEND", "SEND_IMM", "WRITE", "WRITE_IMM", "READ", "FETCH_ADD", "CMP_SWAP" };

void fail(struct half *h, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    fprintf(stderr, "stress: seed %lu, lane %d, %s, life %#lx (%s), round %d%s: %s\n", (unsigned long)run_seed, h->lane,
            h->sender ? "sender" : "receiver", (unsigned long)(h->life ? h->life->seed : 0),
            h->life ? services[h->life->service] : "none", h->round,
            h->life && h->life->abrupt[h->round] ? ", abrupt" : "", text);
    /* Both processes are in one group. */
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    _exit(1);
}

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* The halves that this process runs, for `stuck`. */
static struct half *running[2 * LANES];

/* Says what each half waits for. Everything else has stopped, so what it reads does not change. */
static void stuck(int signal)
{
    (void)signal;
    static const char text[] = "stress: a lane does not come to its end\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(1);
    for (int i = 0; i < 2 * LANES; i++) {
        struct half *h = running[i];
        if (!h || !h->life)
            continue;
        dprintf(2, "stress: lane %d, %s, life %#lx (%s%s%s), round %d%s: waits for %s, posted %d and done %d of %d, queue pair %#x to %#x\n",
                h->lane, h->sender ? "sender" : "receiver", (unsigned long)h->life->seed, services[h->life->service],
                h->life->events ? ", events" : "", h->life->late ? ", late" : "", h->round,
                h->life->abrupt[h->round] ? ", abrupt" : "", h->waits ? h->waits : "nothing", h->posted, h->done, h->life->count,
                h->me.qpn, h->you.qpn);
    }
    abort();
}

static void *run_half(void *of)
{
    struct half *h = of;
    struct life life;
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
    };
    MUST(h, (h->memory = malloc(SIZE)) && (h->xrcd = ibv_open_xrcd(h->device.context, &init)));
    uint64_t seeds = run_seed * 1000 + h->lane;
    /* Lanes start with different services, so that all are used after a few lives. */
    for (int number = h->lane;; number++) {
        /* The sender decides when to stop. */
        char mine = now() < deadline ? 'g' : 'q', yours;
        exchange(h, &mine, &yours, 1);
        if ((h->sender ? mine : yours) == 'q')
            break;
        plan(&life, random_next(&seeds), number % SERVICES);
        h->life = &life;
        run_life(h);
        h->life = NULL;
    }
    MUST(h, !ibv_close_xrcd(h->xrcd));
    free(h->memory);
    return NULL;
}

static struct pair_device open_with(const char *local)
{
    if (local)
        CHECK(!setenv("FERROCE_LOCAL", local, 1));
    return pair_open();
}

/* Runs the senders, the receivers, or both. */
static void run(int lanes, int sockets[LANES][2], const char *link, bool senders, bool receivers)
{
    struct half halves[LANES][2];
    pthread_t threads[LANES][2];
    bool mixed = link && !strcmp(link, "mixed"), rings = link && (mixed || !strcmp(link, "rings"));
    struct pair_device devices[2] = { open_with(rings ? "memory" : link) };
    devices[1] = mixed ? open_with("sockets") : devices[0];
    for (int i = 0; i < lanes; i++)
        for (int side = 0; side < 2; side++)
            if (side ? receivers : senders) {
                halves[i][side] = (struct half){
                    .lane = i, .control = sockets[i][side], .sender = !side,
                    .device = devices[i % 3 == 1 || (i % 3 == 2 && side)],
                };
                running[2 * i + side] = &halves[i][side];
                CHECK(!pthread_create(&threads[i][side], NULL, run_half, &halves[i][side]));
            }
    for (int i = 0; i < lanes; i++)
        for (int side = 0; side < 2; side++)
            if (side ? receivers : senders)
                CHECK(!pthread_join(threads[i][side], NULL));
    for (int i = 0; i <= mixed; i++)
        CHECK(!ibv_dealloc_pd(devices[i].pd) && !ibv_close_device(devices[i].context));
}

static void report(int seconds, int lanes, int processes)
{
    long total = 0, resets = 0;
    printf("seed %lu, %d s, %d lanes, %d process%s\n", (unsigned long)run_seed, seconds, lanes, processes,
           processes > 1 ? "es" : "");
    for (int service = 0; service < SERVICES; service++) {
        printf("%-12s %6ld lives, %5ld halves ended abruptly, %6ld RESETs:", services[service],
               (long)counts->lives[service], (long)counts->abrupt[service], (long)counts->resets[service]);
        for (int kind = 0; kind < KINDS; kind++) {
            total += counts->done[service][kind];
            if (counts->done[service][kind])
                printf(" %s %ld", kinds[kind], (long)counts->done[service][kind]);
        }
        resets += counts->resets[service];
        puts("");
    }
    printf("%ld operations, %ld bytes checked, 0 wrong bytes, %ld resets, %ld reconnects, %ld destroys of queue pairs, "
           "%ld unreliable messages lost, %ld other objects created and destroyed\n",
           total, (long)counts->bytes, resets, (long)counts->reconnects, (long)counts->destroyed, (long)counts->lost,
           (long)counts->churned);
}

int main(int argc, char **argv)
{
    int seconds = 10, lanes = 4, processes = 1, option, sockets[LANES][2], status = 0;
    const char *link = NULL;
    while ((option = getopt(argc, argv, "s:t:l:p:k:")) != -1) {
        if (option == 's')
            run_seed = strtoull(optarg, NULL, 0);
        else if (option == 't')
            seconds = atoi(optarg);
        else if (option == 'l')
            lanes = atoi(optarg);
        else if (option == 'p')
            processes = atoi(optarg);
        else if (option == 'k' && (!strcmp(optarg, "rings") || !strcmp(optarg, "sockets") || !strcmp(optarg, "mixed")))
            link = optarg;
        else
            return 2;
    }
    if (optind < argc || seconds < 1 || lanes < 1 || lanes > LANES || processes < 1 || processes > 2) {
        fprintf(stderr, "usage: stress [-s SEED] [-t SECONDS] [-l LANES] [-p 1|2] [-k rings|sockets|mixed]\n");
        return 2;
    }
    setpgid(0, 0);
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(counts != MAP_FAILED);
    for (int i = 0; i < lanes; i++)
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]));
    deadline = now() + seconds;
    pid_t child = processes == 2 ? fork() : 0;
    CHECK(child >= 0);
    signal(SIGALRM, stuck);
    alarm(seconds + GRACE);
    if (processes == 2 && !child) {
        run(lanes, sockets, link, false, true);
        return 0;
    }
    run(lanes, sockets, link, true, processes == 1);
    if (processes == 2)
        CHECK(waitpid(child, &status, 0) == child);
    report(seconds, lanes, processes);
    return status ? 1 : 0;
}

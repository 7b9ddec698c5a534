/*
 * conformance: two sides of libibverbs that check each other.
 *
 *   conformance -a MY_ADDRESS [-p PORT] [-m MTU] [-n ROUNDS] [-c CASE] [-x CASE]            the passive side
 *   conformance -a MY_ADDRESS [-p PORT] [-m MTU] [-n ROUNDS] [-c CASE] [-x CASE] ADDRESS    the active side
 *   conformance -l                                                                         lists the cases
 *
 * MY_ADDRESS says which device and GID; ADDRESS is where the passive side is reached by TCP, on which both tell each other
 * queue pair numbers and keys. Without -c, all cases run, in order, but that of -x. A line for each says ok, or WRONG and what. The exit
 * status is 0 when nothing was wrong.
 *
 * build: cc -std=gnu11 -o conformance *.c -libverbs
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct test *const lists[] = {
    reliable_tests, unreliable_tests, refusal_tests, window_tests, queue_tests,
};

static void run(const struct test *test, struct end end)
{
    int before = failures;
    current = test->name;
    end.test = test;
    meet();
    open_end(&end);
    connect_end(&end);
    meet();
    test->run(&end);
    meet(); /* neither queue pair is destroyed before both sides are done */
    close_end(&end);
    if (failures == before)
        printf("ok %s\n", test->name);
}

int main(int argc, char **argv)
{
    struct end end = { .mtu = 1024, .rounds = 50 };
    const char *mine = NULL, *port = "18515", *only = NULL, *without = "";
    bool list = false, found = false;
    for (int option; (option = getopt(argc, argv, "a:p:m:n:c:x:l")) != -1;) {
        switch (option) {
        case 'a': mine = optarg; break;
        case 'p': port = optarg; break;
        case 'm': end.mtu = atoi(optarg); break;
        case 'n': end.rounds = atoi(optarg); break;
        case 'c': only = optarg; break;
        case 'x': without = optarg; break;
        case 'l': list = true; break;
        default: return 2;
        }
    }
    if (!mine && !list) {
        fprintf(stderr, "usage: conformance -a MY_ADDRESS [-p PORT] [-m MTU] [-n ROUNDS] [-c CASE] [-x CASE] [ADDRESS]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!list) {
        const char *address = optind < argc ? argv[optind] : NULL;
        end.active = address != NULL;
        end.context = open_by_address(mine);
        rendezvous(address, port);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const struct test *test = lists[i]; test->name; test++) {
            if ((only && strcmp(only, test->name)) || !strcmp(without, test->name))
                continue;
            found = true;
            if (list)
                printf("%-24s %s\n", test->name, test->what);
            else
                run(test, end);
        }
    }
    if (!found) {
        fprintf(stderr, "conformance: there is no case %s; -l lists them\n", only);
        return 2;
    }
    if (!list)
        ibv_close_device(end.context);
    return failures != 0;
}

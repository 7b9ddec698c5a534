/* Results are printed as lines that begin with ok or WRONG. */
#include "conformance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *current = "start";
int failures;

void check(bool good, const char *format, ...)
{
    va_list arguments;
    if (good)
        return;
    failures++;
    printf("WRONG %s: ", current);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void give_up(const char *format, ...)
{
    va_list arguments;
    printf("WRONG %s: ", current);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(", and no more can be done\n");
    exit(1);
}

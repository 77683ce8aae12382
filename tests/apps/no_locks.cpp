// Loaded before everything else into a program, this is a file system without locks.
#include <errno.h>

extern "C" int flock(int, int) {
    errno = ENOLCK;
    return -1;
}

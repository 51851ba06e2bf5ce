/* Programs that end in the ways that programs on a GPU do. Constructed for the tests.
 * usage: endings KIND */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void caught(int signal)
{
    static const char words[] = "Fatal Python error: Segmentation fault\n";
    if (write(2, words, sizeof words - 1) < 0) _exit(1);
    struct sigaction standard = { .sa_handler = SIG_DFL };
    sigaction(signal, &standard, NULL);
    raise(signal);
}

__attribute__((noinline)) static int read_through(volatile int *address) { return *address; }

int main(int argc, char **argv)
{
    const char *kind = argc == 2 ? argv[1] : "";
    if (!strcmp(kind, "handler")) {
        /* What a fault handler of an interpreter does: it says so, and lets the signal end the process. */
        struct sigaction own = { .sa_handler = caught };
        sigaction(SIGSEGV, &own, NULL);
        return read_through((volatile int *)0x30);
    }
    if (!strcmp(kind, "free-twice")) {
        /* The C library notices, in its own code: the caller's is what counts. */
        char *volatile piece = malloc(2000); /* or the compiler leaves it out */
        char *volatile other = malloc(2000);
        free(piece);
        free(piece);
        return other != NULL;
    }
    if (!strcmp(kind, "wild")) return read_through((volatile int *)((unsigned long)rand() + ((unsigned long)getpid() << 33)));
    if (!strcmp(kind, "jump")) { void (*nowhere)(void) = (void (*)(void))0x40; nowhere(); }
    if (!strcmp(kind, "sparse")) {
        /* A hundred gigabytes mapped, of which sixteen pages were ever there. */
        char *wide = mmap(NULL, 100UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (wide == MAP_FAILED) return 1;
        for (unsigned long i = 0; i < 16; i++) wide[i * (6UL << 30)] = 1;
        return read_through((volatile int *)0x30);
    }
    if (!strcmp(kind, "masked")) { fputs("NVML_SUCCESS == r INTERNAL ASSERT FAILED at x.cpp:995\n", stderr); return 1; }
    if (!strcmp(kind, "refused")) { fputs("CUDA out of memory. Tried to allocate 1.00 GiB\n", stderr); return 1; }
    if (!strcmp(kind, "illegal-access")) { fputs("CUDA error: an illegal memory access was encountered\n", stderr); return 1; }
    if (!strcmp(kind, "no-kernel")) { fputs("no kernel image is available for execution on the device\n", stderr); return 1; }
    if (!strcmp(kind, "error-but-zero")) { fputs("CUDA error: an illegal memory access was encountered\n", stderr); return 0; }
    if (!strcmp(kind, "bus")) raise(SIGBUS);
    if (!strcmp(kind, "kill")) raise(SIGKILL);
    if (!strcmp(kind, "terminated")) raise(SIGTERM);
    if (!strcmp(kind, "nan")) puts("logits: nan nan\nmax_abs_err=nan");
    if (!strcmp(kind, "wrong")) puts("max_abs_err=17.31");
    if (!strcmp(kind, "good")) puts("max_abs_err=0.00195");
    if (!strcmp(kind, "silent")) for (;;) pause();
    if (!strcmp(kind, "chatty")) for (;;) { fputs("still running\n", stderr); usleep(100000); }
    /* Never all of a machine that limits nothing. */
    if (!strcmp(kind, "memory")) for (int i = 0; i < 256; i++) {
        char *piece = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED) return 1;
        memset(piece, 1, 1 << 20);
    }
    return 0;
}

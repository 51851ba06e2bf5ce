/* A closed library without symbols that compiles with several threads, one of which may read through a bad pointer.
 * Constructed for the tests: built with -s, so that a debugger knows no names. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define WORKERS_MAX 16

struct work {
    const uint32_t *table; /* no page of the process, for the worker that faults */
    int allocates;
    int stores; /* whether the fault is that of the other function */
};

/* Two instructions that fault, each at the same offset in every process. */
__attribute__((noinline)) static uint32_t look_up(const uint32_t *table, unsigned at) { return table[at] + 7; }
__attribute__((noinline)) static void store(volatile uint32_t *table, unsigned at) { table[at] = 7; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *tune(void *argument)
{
    const struct work *work = argument;
    volatile uint32_t sum = 0;
    for (int round = 0; round < 40; round++) {
        if (work->allocates) {
            char *piece = malloc((size_t)(round + 1) * 24);
            if (piece) { piece[0] = (char)round; sum += (unsigned char)piece[0]; }
            free(piece);
        } else {
            pthread_mutex_lock(&lock);
            sum++;
            pthread_mutex_unlock(&lock);
        }
        if (work->table && round == 20 && work->stores) store((volatile uint32_t *)work->table, 10);
        if (work->table && round == 20) sum += look_up(work->table, 10);
        usleep(1000);
    }
    return NULL;
}

__attribute__((visibility("default"))) int compile(int workers, int faults, int stores)
{
    pthread_t threads[WORKERS_MAX];
    struct work works[WORKERS_MAX];
    if (workers < 1 || workers > WORKERS_MAX) return -1;
    for (int i = 0; i < workers; i++) {
        works[i] = (struct work){ faults && i == workers / 2 ? (const uint32_t *)0x10 : NULL, i % 2, stores };
        if (pthread_create(&threads[i], NULL, tune, &works[i])) return -1;
    }
    for (int i = 0; i < workers; i++) pthread_join(threads[i], NULL);
    return 0;
}

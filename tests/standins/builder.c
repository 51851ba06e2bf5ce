/* A builder of engines in the manner of the one in TensorRT-Edge-LLM issue 216: it says how far it came, and dies of a
 * SIGSEGV in a thread of its compiler for one combination of flags. Constructed for the tests; none of the real one.
 *
 * STANDIN_CURE=WORD    a word in __LUNOWUD that lets the bad combination pass
 * STANDIN_ELSEWHERE=1  crash in this program and not in the library
 * STANDIN_OFFSET=1     crash in another function of the library
 * STANDIN_COUNT=FILE   pass at every fourth start, which are counted in FILE
 * STANDIN_NO_ENGINE=1  exit 0 without an engine
 * STANDIN_CLEAN=1      a clean error in place of the crash
 */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *level, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "2026-09-17 10:00:00,000 %s builder: ", level);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

static int is_set(const char *name) { const char *value = getenv(name); return value && *value; }

static int write_engine(const char *dir, const char *name, int bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (is_set("STANDIN_NO_ENGINE")) return 0;
    mkdir(dir, 0777);
    FILE *engine = fopen(path, "w");
    if (!engine) { perror(path); return 1; }
    for (int i = 0; i < bytes; i++) fputc('e', engine);
    say("INFO", "Engine written to %s (%d bytes)", path, bytes);
    return fclose(engine);
}

/* Counts this start; whether it is a fourth one. */
static int is_fourth(const char *path)
{
    struct stat file;
    FILE *count = fopen(path, "a");
    if (!count) { perror(path); exit(1); }
    fputc('x', count);
    fclose(count);
    return !stat(path, &file) && file.st_size % 4 == 0;
}

static int compile(int workers, int faults)
{
    char path[PATH_MAX] = "";
    if (readlink("/proc/self/exe", path, sizeof path - 20) < 0) return -1;
    strcat(dirname(path), "/libcompiler.so");
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { fprintf(stderr, "OSError: %s\n", dlerror()); return -1; }
    return ((int (*)(int, int, int))dlsym(library, "compile"))(workers, faults, is_set("STANDIN_OFFSET"));
}

int main(int argc, char **argv)
{
    const char *model = option(argc, argv, "--model-dir", NULL), *out = option(argc, argv, "--engine-dir", NULL);
    const char *dense = option(argc, argv, "--dense", "auto"), *part = option(argc, argv, "--components", "llm");
    const char *external = option(argc, argv, "--externalize-weights", NULL), *flags = getenv("__LUNOWUD");
    if (!model || !out) { fprintf(stderr, "usage: builder --model-dir DIR --engine-dir DIR …\n"); return 2; }
    if (access(model, F_OK)) { fprintf(stderr, "FileNotFoundError: no model in '%s'\n", model); return 1; }
    say("INFO", "Loaded plugin library build/libplugin.so");
    say("INFO", "Building component %s", part);
    int is_visual = !strcmp(part, "visual");
    if (!is_visual) say("INFO", "model_type=qwen3_vl_text layers=28 hidden=2048 experts=0 quant=nvfp4");
    int bindings = is_visual ? 104 : external ? 0 : 114;
    say("INFO", "Recorded %d runtime checkpoint binding(s) (source layouts: fp16=%d; destination dtypes: F16=%d)", bindings,
        bindings, bindings);
    say("INFO", "Building serialized engine (this may take several minutes)...");
    say("INFO", "[TRT] Compiler backend is used during engine build.");
    int faults = !is_visual && strcmp(dense, "fp16");
    const char *cure = getenv("STANDIN_CURE"), *count = getenv("STANDIN_COUNT");
    if (cure && *cure && flags && strstr(flags, cure)) faults = 0;
    if (count && *count && is_fourth(count)) faults = 0;
    if (faults && is_set("STANDIN_CLEAN")) {
        say("ERROR", "[TRT] Error Code 1: Internal Error (Not implemented for node type PLUGIN_V3)");
        return 1;
    }
    if (faults && is_set("STANDIN_ELSEWHERE")) *(volatile int *)0x28 = 1;
    int workers = flags && strstr(flags, "num_threads=1") ? 1 : 7;
    if (compile(workers, faults)) return 1;
    if (write_engine(out, is_visual ? "visual.engine" : "llm.engine", is_visual ? 416 : 346)) return 1;
    say("INFO", "Build completed in %.1f s (checkpoint identity 0.4 s)", is_visual ? 70.8 : 212.4);
    return 0;
}

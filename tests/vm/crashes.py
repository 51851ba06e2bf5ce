"""Crashes where a distribution looks after them: cores go to systemd-coredump, and Yama says who may trace.

A program that is known to the byte dies of SIGSEGV, as root's trial and as a user's, under each of both and with each
observer. Signal, address, file and offset must be told, and by which way; or why nobody could see them.
"""
import itertools, json, re, time

from board import Desk, put, says
from scenario import Row
from vm import Failure, run

# The address that it writes to.
ADDRESS = 0xDEAD0

PROGRAM = f"""
#include <stdint.h>
__attribute__((noinline)) static void fall(volatile int *place) {{ *place = 1936; }}
int main(void) {{ fall((int *)(uintptr_t){ADDRESS:#x}); return 0; }}
"""

MATRIX = """
[matrix]
name = "crash"
about = "a program that dies of SIGSEGV"
trials = 1
seed = 1936

[workload]
kind = "command"
argv = ["/usr/local/bin/fall"]
settle = "0s"

[baseline]
observer = "core"
limits = "core=unlimited"

[axes]
observer = ["none"]
"""

# Who runs it: what stands before the command, and the user that ssh logs in as.
WHO = {"root": ("root", ""), "lab": ("lab", ""), "lab by sudo": ("lab", "sudo -n ")}

SYSTEMD = "|/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h %d"
PLAIN = "/var/cores/core.%p"

# Patterns and scopes of Yama: 3 cannot be taken back before a reboot, and comes last.
STATES = [(SYSTEMD, 0), (SYSTEMD, 1), (SYSTEMD, 2), (PLAIN, 2), (PLAIN, 3), (SYSTEMD, 3)]


def build(desk):
    """The program, and the offset in its file of the instruction at which it dies."""
    source, program = desk.path / "fall.c", desk.path / "fall"
    put(source, PROGRAM)
    run("cc", "-O1", "-static", "-no-pie", "-o", program, source)
    symbol = re.search(r"^([0-9a-f]+) . fall$", run("nm", program), re.MULTILINE)
    address = int(symbol[1], 16)
    for load in re.finditer(r"LOAD +0x(\w+) 0x(\w+) 0x\w+ 0x(\w+)", run("readelf", "-lW", program)):
        offset, start, length = (int(number, 16) for number in load.groups())
        if start <= address < start + length:
            return program, address - start + offset
    raise Failure(f"{program} has no segment with {address:#x}")


def results(board, user, place):
    """Results of a run, by the label of their cell."""
    said = board.ssh(f"cat {place}/crash-001/plan.json {place}/crash-001/trials/*/result.json", user)
    plan, *found = documents(said)
    labels = {cell["id"]: cell["label"] for cell in plan["cells"]}
    return {labels[re.match(r"c-[0-9a-f]+", result["trial"])[0]]: result for result in found}


def documents(text):
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = end + len(text[end:]) - len(text[end:].lstrip())


def seen(result, offset):
    """What is wrong with the place of a crash that somebody saw whole."""
    crash = result["outcome"].get("crash")
    if result["judgement"]["verdict"] != "crash" or not crash:
        return [f"it is {result['judgement']} and no crash that was seen"]
    frame = crash["thread"]["frames"][0]
    found = (crash["signal"], crash["address"], frame["module"], frame["offset"])
    expected = (11, f"{ADDRESS:#x}", "fall", f"{offset:#x}")
    return [] if found == expected else [f"it is told as {found} and not {expected}"]


def unseen(result):
    """What is wrong with a crash of which only the signal is known, since its core is packed: where that is must be told,
    and what unpacks it."""
    notes = result["outcome"].get("notes", {})
    words = f"{notes.get('core')}; {notes.get('post-mortem')}"
    whys = ["by systemd-coredump", r"coredumpctl info COREDUMP_PID=\d+"]
    wrong = [f"its notes do not say {why!r}: {words}" for why in whys if not re.search(why, words)]
    if result["judgement"]["verdict"] != "crash" or "SIGSEGV" not in result["judgement"]["detail"]:
        wrong.append(f"it is {result['judgement']}")
    return wrong


def forbidden(result, scope):
    """What is wrong with a trial that nobody may trace: void, and by what."""
    judgement = result["judgement"]
    is_told = judgement["verdict"] == "void" and f"kernel.yama.ptrace_scope is {scope}" in judgement["detail"]
    return [] if is_told else [f"it is {judgement}"]


def observed(board, state, who, offset):
    """The rows of one run: both observers under one pattern, one scope, one user."""
    (pattern, scope), (user, before) = state, WHO[who]
    place = f"/var/tmp/{who.replace(' ', '-')}-{time.time():.0f}"
    allow = "--allow-root-workload" if who == "root" else ""
    begun = time.monotonic()
    board.ssh(f"{before}jetfault run /usr/local/share/crash.toml --results {place} {allow} 2>&1", user, codes=(1, 3))
    found = results(board, user, place)
    handler = "systemd-coredump" if pattern == SYSTEMD else "a file"
    # Yama's 2 leaves tracing to root's harness, 3 to nobody.
    may_trace = scope < 2 or (scope == 2 and who != "lab")
    wrong = {"observer=core": seen(found["baseline"], offset) if may_trace else forbidden(found["baseline"], scope)}
    if pattern == PLAIN:
        wrong["observer=none"] = seen(found["observer=none"], offset)
    else:
        wrong["observer=none"] = unseen(found["observer=none"])
    return [
        Row(f"{who}, {observer}", f"{handler}, scope {scope}", told(found[cell]), "", "", time.monotonic() - begun, "; ".join(wrong[observer]))
        for observer, cell in [("observer=core", "baseline"), ("observer=none", "observer=none")]
    ]


def told(result):
    return f"{result['judgement']['verdict']}: {result['judgement'].get('detail', '')}"[:90]


def crashes(bench):
    with Desk(bench.harness, "crash-desk") as desk:
        board = desk.add(bench, "thor-1", "root")
        program, offset = build(desk)
        put(desk.path / "crash.toml", MATRIX)
        desk.start()
        board.send(desk.harness, "/usr/local/bin/jetfault")
        board.send(program, "/usr/local/bin/fall")
        board.send(desk.path / "crash.toml", "/usr/local/share/crash.toml")
        board.ssh("mkdir -p /var/cores && chmod 1777 /var/cores")
        rows = []
        for (pattern, scope), who in itertools.product(STATES, WHO):
            board.ssh(f"echo '{pattern}' >/proc/sys/kernel/core_pattern; echo {scope} >/proc/sys/kernel/yama/ptrace_scope")
            rows += observed(board, (pattern, scope), who, offset)
        says(board.ssh("coredumpctl --no-pager list fall"), "SIGSEGV")
        return rows

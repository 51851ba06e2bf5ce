"""Campaigns of cold trials in the machine with systemd: the harness arms its own unit, reboots the machine for each trial,
survives the reboots that it did not ask for, and is gone at the end.

What was injected stands in injected.jsonl, written by the injector before each deed.
"""
import random, subprocess, time

from scenario import ASYNC, SYNC, Row
from systemd import PATIENCE, scenario_of
from vm import ROOT, Failure, run

RESULTS = "/var/lib/jetfault"

MATRIX = """
[matrix]
name = "campaign"
about = "cold trials in a virtual machine"
trials = {cold}
seed = 1936

[workload]
kind = "linear4bit"
backend = "auto"
settle = "0s"

[shapes]
A = [64, 128]
B = [128, 64]
C = [64, 256]

[baseline]
sequence = "ABC"
start = "cold"
warmup = "none"
breadcrumbs = "{breadcrumbs}"
"""

WARMED = """
[controls.warmed]
cell = {{ warmup = "256x256" }}
verdict = "pass"
shows = "a small first layer keeps the machine up"
trials = {warmed}

[[inject]]
fault = "reset"
at = "C.forward"
rate = 0.78
if = {{ start = "cold", warmup = "none" }}
"""

POISON = """
[axes]
batch = [2]

[[inject]]
fault = "reset"
at = "start"
if = { batch = 2 }
"""

# What this machine has not: a GPU, the memory of the full size, power modes; and the hour that all trials take.
SMALLER = {
    'name = "cold-start"': 'name = "campaign"', "trials = 12": "trials = 1", 'backend = "cuda"': 'backend = "auto"',
    'settle = "10s"': 'settle = "0s"', "[4096, 32768]": "[64, 128]", "[4096, 128256]": "[128, 64]",
    "[3584, 152064]": "[64, 256]", 'power_mode = "MAXN_SUPER"': "",
}

# Cuts come more often than a person would stand.
MANY_CUTS = "\n[safety]\nmax_boots = 1000\nmax_unexpected_per_hour = 1000\n"


def started(results):
    return [event for _, event in results.events("started")]


def boots_wrong(results, cut=frozenset()):
    """What is wrong with how the boots of a campaign came about: each was asked for, or ended by an injected fault, or is
    one of those that a person `cut`."""
    boots = list(dict.fromkeys(record["boot"] for record in results.records))
    asked = {event["boot"] for _, event in results.events("reboot_asked")}
    injected = {line["boot"] for line in results.injected}
    wrong = [f"nobody ended boot {boot}" for boot in boots[:-1] if boot not in asked | injected | cut]
    for event in started(results):
        conditions = event.get("conditions", {})
        if event["launcher"] != "service":
            wrong.append(f"{event['trial']} was started by the {event['launcher']}")
        if conditions.get("prior_end") == "fault":
            wrong.append(f"{event['trial']} was started in a boot that began with a fault")
    if results.events("quarantined"):
        wrong.append("a cell was quarantined")
    if not results.events("closed"):
        wrong.append("the run is not over")
    return wrong


def overhead_s(scenario, results):
    """The longest time in a boot from the start of the unit to the start of its first trial, in seconds."""
    at, boot = {}, None
    for _, line in scenario.machine.said:
        if line.startswith("=== boot "):
            boot = line.split()[2]
        elif line.startswith("=== unit ") and line.split()[2:]:
            at[boot] = int(line.split()[2]) / 1e6
    first = {}
    for record, _ in results.events("started"):
        first.setdefault(record["boot"], record["uptime_ms"] / 1e3)
    took = [first[boot] - at[boot] for boot in first if at.get(boot)]
    return max(took, default=0.0)


def verdicts(results, breadcrumbs, cut=frozenset()):
    """The verdicts of each cell, and what is wrong with them: a trial rebooted exactly where injected.jsonl says so. The
    trial that ran when a person `cut` the power of its boot lost it."""
    truth = {line["trial"] for line in results.injected}
    boots = {event["trial"]: record["boot"] for record, event in results.events("started")}
    # Of a stage that nobody waited for the record may be missing, and the one before it is named.
    stages = ["C.forward", *(["C.free_host"] if breadcrumbs == ASYNC else [])]
    counts, wrong = {}, []
    for trial, (record, judgement) in results.judged().items():
        label, _ = results.place(trial)
        stage = judgement.get("stage") if judgement["verdict"] != "pass" else None
        found = " ".join(filter(None, [judgement["verdict"], judgement.get("cause"), stage]))
        # What a person did is in no count: such a trial is made up for.
        if judgement["verdict"] != "operator":
            counts.setdefault(label, []).append(judgement["verdict"])
        expected, met = ["pass"], "met no fault"
        lost_power = boots[trial] in cut and record["boot"] != boots[trial]
        if trial in truth:
            expected, met = [f"reboot software-reset {stage}" for stage in stages], "reset the machine"
            if lost_power:
                # Both within a second: what is left of the boot does not tell which came first, and the desk tells of the cut.
                expected += [f"operator {stage}" for stage in stages]
        elif lost_power:
            # The desk tells that a person did it, unless the board could not be asked in which boot it was.
            found, met = " ".join(found.split()[:2]), "lost its power"
            expected = [" ".join(filter(None, ["operator", stage])), "reboot power", "reboot undetermined"]
        if found not in expected:
            wrong.append(f"{trial} is {found}, and {met}")
    return counts, wrong


def resets(bench, name, cold, warmed, breadcrumbs=SYNC):
    """So many cold trials that a reset may end, against so many that a warm-up keeps up."""
    matrix = MATRIX.format(cold=cold, breadcrumbs=breadcrumbs) + WARMED.format(warmed=warmed)
    scenario = scenario_of(bench, name, "campaign", {"campaign": matrix})
    begun = time.monotonic()
    scenario.carry_through(patience=PATIENCE)
    seconds = time.monotonic() - begun
    results = scenario.results("campaign")
    truth = {line["trial"] for line in results.injected}
    counts, wrong = verdicts(results, breadcrumbs)
    wrong += boots_wrong(results)
    by_count = sorted(len(verdicts) for verdicts in counts.values())
    if by_count != sorted([cold, warmed]):
        wrong.append(f"the cells have {by_count} trials")
    if scenario.codes != [0]:
        wrong.append("the unit is still there")
    asked = len(results.events("reboot_asked"))
    verdict = f"{len(truth)} of {cold} reboot, {cold + warmed - len(truth)} pass"
    took = f"{asked} planned, {overhead_s(scenario, results):.1f} s to a trial"
    return [Row(f"campaign ({breadcrumbs})", f"{cold} cold, {warmed} warmed", verdict, "", took, seconds, "; ".join(wrong))]


def shipped(bench):
    """The matrix that is shipped for cold starts, made smaller: each cell in the start state that it asks for."""
    matrix = (ROOT / "matrices/cold-start.toml").read_text()
    for text, smaller in SMALLER.items():
        if matrix.count(text) != 1:
            raise Failure(f"matrices/cold-start.toml has {text!r} {matrix.count(text)} times")
        matrix = matrix.replace(text, smaller)
    scenario = scenario_of(bench, "cold-start", "campaign", {"campaign": matrix})
    scenario.carry_through(patience=PATIENCE)
    results = scenario.results("campaign")
    wrong = boots_wrong(results)
    if scenario.codes != [0]:
        wrong.append("the unit is still there")
    counted = {event["trial"] for event in started(results) if event["role"] == "sample"}
    verdicts = [judgement["verdict"] for trial, (_, judgement) in results.judged().items() if trial in counted]
    if verdicts != ["pass"] * 3:
        wrong.append(f"the verdicts are {verdicts}")
    found = f"{'/'.join(verdicts)}, {len(started(results)) - len(counted)} warming"
    return [Row("matrices/cold-start.toml", "2 cold, 1 warm", found, "", "", 0, "; ".join(wrong))]


def poison(bench):
    """A cell that resets the machine before it ever runs is given up after three starts, and the rest is carried on."""
    matrix = MATRIX.format(cold=4, breadcrumbs=SYNC) + POISON
    scenario = scenario_of(bench, "poison", "campaign", {"campaign": matrix})
    scenario.carry_through(patience=PATIENCE)
    results = scenario.results("campaign")
    starts = [event["trial"] for event in started(results) if results.place(event["trial"])[0] == "batch=2"]
    passed = [trial for trial, (_, judgement) in results.judged().items() if judgement["verdict"] == "pass"]
    wrong = []
    if len(starts) != 3 or len(results.injected) != 3 or len(results.events("quarantined")) != 1:
        wrong.append(f"{len(starts)} starts, {len(results.injected)} resets, {len(results.events('quarantined'))} quarantined")
    if len(passed) != 4 or not results.events("closed") or scenario.codes != [0]:
        wrong.append("the other cell was not carried through, or the unit is still there")
    return [Row("poison cell", "quarantined after 3", f"{len(starts)} starts", "", "", 0, "; ".join(wrong))]


# -- how a person gets out -----------------------------------------------------------------------------------------------

def ways_out(bench):
    """The kernel's word and a STOP file each keep the machine still; without them the campaign goes on."""
    matrix = MATRIX.format(cold=3, breadcrumbs=SYNC) + MANY_CUTS
    scenario = scenario_of(bench, "ways-out", "campaign", {"campaign": matrix})
    machine, words = scenario.machine, scenario.machine.words
    rows = []
    with machine:
        machine.start()
        # The second boot is one that the campaign asked for.
        for _ in range(2):
            machine.wait_for("^=== boot", PATIENCE)
        machine.cut()
        machine.words = f"{words} jetfault.off"
        rows.append(still(scenario, "kernel word jetfault.off", "=== rests no 0"))
        machine.words = words
        on_disk(machine.disk, "write /dev/null var/lib/jetfault/STOP")
        rows.append(still(scenario, "file STOP", "=== rests yes 4"))
        on_disk(machine.disk, "rm var/lib/jetfault/STOP")
    scenario.carry_through(patience=PATIENCE)
    results = scenario.results("campaign")
    verdicts = [judgement["verdict"] for _, judgement in results.judged().values()]
    wrong = "" if verdicts.count("pass") == 3 and scenario.codes == [0] else f"{verdicts}, {scenario.codes}"
    return [*rows, Row("and on again", "3 cold passes", "/".join(verdicts), "", "", 0, wrong)]


def still(scenario, kind, expected):
    """Boots the machine, which must say how its unit came out and must not have started a trial."""
    before = len(started(scenario.results("campaign")))
    scenario.machine.start()
    said = scenario.machine.wait_for("^=== rests", PATIENCE)
    scenario.machine.cut()
    after = len(started(scenario.results("campaign")))
    wrong = [f"it said {said!r}"] if said != expected else []
    if after != before:
        wrong.append(f"{after - before} trials were started")
    return Row(kind, "nothing starts", said.removeprefix("=== "), "", "", 0, "; ".join(wrong))


def on_disk(disk, request):
    """What a person does to the disk of a machine that is off."""
    # 1 says that something was mended, which is the replay of the journal.
    if subprocess.run(["e2fsck", "-fp", disk], capture_output=True).returncode not in (0, 1):
        raise Failure(f"{disk} is damaged beyond a replay of its journal")
    run("debugfs", "-w", "-R", request, disk)


def cuts(bench, count, seed=1936):
    """Cuts the power at a random moment of each of so many boots of a campaign; then it is carried to its end."""
    matrix = MATRIX.format(cold=count, breadcrumbs=ASYNC) + MANY_CUTS
    scenario = scenario_of(bench, "campaign-cuts", "campaign", {"campaign": matrix})
    draw, machine = random.Random(seed), scenario.machine
    with machine:
        for number in range(count):
            machine.start()
            machine.wait_for("^=== began" if number == 0 else "^=== boot", PATIENCE)
            if not machine.listen(draw.uniform(0, 12)):
                raise Failure("the campaign ended before its last cut")
            machine.cut()
            after = scenario.results("campaign")
            if number:
                after.check_after(before)
            before = after
    scenario.carry_through(patience=PATIENCE)
    results = scenario.results("campaign")
    results.check_after(before)
    causes = [judgement.get("cause", judgement["verdict"]) for _, judgement in results.judged().values()]
    strange = [cause for cause in causes if cause not in ("pass", "power", "undetermined")]
    wrong = [f"wrong causes: {strange}"] if strange else []
    if not results.events("closed") or scenario.codes != [0]:
        wrong.append("it was not carried to its end, or the unit is still there")
    named = " ".join(f"{causes.count(cause)} {cause}" for cause in sorted(set(causes)))
    return [Row(f"campaign, {count} cuts", "0 lost, ends by itself", named, "", "", 0, "; ".join(wrong))]

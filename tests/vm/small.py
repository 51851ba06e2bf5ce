"""The small machine: a real init, a real system journal, a drive, a watchdog card, and boots of a few seconds.

Each scenario is a fresh disk with a matrix and a service on it. The service is started at every boot; the host only
looks on, cuts the power, or switches it on again.
"""
import dataclasses, random, re, time

import vm
from results import TOLD, Results
from vm import CACHE, PATIENCE, Failure, Machine, make_disk, read_disk

HEAD = """
[matrix]
name = "{name}"
about = "faults of a virtual machine"
trials = {trials}
seed = 1936

[safety]
max_boots = 1000
max_unexpected_per_hour = 1000

"""

LINEAR4BIT = """
[workload]
kind = "linear4bit"
backend = "cpu"
settle = "0s"

[shapes]
A = [64, 128]
B = [128, 64]

[baseline]
sequence = "AB"
start = "{start}"
breadcrumbs = "{breadcrumbs}"
"""

# What a boot service does: begin the run, or go on with it.
SERVICE = """#!/bin/sh
if [ -e /disk/results/{name}-001/journal.jsonl ]; then jetfault resume --results /disk/results
else jetfault run /disk/matrix.toml --results /disk/results {allow}
fi
"""

# A stage may be the last one on the disk although later ones were reached, unless each was waited for.
SYNC, ASYNC = "sync", "async"


@dataclasses.dataclass
class Row:
    """One line of the table."""
    kind: str
    expected: str
    verdict: str
    cause: str
    stage: str
    seconds: float
    wrong: str = ""

    HEADER = ("kind", "expected", "verdict", "cause", "stage", "seconds")

    def cells(self):
        return [self.kind, self.expected, self.verdict, self.cause or "-", self.stage or "-", f"{self.seconds:.1f}"]


class Scenario:
    """A disk, a machine that boots from it, and what came of it."""

    def __init__(self, bench, name, files, megabytes=192, memory=vm.MEMORY_MB):
        self.name = name
        self.disk = CACHE / f"{name}.img"
        make_disk(self.disk, files, megabytes)
        self.machine = Machine(bench.kernel, bench.image, self.disk, memory)
        self.codes = []

    def carry_through(self, patience=PATIENCE):
        """Lets the machine boot until its service is through; it is switched on again if it switched itself off."""
        with self.machine as machine:
            while not self.codes:
                machine.start()
                until = time.monotonic() + patience
                while (line := machine.next_line(until)) is not None:
                    if line.startswith("=== boot"):
                        until = time.monotonic() + patience
                    if ended := re.match(r"=== end (\d+)", line):
                        self.codes.append(int(ended[1]))
        return self.results()

    def results(self):
        """What is on the disk, checked for what must always hold."""
        results = Results(read_disk(self.disk, "/results", CACHE / f"{self.name}.read"))
        results.check(self.machine.said)
        return results

    def seconds_to_verdict(self, label, round_):
        """From the last word of the boot that ended to the verdict in the next; 0 if there was no such line."""
        last_word = None
        for before, (at, line) in zip(self.machine.said, self.machine.said[1:]):
            if line.startswith("=== boot"):
                last_word = before[0]
            found = TOLD.match(line)
            if found and (found[1], int(found[2])) == (label, round_) and last_word:
                return at - last_word
        return 0.0


def row(scenario, results, trial, kind, expected):
    """The row of one trial. `expected` is verdict, causes and stage; a stage begins with `<=` if it is a bound."""
    verdict, causes, stage = expected
    record, judgement = results.judged()[trial]
    found = (judgement["verdict"], judgement.get("cause", ""), judgement.get("stage", ""))
    wrong = []
    if found[0] != verdict:
        wrong.append(f"the verdict is {found[0]}")
    if found[1] not in causes:
        wrong.append(f"the cause is {found[1] or 'absent'}")
    if stage.startswith("<="):
        order = stages_of(results)
        at, bound = (order.index(name) if name else -1 for name in (found[2], stage[2:]))
        if at > bound:
            wrong.append(f"the stage {found[2]} comes after the fault")
        if found[0] == "reboot" and at >= 0 and not judgement.get("unrecorded_ms"):
            wrong.append("the time that may be unrecorded is not said")
    elif found[2] != stage:
        wrong.append(f"the stage is {found[2] or 'absent'}")
    words = " ".join(word for word in [verdict, "|".join(cause for cause in causes if cause), stage] if word)
    seconds = scenario.seconds_to_verdict(*results.place(trial))
    return Row(kind, words, *found, seconds, "; ".join(wrong))


def stages_of(results):
    """The order of stages, from the trials that passed."""
    order = []
    for _, event in results.events("stage"):
        if event["stage"] not in order:
            order.append(event["stage"])
    layers = sorted({name.split(".")[0] for name in order if "." in name})
    steps = ["construct", "alloc", "copy", "quantize", "free_host", "forward", "sync", "hygiene"]
    return ["start"] + [f"{layer}.{step}" for layer in layers for step in steps] + ["check", "settle"]


def passed(results, labels):
    """Every trial of the cells that commit no fault passed."""
    for trial, (_, judgement) in results.judged().items():
        if results.place(trial)[0] in labels and judgement["verdict"] != "pass":
            raise Failure(f"{results.path.name}: {trial} should have passed and is {judgement}")


# -- faults that the harness commits itself ----------------------------------------------------------------------------

FAULTS = {
    # batch: (fault, stage, verdict, causes)
    2: ("reset", "B.copy", "reboot", ["software-reset"]),
    3: ("panic", "A.forward", "reboot", ["panic"]),
    4: ("freeze", "B.quantize", "reboot", ["watchdog"]),
    5: ("oom", "A.quantize", "oom-kill", [""]),
    6: ("poweroff", "B.forward", "reboot", ["power", "undetermined"]),
    7: ("reset", "start", "reboot", ["software-reset"]),
}


def injected(bench, breadcrumbs, batches):
    """Faults of `[[inject]]` in one run, among trials that pass. The truth is in injected.jsonl."""
    name = f"faults-{breadcrumbs}"
    matrix = HEAD.format(name=name, trials=1) + LINEAR4BIT.format(start="any", breadcrumbs=breadcrumbs)
    matrix += f"[axes]\nbatch = {batches}\n"
    for batch in batches:
        fault, stage, _, _ = FAULTS[batch]
        matrix += f'\n[[inject]]\nfault = "{fault}"\nat = "{stage}"\nif = {{ batch = {batch} }}\n'
    service = SERVICE.format(name=name, allow="--allow-injected-faults")
    scenario = Scenario(bench, name, {"matrix.toml": matrix, "service": service})
    results = scenario.carry_through()
    passed(results, ["baseline"])
    truth = {line["trial"]: line for line in results.injected}
    rows = []
    for trial in results.judged():
        label, _ = results.place(trial)
        if label == "baseline":
            continue
        fault, stage, verdict, causes = FAULTS[int(label.removeprefix("batch="))]
        if fault != "oom" and (truth[trial]["fault"], truth[trial]["stage"]) != (fault, stage):
            raise Failure(f"{trial} should have committed {fault} at {stage}, and injected.jsonl says {truth[trial]}")
        # Memory is taken in the worker's own stage, and its words arrive; a reset takes the last of them with it.
        at = "" if stage == "start" else stage if breadcrumbs == SYNC or fault == "oom" else f"<={stage}"
        rows.append(row(scenario, results, trial, f"{fault} ({breadcrumbs})", (verdict, causes, at)))
    committed = {results.place(trial)[0] for trial in results.judged()} - {"baseline"}
    if len(committed) != len(batches) or scenario.codes != [1]:
        raise Failure(f"{name}: {len(committed)} of {len(batches)} faults, exit {scenario.codes}")
    return rows


# -- reboots that people and the harness ask for -----------------------------------------------------------------------

def operator(bench):
    """A person says `reboot` while a trial is open."""
    name = "operator"
    # The init's patience ends before the trial's settling: the trial stays open.
    matrix = HEAD.format(name=name, trials=1) + (
        '[workload]\nkind = "command"\nargv = ["/disk/work"]\nsettle = "5s"\n'
        "stages = [{ name = \"work\", regex = \"^working$\" }]\n"
    )
    work = "#!/bin/sh\necho working\n[ -e /disk/was-here ] && exit 0\ntouch /disk/was-here /run/in-trial\nexec sleep 1000\n"
    person = "(until [ -e /run/in-trial ]; do usleep 100000; done; sleep 1; reboot) >/dev/null 2>&1 &\n"
    service = SERVICE.format(name=name, allow="--allow-root-workload").replace("#!/bin/sh\n", "#!/bin/sh\n" + person)
    scenario = Scenario(bench, name, {"matrix.toml": matrix, "service": service, "work": work})
    results = scenario.carry_through()
    verdicts = results.judged()
    # The child was asked to end, and did; what was open is the time after it.
    rebooted = row(scenario, results, next(iter(verdicts)), "reboot by a person", ("operator", [""], "settle"))
    if [judgement["verdict"] for _, judgement in verdicts.values()][1:] != ["pass"]:
        rebooted.wrong += "; the trial was not repeated and passed"
    return [rebooted]


def planned(bench):
    """The harness reboots for its cold trials."""
    name = "planned"
    matrix = HEAD.format(name=name, trials=3) + LINEAR4BIT.format(start="cold", breadcrumbs=SYNC)
    scenario = Scenario(
        bench, name, {"matrix.toml": matrix, "service": SERVICE.format(name=name, allow="--allow-reboot")}
    )
    results = scenario.carry_through()
    asked = [event["boot"] for _, event in results.events("reboot_asked")]
    started = results.events("started")
    boots = [record["boot"] for record, _ in started]
    wrong = []
    if [judgement["verdict"] for _, judgement in results.judged().values()] != ["pass"] * 3:
        wrong.append("not every trial passed")
    if len(set(boots)) != 3 or len(asked) != 2 or boots[:2] != asked:
        wrong.append(f"trials in boots {boots}, reboots asked in {asked}")
    ends = [event.get("prior_end") for _, event in started]
    if ends[1:] != ["planned", "planned"]:
        wrong.append(f"the boots before ended {ends}")
    return [Row("planned reboot", "3 cold passes, prior end planned", "pass", "", f"{len(asked)} reboots", 0, "; ".join(wrong))]


# -- faults from outside -----------------------------------------------------------------------------------------------

def full_disk(bench):
    """The disk fills up in mid-run; after a person made room the run goes on."""
    name = "full-disk"
    matrix = HEAD.format(name=name, trials=60) + LINEAR4BIT.format(start="any", breadcrumbs=ASYNC)
    service = """#!/bin/sh
run="jetfault run /disk/matrix.toml --results /disk/results"
dd if=/dev/zero of=/disk/spare bs=1k count=192 2>/dev/null
dd if=/dev/zero of=/disk/fill bs=4k 2>/dev/null
rm /disk/spare
sync
$run; echo "=== full $?"
rm /disk/fill
$run
"""
    scenario = Scenario(bench, name, {"matrix.toml": matrix, "service": service}, megabytes=64)
    results = scenario.carry_through()
    said = [line for _, line in scenario.machine.said]
    wrong = []
    if "=== full 4" not in said:
        wrong.append(f"a full disk did not end the run as unfit: {[line for line in said if '=== full' in line]}")
    if not any("No space left on device" in line for line in said):
        wrong.append("the reason was not said")
    if scenario.codes != [0]:
        wrong.append(f"after room was made it ended with {scenario.codes}")
    verdicts = [judgement["verdict"] for _, judgement in results.judged().values()]
    if verdicts.count("pass") != 60:
        wrong.append(f"{verdicts.count('pass')} of 60 trials passed")
    before = next((number for number, line in enumerate(said) if line.startswith("=== full")), 0)
    told = sum(1 for line in said[:before] if TOLD.match(line))
    if not 0 < told < 60:
        wrong.append(f"{told} trials were over before the disk was full")
    others = sorted(set(verdicts) - {"pass"}) or [""]
    return [Row("full disk", "exit 4, then 60 passes", "pass", "/".join(others), f"{told} before", 0, "; ".join(wrong))]


# -- cuts of the power -------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Cuts:
    """What came of many power cuts."""
    cuts: int = 0
    in_a_trial: int = 0
    finished: int = 0
    lost: int = 0
    causes: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    WRITTEN = ("power", "undetermined")

    def wrong(self):
        return sum(count for cause, count in self.causes.items() if cause not in self.WRITTEN)

    def add(self, other):
        self.cuts += other.cuts
        self.in_a_trial += other.in_a_trial
        self.finished += other.finished
        self.lost += other.lost
        self.seconds += other.seconds
        for cause, count in other.causes.items():
            self.causes[cause] = self.causes.get(cause, 0) + count


def power_cuts(bench, count, seed):
    """Cuts the power `count` times at random moments of one run: while it boots, while it reads its journal back, and
    while trials write. After each cut the disk is read as the next boot will find it."""
    draw = random.Random(seed)
    name = "cuts"
    matrix = HEAD.format(name=name, trials=100000 // 4) + LINEAR4BIT.format(start="any", breadcrumbs=ASYNC)
    matrix += "[axes]\nbatch = [2, 3, 4]\n"
    service = "#!/bin/sh\njetfault run /disk/matrix.toml --results /disk/results\n"
    scenario = Scenario(bench, name, {"matrix.toml": matrix, "service": service})
    cuts, before, begun = Cuts(), None, time.monotonic()
    with scenario.machine as machine:
        for number in range(count + 1):
            machine.start()
            machine.wait_for("^=== boot")
            if number == 0 or number == count:
                # The first boot has to begin the run, and the last one to judge what was open.
                machine.wait_for(TOLD.pattern)
            listen(machine, draw.uniform(0, 4))
            machine.cut()
            cuts.cuts += 1
            after = scenario.results()
            if before:
                after.check_after(before)
            before = after
    opened = {event["trial"] for _, event in before.events("started")}
    cuts.finished = len(before.judged())
    for _, judgement in before.judged().values():
        if judgement["verdict"] != "pass":
            cuts.in_a_trial += 1
            cause = judgement.get("cause", judgement["verdict"])
            cuts.causes[cause] = cuts.causes.get(cause, 0) + 1
    if not opened:
        raise Failure("no trial was ever started")
    cuts.seconds = time.monotonic() - begun
    return cuts


def listen(machine, seconds):
    """Takes in what the machine says for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            machine.next_line(until)
        except Failure:
            return


def cuts_row(cuts):
    wrong = f"{cuts.wrong()} causes are wrong" if cuts.wrong() else ""
    named = " ".join(f"{count} {cause}" for cause, count in sorted(cuts.causes.items()))
    return Row(f"{cuts.cuts} power cuts", "reboot power|undetermined, 0 lost", f"{cuts.finished} kept", named,
               f"{cuts.in_a_trial} in a trial", cuts.seconds, wrong)

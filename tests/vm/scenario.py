"""What the scenarios of both machines share: the language of their matrices, carrying one through, and the table."""
import dataclasses, re, time

from results import TOLD, Results
from vm import PATIENCE, Failure, read_disk

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

# A stage may be the last one on the disk although later ones were reached, unless each was waited for.
SYNC, ASYNC = "sync", "async"

STEPS = ["construct", "alloc", "copy", "quantize", "free_host", "forward", "sync"]
STAGES = [f"{layer}.{step}" for layer in "AB" for step in STEPS] + ["check", "settle"]


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
    """A machine with a disk that holds runs, and what came of them."""

    def __init__(self, machine, place):
        self.machine, self.place = machine, place
        self.codes = []

    def carry_through(self, is_cue=lambda line: False, patience=PATIENCE):
        """Lets the machine boot until its service is through; it is switched on again whenever it is off. On a line that
        is the cue the power is cut."""
        with self.machine as machine:
            while not self.codes:
                machine.start()
                until = time.monotonic() + patience
                while (line := machine.next_line(until)) is not None:
                    if line.startswith("=== "):
                        until = time.monotonic() + patience
                    if ended := re.match(r"=== end (\d+)", line):
                        self.codes.append(int(ended[1]))
                    if is_cue(line):
                        machine.cut()
                        break

    def results(self, name):
        """The run of that name on the disk, checked for what must always hold."""
        to = self.machine.disk.with_suffix(".read")
        results = Results(read_disk(self.machine.disk, self.place, to) / f"{name}-001")
        results.check([line for _, line in self.said_of(name)])
        return results

    def said_of(self, name):
        """What was said while that run was at work: all of it, where the service names no run."""
        said, current = [], name
        for at, line in self.machine.said:
            if started := re.match(r"=== run (\S+)", line):
                current = started[1]
            if current == name or line.startswith("=== boot"):
                said.append((at, line))
        return said

    def seconds_to_verdict(self, results, trial):
        """From the last word of the boot that ended to the verdict in the next; 0 if there was no such line."""
        last_word = None
        said = self.said_of(results.name)
        for (before, _), (at, line) in zip(said, said[1:]):
            if line.startswith("=== boot"):
                last_word = before
            found = TOLD.match(line)
            if found and (found[1], int(found[2])) == results.place(trial) and last_word:
                return at - last_word
        return 0.0


def row(scenario, results, trial, kind, expected):
    """The row of one trial. `expected` is verdict, causes and stage; a stage begins with `<=` if it is a bound."""
    verdict, causes, stage = expected
    _, judgement = results.judged()[trial]
    found = (judgement["verdict"], judgement.get("cause", ""), judgement.get("stage", ""))
    wrong = []
    if found[0] != verdict:
        wrong.append(f"the verdict is {found[0]}")
    if found[1] not in causes:
        wrong.append(f"the cause is {found[1] or 'absent'}")
    if stage.startswith("<="):
        at, bound = (STAGES.index(name) if name else -1 for name in (found[2], stage[2:]))
        if at > bound:
            wrong.append(f"the stage {found[2]} comes after the fault")
        if found[0] == "reboot" and at >= 0 and not judgement.get("unrecorded_ms"):
            wrong.append("the time that may be unrecorded is not said")
    elif found[2] != stage:
        wrong.append(f"the stage is {found[2] or 'absent'}")
    words = " ".join(word for word in [verdict, "|".join(cause for cause in causes if cause), stage] if word)
    return Row(kind, words, *found, scenario.seconds_to_verdict(results, trial), "; ".join(wrong))


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


def faults_matrix(name, breadcrumbs, batches):
    """A run in which each cell but the baseline commits its fault."""
    matrix = HEAD.format(name=name, trials=1) + LINEAR4BIT.format(start="any", breadcrumbs=breadcrumbs)
    matrix += f"[axes]\nbatch = {batches}\n"
    for batch in batches:
        fault, stage, _, _ = FAULTS[batch]
        matrix += f'\n[[inject]]\nfault = "{fault}"\nat = "{stage}"\nif = {{ batch = {batch} }}\n'
    return matrix


def faults_rows(scenario, results, breadcrumbs, batches):
    """The rows of such a run. The truth is in injected.jsonl."""
    passed(results, ["baseline"])
    truth = {line["trial"]: line for line in results.injected}
    rows, committed = [], set()
    for trial in results.judged():
        label, _ = results.place(trial)
        if label == "baseline":
            continue
        fault, stage, verdict, causes = FAULTS[int(label.removeprefix("batch="))]
        committed.add(label)
        if fault != "oom" and (truth[trial]["fault"], truth[trial]["stage"]) != (fault, stage):
            raise Failure(f"{trial} should have committed {fault} at {stage}, and injected.jsonl says {truth[trial]}")
        # Memory is taken in the worker's own stage, and its words arrive; a reset takes the last of them with it.
        at = "" if stage == "start" else stage if breadcrumbs == SYNC or fault == "oom" else f"<={stage}"
        rows.append(row(scenario, results, trial, f"{fault} ({breadcrumbs})", (verdict, causes, at)))
    if len(committed) != len(batches):
        raise Failure(f"{results.path}: {sorted(committed)} of {len(batches)} faults were committed")
    return rows


# -- reboots that the harness asks for ---------------------------------------------------------------------------------

def planned_row(results, trials):
    """The row of a run whose every trial is cold, so that the harness reboots between them."""
    asked = [event["boot"] for _, event in results.events("reboot_asked")]
    boots = [record["boot"] for record, _ in results.events("started")]
    verdicts = [judgement["verdict"] for _, judgement in results.judged().values()]
    wrong = []
    if verdicts != ["pass"] * trials:
        wrong.append(f"the trials are {verdicts}")
    if len(set(boots)) != trials or not set(boots[:-1]) <= set(asked):
        wrong.append(f"trials ran in boots {boots}, and reboots were asked for in {asked}")
    return Row("planned reboots", f"{trials} cold passes", "/".join(sorted(set(verdicts))), "", f"{len(asked)} reboots", 0,
               "; ".join(wrong))

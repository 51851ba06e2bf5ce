"""The small machine: a real init, a real system journal, a drive, a watchdog card, and boots of a few seconds.

Each scenario is a fresh disk with a matrix and a service on it. The service is started at every boot; the host only
looks on, cuts the power, or switches it on again.
"""
import dataclasses, random, re, time

from results import TOLD
from scenario import ASYNC, HEAD, LINEAR4BIT, SYNC, Row, Scenario, faults_matrix, faults_rows, planned_row, row
from vm import CACHE, Failure, Machine, make_disk

# What a boot service does: begin the run, or go on with it.
SERVICE = """#!/bin/sh
if [ -e /disk/results/{name}-001/journal.jsonl ]; then jetfault resume --results /disk/results {resume}
else jetfault run /disk/matrix.toml --results /disk/results {allow}
fi
"""


def service_of(name, allow="", resume=""):
    return SERVICE.format(name=name, allow=allow, resume=resume)


def scenario_of(bench, name, files, megabytes=192):
    """A scenario on a fresh disk."""
    disk = CACHE / f"{name}.img"
    make_disk(disk, files, megabytes)
    return Scenario(Machine(bench.kernel, bench.image, disk), "/results")


def injected(bench, breadcrumbs, batches):
    """Faults of `[[inject]]`, among trials that pass."""
    name = f"faults-{breadcrumbs}"
    service = service_of(name, "--allow-injected-faults")
    scenario = scenario_of(bench, name, {"matrix.toml": faults_matrix(name, breadcrumbs, batches), "service": service})
    scenario.carry_through()
    if scenario.codes != [1]:
        raise Failure(f"{name}: a run with faults ended with {scenario.codes}")
    return faults_rows(scenario, scenario.results(name), breadcrumbs, batches)


def drill(bench):
    """`doctor --drill`, again after each boot: it names every fault that it committed."""
    service = "#!/bin/sh\njetfault doctor --drill --allow-injected-faults --results /disk/results\n"
    scenario = scenario_of(bench, "drill", {"service": service})
    scenario.carry_through()
    results = scenario.results("drill")
    committed = [line["fault"] for line in results.injected]
    table = next((line for _, line in scenario.machine.said if re.match(r"\d+ of \d+ named", line)), "no table")
    wrong = []
    if sorted(committed) != ["freeze", "panic", "reset"]:
        wrong.append(f"{committed} were committed")
    if not table.startswith("5 of 5 named") or scenario.codes != [0]:
        wrong.append(f"it ended with {scenario.codes} and the words {table!r}")
    found = " ".join(sorted(judgement.get("cause", judgement["verdict"]) for _, judgement in results.judged().values()))
    return [Row("doctor --drill", "5 of 5 named", table.partition(":")[0], found, "", 0, "; ".join(wrong))]


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
    service = service_of(name, "--allow-root-workload").replace("#!/bin/sh\n", "#!/bin/sh\n" + person)
    scenario = scenario_of(bench, name, {"matrix.toml": matrix, "service": service, "work": work})
    scenario.carry_through()
    results = scenario.results(name)
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
    service = service_of(name, "--allow-reboot --boot-delay 0", "--at-boot --boot-delay 0")
    scenario = scenario_of(bench, name, {"matrix.toml": matrix, "service": service})
    scenario.carry_through()
    results = scenario.results(name)
    return [planned_row(results, 3)]


# -- faults from outside -----------------------------------------------------------------------------------------------

def full_disk(bench):
    """The disk fills up in mid-run; after a person made room the run goes on."""
    name = "full-disk"
    matrix = HEAD.format(name=name, trials=60) + LINEAR4BIT.format(start="any", breadcrumbs=ASYNC)
    service = """#!/bin/sh
run="jetfault run /disk/matrix.toml --results /disk/results"
$run &
until [ "$(ls /disk/results/full-disk-001/trials | wc -l)" -ge 5 ]; do usleep 100000; done 2>/dev/null
dd if=/dev/zero of=/disk/fill bs=4k 2>/dev/null
wait $!; echo "=== full $?"
rm /disk/fill
$run
"""
    scenario = scenario_of(bench, name, {"matrix.toml": matrix, "service": service}, megabytes=64)
    scenario.carry_through()
    results = scenario.results(name)
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
    scenario = scenario_of(bench, name, {"matrix.toml": matrix, "service": service})
    cuts, before, begun = Cuts(), None, time.monotonic()
    with scenario.machine as machine:
        for number in range(count):
            machine.start()
            machine.wait_for("^=== boot")
            # The first boot has to begin the run, and the last one to judge what was open. Of the others some are cut
            # before the harness is at work, however slow the host is, and most afterwards.
            if number in (0, count - 1) or draw.random() < 0.7:
                machine.wait_for(TOLD.pattern)
            machine.listen(draw.uniform(0, 3))
            machine.cut()
            cuts.cuts += 1
            after = scenario.results(name)
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


def cuts_row(cuts):
    wrong = f"{cuts.wrong()} causes are wrong" if cuts.wrong() else ""
    named = " ".join(f"{count} {cause}" for cause, count in sorted(cuts.causes.items()))
    return Row(f"{cuts.cuts} power cuts", "reboot power|undetermined, 0 lost", f"{cuts.finished} kept", named,
               f"{cuts.in_a_trial} in a trial", cuts.seconds, wrong)

"""Two boards that a desk drives over ssh through a campaign of cold trials: boards reboot and are reset, the controller is
killed, one network is cut, one board is power-cycled; then everything is pulled, and compared with what the host saw.
"""
import dataclasses, datetime, hashlib, pathlib, re, subprocess, time

from board import Desk, Follower, put, says
from campaign import MATRIX, WARMED, boots_wrong, verdicts
from results import TOLD, Results
from scenario import SYNC, Row
from vm import Failure

# A lost connection is told of within so many seconds of the reset.
NOTICED_S = 30

# How long the network of one board is cut, in seconds.
CUT_S = 40

# Seconds until the desk must have said something more: a boot where two machines and a build share two processors.
PATIENCE = 900

ALLOW = ["--allow-reboot", "--allow-injected-faults", "--allow-root-workload", "--boot-delay", "0"]
UP = ("connected, in boot", "connected again", "rebooted:")
LOST = "connection lost"
BOOT = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclasses.dataclass
class Step:
    """What is done to the desk or a board when a board answers again and has so many verdicts."""
    board: str
    after: int
    act: object


class Campaign:
    """One campaign on the boards of a desk, and what was done to it."""

    def __init__(self, desk, cold, warmed, rate):
        self.desk, self.cold, self.warmed = desk, cold, warmed
        # rate is that of the injected resets among the trials without a warm-up.
        matrix = (MATRIX + WARMED).format(cold=cold, warmed=warmed, breadcrumbs=SYNC)
        if matrix.count("rate = 0.78") != 1:
            raise Failure("the matrix of the campaign has another rate than is known here")
        self.matrix = desk.path / "campaign.toml"
        put(self.matrix, matrix.replace("rate = 0.78", f"rate = {rate}"))
        self.verdicts = {board.name: set() for board in desk.boards}
        self.early = {}
        self.cut_at = self.cut_until = None
        self.cycling = None

    # -- what is done --------------------------------------------------------------------------------------------------

    def begin(self):
        says(self.desk.fleet("push", self.matrix), *(f"^{board.name}: .*got campaign.toml" for board in self.desk.boards))
        says(self.desk.fleet("run", self.matrix, *ALLOW, code=3), *(f"^{board.name}: campaign-001" for board in self.desk.boards))

    def pull_early(self):
        """What is on the desk now must be there, unchanged, at the end. A board that boots says so."""
        for board in self.desk.boards:
            done = subprocess.run(self.desk.argv("pull", "--board", board.name), cwd=self.desk.path,
                                  env=self.desk.environment(), capture_output=True, text=True)
            if done.returncode == 0:
                self.early[board.name] = Results(self.pulled(board))
            elif "unreachable" not in done.stdout + done.stderr:
                raise Failure(f"the early pull of {board.name}: {done.stdout}{done.stderr}")

    def cut_network(self):
        self.cut_at = time.time()
        self.cut_until = self.cut_at + CUT_S
        self.desk.boards[-1].link(False)

    def power_cycle(self):
        self.cycling = self.desk.begin("power-cycle", "--board", self.desk.boards[0].name)

    def steps(self, follower):
        first, last = self.desk.boards[0].name, self.desk.boards[-1].name
        trials = self.cold + self.warmed
        return [
            Step(first, max(1, trials // 4), follower.kill),
            Step(first, max(1, trials // 3), self.pull_early),
            Step(last, trials // 2, self.cut_network),
            Step(first, trials * 2 // 3, self.power_cycle),
        ]

    def follow(self):
        """Follows the boards to the end, and does at its time what is to be done."""
        follower = Follower(self.desk)
        steps = self.steps(follower)
        until = time.monotonic() + PATIENCE
        while (heard := follower.next(0.5)) is not False:
            if self.cut_until and time.time() > self.cut_until:
                self.desk.boards[-1].link(True)
                self.cut_until = None
            if heard is None:
                if time.monotonic() > until:
                    raise Failure(f"the desk said nothing more in time; see {self.desk.path}/attach.log")
                continue
            until = time.monotonic() + PATIENCE
            name, words = heard
            if found := TOLD.match(words):
                self.verdicts[name].add(found.groups())
            if words.startswith(UP):
                for step in [step for step in steps if step.board == name and len(self.verdicts[name]) >= step.after]:
                    steps.remove(step)
                    step.act()
        if steps or self.cut_until:
            raise Failure(f"the campaign was over before all was done to it; left are {steps}")
        # A fault was found on each board.
        if follower.process.wait(60) != 1:
            raise Failure(f"attach ended with {follower.process.returncode} and not 1; see {self.desk.path}/attach.log")
        said, _ = self.cycling.communicate(timeout=PATIENCE)
        # A board that reboots by itself at that moment cannot be asked in which boot it is.
        says(said, f"^{self.desk.boards[0].name}: power cycled: boot {BOOT} (is over, {BOOT} answers|answers; .*not proven)")
        return follower

    def pulled(self, board):
        return self.desk.path / "fleet-results" / board.name / "campaign-001"

    # -- what is asserted ------------------------------------------------------------------------------------------------

    def check_pull(self):
        self.desk.fleet("pull")
        says(self.desk.fleet("pull"), *(f"^{board.name}: nothing new in 1 run" for board in self.desk.boards))
        for board in self.desk.boards:
            there, here = digests_there(board), digests(self.pulled(board))
            if there != here:
                differ = sorted(set(there.items()) ^ set(here.items()))
                raise Failure(f"{board.name}: files there and here differ: {differ[:6]}")

    def rows(self, follower, seconds):
        self.check_pull()
        return [self.row(board, follower, seconds) for board in self.desk.boards]

    def row(self, board, follower, seconds):
        results = Results(self.pulled(board))
        said = [words for _, name, words in follower.told if name == board.name]
        # A controller that begins anew tells everything again.
        results.check(dict.fromkeys(said))
        if board.name in self.early:
            results.check_after(self.early[board.name])
        cut = cut_boots(board, results)
        counts, wrong = verdicts(results, SYNC, cut)
        wrong += boots_wrong(results, cut)
        wrong += self.lost(board, results)
        by_count = sorted(map(len, counts.values()))
        if by_count != sorted([self.cold, self.warmed]):
            wrong.append(f"the cells have {by_count} trials")
        delays, unseen = noticed(board, follower)
        if late := [delay for delay in delays if delay > NOTICED_S]:
            wrong.append(f"{len(late)} of {len(delays)} ends of a boot were noticed after more than {NOTICED_S} s, or never")
        if unseen > 2:
            wrong.append(f"{unseen} ends of a boot fell into the time without a controller")
        wrong += boots_told_wrong(board, results, said)
        wrong += self.report_wrong(board)
        reboots = len(results.injected)
        found = f"{reboots} of {self.cold} reboot, {self.cold + self.warmed - reboots} pass"
        took = f"{len(board.ends)} ends of boots, {len(delays)} noticed in {max(delays):.0f} s at most, {unseen} without a controller"
        return Row(f"{board.name}, by {board.user}", f"{self.cold} cold, {self.warmed} warmed", found, "", took, seconds,
                   "; ".join(wrong))

    def lost(self, board, results):
        """Verdicts that the desk told of and that are not there, or the other way round."""
        judged = {(*results.place(trial), judgement["verdict"]) for trial, (_, judgement) in results.judged().items()}
        told = {(label, int(round_), verdict) for label, round_, verdict in self.verdicts[board.name]}
        return [f"told and recorded verdicts differ: {sorted(told ^ judged)}"] if told != judged else []

    def report_wrong(self, board):
        done = subprocess.run([self.desk.harness, "report", self.pulled(board)], capture_output=True, text=True)
        whole = "campaign-001, complete" in done.stdout and f"device {board.name}" in done.stdout
        return [] if done.returncode == 1 and whole else [f"the report of what was pulled says {done.stdout}{done.stderr}"]


def cut_boots(board, results):
    """The boots whose power was cut, by the clock of the host, which is the board's."""
    cut = set()
    for end in [at for at, how in board.ends if how == "power"]:
        until = datetime.datetime.fromtimestamp(end, datetime.timezone.utc).isoformat()
        cut |= {record["boot"] for record in [record for record in results.records if record["wall"] < until][-1:]}
    return cut


def digests(directory):
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in pathlib.Path(directory).rglob("*") if path.is_file() and not path.is_symlink()
    }


def digests_there(board):
    results = "/var/lib/jetfault" if board.user == "root" else f"{board.home}/.jetfault/results"
    said = board.ssh(f"sudo -n sh -c 'cd {results}/campaign-001 && find . -type f -exec sha256sum {{}} +'")
    return {path.removeprefix("./"): digest for digest, path in (line.split("  ", 1) for line in said.splitlines())}


def noticed(board, follower):
    """For each end of a boot that the host saw, the seconds until the desk told that the connection is lost, 0 if it knew
    before; and how many ends nobody could notice, because no controller had reached the board yet."""
    told = [(at, words) for at, name, words in follower.told if name == board.name]
    delays, unseen = [], 0
    for end, _ in board.ends:
        ups = [at for at, words in told if words.startswith(UP) and at < end]
        restarts = [at for at in follower.killed if at < end]
        if not ups or (restarts and max(restarts) > max(ups)):
            unseen += 1
            continue
        losses = [at for at, words in told if words.startswith(LOST) and at > max(ups)]
        delays.append(max(0.0, min(losses, default=float("inf")) - end))
    return delays, unseen


def boots_told_wrong(board, results, said):
    """A reboot was told of only where another boot answered, in the order of the journal. A boot that ended before the harness
    began is in no journal; with those, there are as many boots as the host saw end, and the last."""
    boots = list(dict.fromkeys(record["boot"] for record in results.records))
    told, wrong = set(), []
    for words in said:
        if words.startswith("rebooted:"):
            pair = re.findall(BOOT, words)
            told |= set(pair)
            places = [boots.index(boot) for boot in pair if boot in boots]
            if len(set(pair)) != 2 or places != sorted(places):
                wrong.append(f"the board had no such boots in this order: {words}")
    if len(told | set(boots)) > len(board.ends) + 1:
        wrong.append(f"{len(told | set(boots))} boots are told of or recorded, and the host saw {len(board.ends)} ends")
    return wrong


def campaign(bench, cold, warmed, rate):
    with Desk(bench.harness, "desk") as desk:
        desk.add(bench, "orin-1", "root")
        desk.add(bench, "orin-2", "lab")
        print(f"two boards answer after {desk.start():.0f} s", flush=True)
        campaign = Campaign(desk, cold, warmed, rate)
        begun = time.monotonic()
        campaign.begin()
        follower = campaign.follow()
        return campaign.rows(follower, time.monotonic() - begun)

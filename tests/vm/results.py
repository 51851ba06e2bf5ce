"""What a run left on a disk, read without the harness: its journal, its results, the truth about injected faults."""
import collections, json, re, zlib

from vm import Failure

VERDICTS = (
    "pass wrong-result cuda-error cuda-oom oom-kill killed crash hang unkillable error artifact-missing reboot planned "
    "operator void"
).split()

# A line of progress, which the harness prints once the verdict is on the disk, or of a follower, which begins with a date.
TOLD = re.compile(rf"^(?:\[\d+/\d+\]|\d{{4}}-\S+Z) (.+) r(\d+): ({'|'.join(VERDICTS)})\b")


def good_lines(journal):
    """The lines before a torn end, as bytes; the check sum covers everything before `,"crc"`."""
    good = []
    for line in journal.split(b"\n"):
        covered, _, tail = line.rpartition(b',"crc":"')
        if tail != b'%08x"}' % zlib.crc32(covered):
            break
        good.append(line)
    return good


class Results:
    """One run's directory as a disk holds it."""

    def __init__(self, path):
        self.path = path
        self.name = path.name.rpartition("-")[0]
        if not (path / "plan.json").exists():
            raise Failure(f"there is no run at {path}")
        self.lines = good_lines((self.path / "journal.jsonl").read_bytes())
        self.records = [json.loads(line) for line in self.lines]
        self.labels = {cell["id"]: cell["label"] for cell in json.loads((self.path / "plan.json").read_text())["cells"]}
        log = self.path / "injected.jsonl"
        self.injected = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def events(self, name):
        """Records of one kind with what they say, in their order."""
        return [(record, record["event"][name]) for record in self.records if name in record["event"]]

    def judged(self):
        """The verdict of each trial: the whole record by trial id."""
        judged = {}
        for record, event in self.events("judged"):
            if event["trial"] in judged:
                raise Failure(f"{event['trial']} was judged twice")
            judged[event["trial"]] = (record, event["judgement"])
        return judged

    def place(self, trial):
        """Label and round of a trial, as progress names it."""
        cell, round_, _attempt = re.fullmatch(r"(c-[0-9a-f]+)-r(\d+)-a(\d+)", trial).groups()
        return self.labels[cell], int(round_)

    def stored(self):
        """The bytes of each result that is whole; a reset may leave one empty, to be made again."""
        files = {path.parent.name: path.read_bytes() for path in self.path.glob("trials/*/result.json")}
        return {trial: content for trial, content in files.items() if content.endswith(b"}\n")}

    def check(self, said):
        """What must hold at any moment, whatever happened to the machine."""
        if [record["seq"] for record in self.records] != list(range(1, len(self.records) + 1)):
            raise Failure(f"{self.path}: the records are not numbered without a gap")
        judged = self.judged()
        known = collections.Counter((*self.place(trial), judgement["verdict"]) for trial, (_, judgement) in judged.items())
        told = collections.Counter()
        for line in said:
            if found := TOLD.match(line):
                told[(found[1], int(found[2]), found[3])] += 1
        if lost := told - known:
            raise Failure(f"{self.path}: told to a person, and lost: {dict(lost)}")
        last_boot = self.records[-1]["boot"] if self.records else None
        stored = self.stored()
        for trial, (record, judgement) in judged.items():
            if trial in stored:
                if json.loads(stored[trial])["judgement"] != judgement:
                    raise Failure(f"{self.path}: result.json of {trial} differs from the journal")
            elif record["boot"] != last_boot:
                raise Failure(f"{self.path}: result.json of {trial} was not made again")

    def check_after(self, before):
        """What must hold of a disk that was `before` at an earlier moment: nothing that was finished has changed."""
        if self.lines[: len(before.lines)] != before.lines:
            raise Failure(f"{self.path}: records that were on the disk are gone or changed")
        stored = self.stored()
        for trial, content in before.stored().items():
            if stored.get(trial) != content:
                raise Failure(f"{self.path}: the result of {trial} changed")

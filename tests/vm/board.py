"""Boards that a desk drives over ssh: machines with systemd and sshd; the desk is this host.

Each board has its own disk, host name, machine id and host key. Its sshd is forwarded to a port of the loopback
interface by the emulator's user network, which carries no ICMP. The desk has a configuration, a key and known hosts of
its own, made for the test.
"""
import hashlib, json, os, pathlib, queue, re, shutil, signal, socket, subprocess, threading, time

import systemd
import vm
from vm import CACHE, Failure, Machine, run

PACKAGES = [*systemd.PACKAGES, "openssh-server", "sudo", "systemd-coredump"]
TOOLS = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "cc": "gcc"}

# A boot with sshd takes 20 to 30 s on an idle machine, and several times that where two boot at a time on busy cores.
LOGIN_PATIENCE = 600

# Resets that are no further apart, in seconds, are one: no boot is that short.
ONE_RESET = 3

# The monitor of an emulator that was just started.
MONITOR_PATIENCE = 60

FILES = systemd.FILES | {
    "etc/systemd/system.conf.d/vm.conf": "[Manager]\nRuntimeWatchdogSec=60s\nRebootWatchdogSec=2min\n",
    "etc/ssh/sshd_config.d/vm.conf": "HostKey /etc/ssh/ssh_host_ed25519_key\nUseDNS no\n",
    "etc/sudoers.d/lab": "lab ALL=(ALL) NOPASSWD: ALL\n",
}
LAB = 1000


def put(path, text, mode=0o644, owner=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Monitor:
    """The emulator's own protocol (QMP): commands with answers, and events with the host's time."""

    def __init__(self, path, on_reset):
        self.on_reset, self.answers = on_reset, queue.Queue()
        self.socket = socket.socket(socket.AF_UNIX)
        until = time.monotonic() + MONITOR_PATIENCE
        while True:
            try:
                self.socket.connect(str(path))
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise Failure(f"the emulator has no monitor at {path}: {error}") from None
                time.sleep(0.05)
        threading.Thread(target=self._read, daemon=True).start()
        self.answers.get(timeout=MONITOR_PATIENCE)
        self.ask("qmp_capabilities")

    def _read(self):
        # The end of the emulator ends its monitor, cleanly or not.
        try:
            for line in self.socket.makefile():
                message = json.loads(line)
                if "event" not in message:
                    self.answers.put(message)
                elif message["event"] == "RESET":
                    self.on_reset(message["timestamp"]["seconds"] + message["timestamp"]["microseconds"] / 1e6)
        except OSError:
            pass

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        answer = self.answers.get(timeout=MONITOR_PATIENCE)
        if "error" in answer:
            raise Failure(f"the emulator refuses {command}: {answer['error']}")


class Board:
    """One machine, and the supply that gives it power again whenever it was cut."""

    def __init__(self, bench, desk, name, user):
        self.desk, self.name, self.user, self.port = desk, name, user, free_port()
        self.home = "/root" if user == "root" else f"/home/{user}"
        self.pid_file = desk.path / f"{name}.pid"
        self.monitor_path = desk.path / f"{name}.monitor"
        disk = CACHE / f"{name}.img"
        self._make_disk(disk)
        options = [
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:22",
            "-device", "virtio-net-pci,netdev=net,id=nic", "-qmp", f"unix:{self.monitor_path},server=on,wait=off",
        ]
        image = systemd.starter(bench.kernel)
        self.machine = Machine(bench.kernel, image, disk, cpus=1, words=systemd.WORDS, options=options)
        # When the host saw a boot end, in seconds since 1970, and by what.
        self.ends = []
        self.is_on = False

    def _make_disk(self, disk):
        tree = systemd.root_tree("board", PACKAGES)
        systemd.dress(tree, FILES | {"etc/hostname": f"{self.name}\n", "etc/machine-id": f"{hashlib.md5(self.name.encode()).hexdigest()}\n"})
        for user in ["root", "lab"]:
            home = tree / ("root" if user == "root" else f"home/{user}")
            owner = 0 if user == "root" else LAB
            put(home / ".ssh/authorized_keys", self.desk.public_key(), 0o600, owner)
            for place in [home, home / ".ssh"]:
                os.chown(place, owner, owner)
        add_line(tree / "etc/passwd", f"lab:x:{LAB}:{LAB}::/home/lab:/bin/sh")
        add_line(tree / "etc/group", f"lab:x:{LAB}:")
        # No password, and not locked.
        add_line(tree / "etc/shadow", "lab:*:19000::::::")
        for old in (tree / "etc/ssh").glob("ssh_host_*"):
            old.unlink()
        key = self.desk.key(f"host-{self.name}")
        put(tree / "etc/ssh/ssh_host_ed25519_key", key.read_text(), 0o600)
        systemd.make_disk(disk, tree)

    # -- power --------------------------------------------------------------------------------------------------------

    def start(self):
        self.is_on = True
        self._switch_on()
        threading.Thread(target=self._supply, daemon=True).start()

    def _switch_on(self):
        self.monitor_path.unlink(missing_ok=True)
        self.machine.start()
        self.monitor = Monitor(self.monitor_path, self._was_reset)
        self.pid_file.write_text(f"{self.machine.process.pid}\n")

    def _was_reset(self, at):
        # The machine is told to reset in several ways until one works, and the emulator counts each.
        if not self.ends or at - self.ends[-1][0] > ONE_RESET:
            self.ends.append((at, "reset"))

    def _supply(self):
        while True:
            self.machine.process.wait()
            if not self.is_on:
                return
            self.ends.append((time.time(), "power"))
            self.machine.unsafe_shutdowns += 1
            self._switch_on()

    def off(self):
        self.is_on = False
        if self.machine.process and self.machine.process.poll() is None:
            self.machine.process.kill()
            self.machine.process.wait()

    def link(self, up):
        self.monitor.ask("set_link", name="nic", up=up)

    # -- what is asked of it -------------------------------------------------------------------------------------------

    def ssh(self, command, user=None, codes=(0,), patience=120):
        """What a shell command says there, as its own user or another."""
        host = self.name if user is None else f"{user}@{self.name}"
        argv = [self.desk.ssh_program, "-T", "-oBatchMode=yes", "-oConnectTimeout=15", host, command]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=patience)
        if done.returncode not in codes:
            raise Failure(f"{self.name}: {command!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def send(self, file, path, user=None):
        """Puts a program there."""
        host = self.name if user is None else f"{user}@{self.name}"
        command = f'mkdir -p "$(dirname {path})" && cat >{path} && chmod 755 {path}'
        with open(file, "rb") as content:
            run(self.desk.ssh_program, "-T", "-oBatchMode=yes", host, command, stdin=content)

    def wait_for_login(self):
        until = time.monotonic() + LOGIN_PATIENCE
        while True:
            try:
                return self.ssh("cat /proc/sys/kernel/random/boot_id").strip()
            except (Failure, subprocess.TimeoutExpired) as failure:
                if time.monotonic() > until:
                    raise Failure(f"nobody can log in to {self.name}: {failure}") from None
                time.sleep(1)


def add_line(path, line):
    text = path.read_text()
    if line not in text.splitlines():
        path.write_text(f"{text}{line}\n")


class Desk:
    """The files of a person at a desk, and the commands that they type."""

    def __init__(self, harness, name):
        vm.require(TOOLS)
        self.harness, self.path = harness, CACHE / name
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.ssh_program = self.path / "ssh"
        self.boards, self.processes = [], []
        self.key("key")

    def key(self, name):
        path = self.path / name
        if not path.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path)
        return path

    def public_key(self, name="key"):
        return self.key(name).with_suffix(".pub").read_text()

    def add(self, bench, name, user):
        board = Board(bench, self, name, user)
        self.boards.append(board)
        return board

    def furnish(self):
        """Writes what a person would have: the configuration of ssh, known hosts, the inventory, and the hook that cuts
        the power: it kills the emulator, and is done when the supply has started another."""
        put(self.ssh_program, f'#!/bin/sh\nexec ssh -F {self.path}/config "$@"\n', 0o755)
        hook = self.path / "cut-power"
        put(hook, '#!/bin/sh\nset -e\nold=$(cat "$1")\nkill -KILL "$old"\nuntil [ "$(cat "$1")" != "$old" ]; do sleep 0.2; done\n',
            0o755)
        hosts, known, inventory = [], [], ""
        for board in self.boards:
            hosts.append(f"Host {board.name}\n  Port {board.port}\n  User {board.user}\n  HostKeyAlias {board.name}\n")
            key = self.public_key(f"host-{board.name}").split()
            known.append(f"{board.name} {key[0]} {key[1]}\n")
            # One board has what the defaults give; the other's files and user are chosen.
            own = 'results = "/var/lib/jetfault"\n' if board.user == "root" else "sudo = true\n"
            inventory += (
                f'[[board]]\nname = "{board.name}"\nhost = "{board.name}"\ntags = ["vm"]\n{own}'
                f'power_cycle = ["{hook}", "{board.pid_file}"]\nmax_boots = 200\n\n'
            )
        # The exchange of keys that OpenSSH prefers takes an emulated processor seconds.
        common = (
            f"Host *\n  KexAlgorithms curve25519-sha256\n  HostName 127.0.0.1\n  IdentityFile {self.path}/key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.path}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        )
        put(self.path / "config", "".join(hosts) + common)
        put(self.path / "known_hosts", "".join(known))
        put(self.path / "fleet.toml", inventory)

    def start(self):
        """Switches all boards on; the seconds until somebody can log in to each."""
        self.furnish()
        began = time.monotonic()
        for board in self.boards:
            board.start()
        for board in self.boards:
            board.wait_for_login()
        return time.monotonic() - began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for board in self.boards:
            board.off()

    def begin(self, *words):
        """Begins `jetfault fleet …`, whose output is read while it goes on; it ends with the desk."""
        process = subprocess.Popen(
            self.argv(*words), cwd=self.path, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        self.processes.append(process)
        return process

    def environment(self, **more):
        return os.environ | {"JETFAULT_SSH": str(self.ssh_program), "NO_COLOR": "1"} | more

    def argv(self, *words):
        return [str(self.harness), "fleet", *map(str, words)]

    def fleet(self, *words, code=0, patience=900, **environment):
        """What `jetfault fleet …` says; it must end with the exit code."""
        done = subprocess.run(
            self.argv(*words), cwd=self.path, env=self.environment(**environment), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=patience,
        )
        said = done.stdout + done.stderr
        with open(self.path / "said", "a") as log:
            log.write(f"$ fleet {' '.join(map(str, words))}\n{said}")
        if done.returncode != code:
            raise Failure(f"fleet {' '.join(map(str, words))} ended with {done.returncode} and not {code}:\n{said}")
        return said


def says(said, *patterns):
    """Each pattern must be in what was said."""
    for pattern in patterns:
        if not re.search(pattern, said, re.MULTILINE):
            raise Failure(f"nothing like {pattern!r} was said, but\n{said}")


class Follower:
    """`fleet attach`, and when the desk said each of its lines."""

    def __init__(self, desk):
        self.desk, self.lines, self.told = desk, queue.Queue(), []
        self.killed = []
        self.start()

    def start(self):
        self.process = self.desk.begin("attach")
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
            self.lines.put((time.time(), line.rstrip("\n")))
        self.lines.put((time.time(), None))

    def kill(self):
        """Ends the controller as a crash of the desk would, and begins it again."""
        self.killed.append(time.time())
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        # What it had said is told; then comes its end, which is none of the run's.
        while (told := self.lines.get(timeout=60))[1] is not None:
            self._heard(told)
        self.start()

    def _heard(self, told):
        at, line = told
        name, _, words = line.partition(": ")
        self.told.append((at, name, words))
        with open(self.desk.path / "attach.log", "a") as log:
            log.write(f"{at:.1f} {line}\n")

    def next(self, wait):
        """The next line, as board and words; None if there is none in so many seconds; False at the end."""
        try:
            told = self.lines.get(timeout=wait)
        except queue.Empty:
            return None
        if told[1] is None:
            return False
        self._heard(told)
        return self.told[-1][1:]

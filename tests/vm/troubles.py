"""What goes wrong between a desk and its boards, with a real sshd and a real systemd: a run that outlives the session which
began it, a second controller, another host key, a binary for another machine, a full disk, a clock that is years off.
"""
import subprocess, time

from board import Desk, put, says
from scenario import Row
from vm import Failure

SLOW = """
[matrix]
name = "{name}"
about = "a program that takes its time"
trials = 3
seed = 1936

[workload]
kind = "command"
argv = ["sleep", "{seconds}"]
settle = "0s"
"""

# `e_machine` of an ELF file, and AArch64's number there (elf(5)).
ELF_MACHINE, AARCH64 = 18, b"\xb7\x00"

# The date of a board without a clock.
YEARS_OFF = "2020-01-01 00:00:00"


def wait_until(what, holds, patience=120):
    until = time.monotonic() + patience
    while not holds():
        if time.monotonic() > until:
            raise Failure(f"{what}: not within {patience} s")
        time.sleep(1)


def properties(board, unit):
    names = "LoadState,ActiveState,Transient,ControlGroup,MainPID"
    said = board.ssh(f"systemctl show --property={names} {unit}")
    return dict(line.split("=", 1) for line in said.splitlines())


def detached(desk):
    """A run that needs no boots goes on in a transient unit when the session that began it is over."""
    unit = "jetfault-slow-001.service"
    put(desk.path / "slow.toml", SLOW.format(name="slow", seconds=20))
    put(desk.path / "other.toml", SLOW.format(name="other", seconds=1))
    says(desk.fleet("run", "slow.toml", "--allow-root-workload", code=3), "slow-001 goes on there without this desk")
    for board in desk.boards:
        has = properties(board, unit)
        if (has["ActiveState"], has["Transient"]) != ("active", "yes") or has["ControlGroup"] != f"/system.slice/{unit}":
            raise Failure(f"{board.name}: {unit} is {has}")
        if unit not in board.ssh(f"cat /proc/{has['MainPID']}/cgroup"):
            raise Failure(f"{board.name}: the harness is not in {unit}")
    held = desk.fleet("run", "other.toml", "--allow-root-workload", code=5)
    says(held, *(f"^{board.name}: error: it is at work for somebody else" for board in desk.boards))
    # A follower on the board, whose session is cut.
    board = desk.boards[0]
    argv = [desk.ssh_program, "-T", board.name, ".jetfault/bin/jetfault attach --results /var/lib/jetfault slow-001"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as follower:
        if not follower.stdout.readline():
            raise Failure(f"{board.name}: attach says nothing there")
        follower.kill()
    says(desk.fleet("attach"), *(f"^{board.name}: .*over: every block is through" for board in desk.boards))
    for board in desk.boards:
        wait_until(f"{board.name}: {unit} is gone", lambda: properties(board, unit)["LoadState"] == "not-found")
    says(desk.fleet("pull"), *(f"^{board.name}: [0-9]+ files" for board in desk.boards))
    return "transient unit, exit 5 for another"


def changed_key(desk):
    """Another key in the place of the one that is known: that board is left alone, the others go on."""
    other = desk.public_key("another").split()
    known = (desk.path / "known_hosts").read_text().splitlines()
    last = desk.boards[-1].name
    known = [line for line in known if not line.startswith(f"{last} ")] + [f"{last} {other[0]} {other[1]}"]
    put(desk.path / "known_hosts_changed", "\n".join(known) + "\n")
    ssh = desk.path / "ssh-changed"
    put(ssh, f'#!/bin/sh\nexec ssh -F {desk.path}/config -o UserKnownHostsFile={desk.path}/known_hosts_changed "$@"\n', 0o755)
    said = desk.fleet("push", code=4, JETFAULT_SSH=str(ssh))
    says(said, f"^{last}: error: its host key is another one", "reflashed", f"^{desk.boards[0].name}: has this jetfault")
    return "left alone, the other answers"


def inventory(desk, name, head="", **keys):
    """An inventory with the first board alone, which `keys` change."""
    board = desk.boards[0]
    entry = {"name": board.name, "host": board.name, **keys}
    put(desk.path / name, head + "[[board]]\n" + "".join(f'{key} = "{value}"\n' for key, value in entry.items()))
    return ["--inventory", name]


def wrong_architecture(desk):
    """A binary for another machine is refused before it is sent, and told of where it is there already."""
    binary = bytearray(desk.harness.read_bytes())
    binary[ELF_MACHINE:ELF_MACHINE + 2] = AARCH64
    path = desk.path / "jetfault-aarch64"
    path.write_bytes(binary)
    chosen = inventory(desk, "arm.toml", f'[fleet]\nbinary = {{ x86_64 = "{path.name}" }}\n')
    says(desk.fleet("push", *chosen, code=2), "it is x86_64, and .* is for aarch64")
    desk.boards[0].send(path, ".arm/bin/jetfault")
    says(desk.fleet("status", *inventory(desk, "there.toml", dir=".arm"), code=4), "architecture", "fleet push")
    return "refused before it is sent"


def full_disk(desk):
    """No space on the board: said so, and nothing is left behind."""
    board = desk.boards[0]
    board.ssh("mkdir -p /mnt/small && mount -t tmpfs -o size=1m none /mnt/small")
    says(desk.fleet("push", *inventory(desk, "full.toml", dir="/mnt/small/jetfault"), code=4), "error: .*(full|space)")
    if left := board.ssh("find /mnt/small -type f").strip():
        raise Failure(f"{board.name}: left on the full disk: {left}")
    board.ssh("umount /mnt/small")
    return "said so, nothing left"


def clock(desk):
    """A clock that is years off is told of, and nothing else comes of it."""
    board = desk.boards[-1]
    board.ssh(f"sudo -n date -s '{YEARS_OFF}'")
    says(desk.fleet("push"), f"^{board.name}: has this jetfault; its clock is [0-9]{{4}} days behind")
    board.ssh(f"sudo -n date -s @{time.time():.0f}")
    return "told, nothing else"


TROUBLES = {
    "run --detach, no boots": detached, "changed host key": changed_key, "another architecture": wrong_architecture,
    "full disk": full_disk, "clock years off": clock,
}


def troubles(bench):
    rows = []
    with Desk(bench.harness, "troubled-desk") as desk:
        desk.add(bench, "orin-3", "root")
        desk.add(bench, "orin-4", "lab")
        desk.start()
        desk.fleet("push")
        for name, trouble in TROUBLES.items():
            begun = time.monotonic()
            found = trouble(desk)
            rows.append(Row(name, trouble.__doc__.split(":")[0].strip(), found, "", "", time.monotonic() - begun))
    return rows

"""The machine with systemd: journald, systemd-pstore, wtmp and the watchdog are the real ones of a distribution.

One disk goes through every kind of end, one run after the other: what is old in one run's evidence is in the next one's
baseline.
"""
import pathlib, shutil

import vm
from scenario import HEAD, SYNC, Scenario, faults_matrix, faults_rows, row
from vm import CACHE, HERE, Machine, copy

RELEASE = "bookworm"
PACKAGES = ["systemd", "systemd-sysv", "dbus", "util-linux", "procps"]
MEGABYTES = 1024

# Reset, panic, freeze.
BATCHES = [2, 3, 4]

WORDS = "systemd.show_status=0 systemd.unit=multi-user.target"

# A boot takes 15 s on an idle machine, and several times that on a busy one.
PATIENCE = 600

COMMAND = """
[workload]
kind = "command"
argv = ["/etc/vm/work", "{how}"]
settle = "1s"
stages = [{{ name = "work", regex = "^working$" }}]
"""

# Units of a distribution that a machine without network, terminals and users has no use for; each costs seconds here.
MASKED = """
apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer getty@tty1.service
getty.target serial-getty@ttyS0.service systemd-networkd.service systemd-network-generator.service
systemd-timesyncd.service systemd-firstboot.service systemd-binfmt.service ldconfig.service
systemd-hwdb-update.service systemd-journal-catalog-update.service systemd-update-done.service
systemd-machine-id-commit.service systemd-sysusers.service kmod-static-nodes.service modprobe@.service
dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
proc-sys-fs-binfmt_misc.automount systemd-pcrphase.service systemd-pcrphase-sysinit.service
systemd-ask-password-console.path systemd-ask-password-wall.path e2scrub_reap.service remote-fs.target
""".split()

FILES = {
    "etc/hostname": "board-0\n",
    "etc/fstab": "/dev/vda / ext4 errors=remount-ro 0 1\n",
    "etc/machine-id": "6a65746661756c740000000000000002\n",
    "etc/systemd/journald.conf.d/vm.conf": "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\n",
    # systemd feeds the watchdog card, and lets it end a shutdown that hangs.
    "etc/systemd/system.conf.d/vm.conf": "[Manager]\nRuntimeWatchdogSec=30s\nRebootWatchdogSec=2min\n",
}


def root_tree(name="systemd", packages=PACKAGES):
    """A Debian tree with systemd, made once; without what a network must bring, it is the slow part of the suite."""
    tree = CACHE / f"{name}-{RELEASE}"
    if not (tree / "etc/debian_version").exists():
        vm.require({"mmdebstrap": "mmdebstrap"})
        unfinished = CACHE / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ["man", "doc", "locale"]]
        include = f"--include={','.join(packages)}"
        vm.run("mmdebstrap", "--variant=minbase", "--mode=root", include, *excluded, RELEASE, unfinished)
        unfinished.rename(tree)
    return tree


def make_root(disk, harness, service, matrices):
    """The disk with systemd, the harness, the program `service` of a unit that starts at every boot, and matrices by
    name."""
    tree = root_tree()
    dress(tree, FILES)
    units = tree / "etc/systemd/system"
    shutil.rmtree(tree / "etc/vm", ignore_errors=True)
    (tree / "etc/vm").mkdir()
    shutil.copy2(HERE / "guest" / service, tree / "etc/vm/service")
    shutil.copy2(HERE / "guest/work", tree / "etc/vm/work")
    shutil.copy2(HERE / "guest/every-boot.service", units / "every-boot.service")
    wanted = units / "multi-user.target.wants"
    shutil.rmtree(wanted, ignore_errors=True)
    wanted.mkdir()
    (wanted / "every-boot.service").symlink_to("../every-boot.service")
    shutil.copy2(harness, tree / "usr/bin/jetfault")
    for name, text in matrices.items():
        (tree / f"etc/vm/{name}.toml").write_text(text)
    make_disk(disk, tree)


def dress(tree, files):
    """Gives a Debian tree its files, and takes away what costs every boot seconds for nothing."""
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    units = tree / "etc/systemd/system"
    for unit in MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (tree / "var/log/journal").mkdir(exist_ok=True)
    shutil.copy2(HERE / "guest/nvme", tree / "usr/bin/nvme")


def make_disk(disk, tree):
    disk.unlink(missing_ok=True)
    vm.run("mkfs.ext4", "-q", "-F", "-d", tree, disk, f"{MEGABYTES}M")


def starter(kernel):
    """The initramfs that loads modules and hands over to systemd."""
    tree = CACHE / "starter"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ["bin", "dev", "disk", "modules", "proc", "sys"]:
        (tree / name).mkdir(parents=True)
    copy(pathlib.Path(shutil.which("busybox")), tree / "bin/busybox")
    for applet in ["sh", "mount", "insmod", "sleep", "poweroff", "ifconfig", "switch_root"]:
        (tree / "bin" / applet).symlink_to("busybox")
    copy(HERE / "guest/switch-root", tree / "init")
    vm.add_modules(tree, kernel, "virtio_net")
    return vm.pack(tree, CACHE / "starter.cpio")


def scenario_of(bench, name, service, matrices):
    """A scenario on a fresh disk; its results lie where they do by default."""
    disk = CACHE / f"{name}.img"
    make_root(disk, bench.harness, service, matrices)
    return Scenario(Machine(bench.kernel, starter(bench.kernel), disk, cpus=2, words=WORDS), "/var/lib/jetfault")


def every_kind(bench):
    """The ends of a boot that are not the harness's own doing, each of which must be named."""
    matrices = {
        "faults": faults_matrix("faults", SYNC, BATCHES),
        "cut": HEAD.format(name="cut", trials=1) + COMMAND.format(how="cut"),
        "operator": HEAD.format(name="operator", trials=1) + COMMAND.format(how="reboot"),
    }
    scenario = scenario_of(bench, "systemd", "every-end", matrices)
    scenario.carry_through(lambda line: line == "=== cut now", PATIENCE)
    rows = faults_rows(scenario, scenario.results("faults"), SYNC, BATCHES)
    for name, kind, expected in [
        ("cut", "power cut", ("reboot", ["power"], "work")),
        # The unit is stopped with all its processes while the trial settles: it stays open.
        ("operator", "systemctl reboot", ("operator", [""], "settle")),
    ]:
        results = scenario.results(name)
        rows.append(row(scenario, results, next(iter(results.judged())), kind, expected))
    return rows

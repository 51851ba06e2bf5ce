"""Virtual machines that really reboot: the kernel, the images, the machine and its serial ports.

Everything that can be kept is kept under target/vm. Software emulation (TCG) is enough: no KVM is used. Each wait has a
deadline and none has a fixed length.
"""
import dataclasses, os, pathlib, queue, re, shutil, subprocess, threading, time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / "target" / "vm"

# The record of a crash lies in the middle of memory: the emulator puts the initramfs at its end at every reset.
RAMOOPS = 0x18000000
MEMORY_MB = 512

# Seconds until a machine must have said its next word. A boot takes 4 s on an idle machine.
PATIENCE = 600


class Failure(Exception):
    """Something that the suite asserts does not hold, or cannot be had."""


def run(*argv, **options):
    """Runs a command that must succeed; its output is shown only if it does not."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, argv))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# -- what is installed ------------------------------------------------------------------------------------------------

def require(programs):
    """Installs the Debian packages of the programs that are not there: a dictionary from program to package."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program, path=SEARCH)})
    if not missing:
        return
    print(f"installing {' '.join(missing)}", flush=True)
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    run("apt-get", "update", "-qq", env=environment)
    try:
        run(*install, "--no-remove", *missing, env=environment)
    except Failure:
        # A qemu-utils of another release is in the way of this release's emulator: it is taken to the same version.
        policy = run("apt-cache", "policy", "qemu-system-x86")
        version = re.search(r"Candidate: (\S+)", policy).group(1)
        run(*install, "--allow-downgrades", f"qemu-utils={version}", *missing, env=environment)


SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/lib/systemd"

BASICS = {
    "qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "mkfs.ext4": "e2fsprogs", "cpio": "cpio",
    "depmod": "kmod", "systemd-journald": "systemd", "last": "util-linux", "ldd": "libc-bin", "lz4": "lz4",
    "xz": "xz-utils", "zstd": "zstd",
}


# -- the kernel -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Kernel:
    """Debian's generic kernel, whose modules include a watchdog card, unpacked so that no boot has to do it."""
    image: pathlib.Path
    root: pathlib.Path
    release: str

    @staticmethod
    def get():
        package = re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", "linux-image-amd64")).group(1)
        where = CACHE / package
        image, root = where / "vmlinux", where / "root"
        if not image.exists():
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir(parents=True)
            run("apt-get", "download", package, cwd=where)
            run("dpkg", "-x", next(where.glob("*.deb")), root)
            next(where.glob("*.deb")).unlink()
            release = next((root / "lib/modules").iterdir()).name
            run("depmod", "-b", root, release)
            unpacked = where / "vmlinux.unfinished"
            unpacked.write_bytes(unpack(next((root / "boot").glob("vmlinuz-*")).read_bytes()))
            unpacked.rename(image)
        return Kernel(image, root, next((root / "lib/modules").iterdir()).name)

    def modules(self, names):
        """The files of modules and of those they need, in the order of loading."""
        files = []
        for name in names:
            shown = run("modprobe", "-d", self.root, "-S", self.release, "--show-depends", name)
            files += [pathlib.Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod ")]
        return list(dict.fromkeys(files))


def unpack(vmlinuz):
    """The ELF image inside a compressed kernel: the emulator starts it directly, without minutes of decompression."""
    packers = {b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b\x08": "gzip", b"\x02!L\x18": "lz4"}
    for magic, program in packers.items():
        for found in re.finditer(re.escape(magic), vmlinuz):
            elf = subprocess.run([program, "-dc"], input=vmlinuz[found.start():], capture_output=True).stdout
            if elf.startswith(b"\x7fELF"):
                return elf
    raise Failure("the kernel image is packed in a way that is not known here")


# -- the image of the small machine ------------------------------------------------------------------------------------

def with_libraries(tree, program, place=None):
    """Copies a program into a tree, with the libraries that it loads, each where it was."""
    program = pathlib.Path(shutil.which(program, path=SEARCH) or program).resolve()
    copy(program, tree / (place or str(program).lstrip("/")))
    for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
        copy(pathlib.Path(library), tree / library.lstrip("/"))


def copy(source, target):
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def small_image(kernel, harness):
    """An initramfs with a real init and a real system journal; everything that lasts is on the disk."""
    tree = CACHE / "small"
    shutil.rmtree(tree, ignore_errors=True)
    for name in ["bin", "dev", "disk", "etc", "modules", "proc", "root", "run", "sys", "tmp", "usr"]:
        (tree / name).mkdir(parents=True)
    for link, target in {"sbin": "bin", "usr/bin": "../bin", "usr/sbin": "../bin", "var": "disk/var"}.items():
        (tree / link).symlink_to(target)
    with_libraries(tree, "systemd-journald", "lib/systemd/systemd-journald")
    for program in ["journalctl", "systemd-cat", "last", "utmpdump"]:
        with_libraries(tree, program, f"bin/{program}")
    with_libraries(tree, harness, "bin/jetfault")
    copy(HERE / "guest/nvme", tree / "bin/nvme")
    copy(shutil.which("busybox"), tree / "bin/busybox")
    for applet in run("busybox", "--list").split():
        if not (tree / "bin" / applet).exists():
            (tree / "bin" / applet).symlink_to("busybox")
    for name in ["inittab", "rc", "service", "shutdown"]:
        copy(HERE / "guest" / name, tree / "etc" / name)
    (tree / "init").symlink_to("bin/busybox")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nperson:x:1000:1000::/tmp:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\nperson:x:1000:\n")
    (tree / "etc/machine-id").write_text("6a65746661756c740000000000000001\n")
    # Without systemd the harness reboots by a command, and the scenario's own service goes on at boot.
    (tree / "etc/jetfault").mkdir()
    board = '[boot]\nservice = "none"\n[reboot]\nby = "command"\ncommand = ["reboot"]\npatience = "60s"\n'
    (tree / "etc/jetfault/board.toml").write_text(board)
    # The journal is on the disk a second after it was said, so that the tail of a boot can be read in the next.
    settings = "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\nSystemMaxUse=16M\nRateLimitIntervalSec=0\n"
    (tree / "etc/systemd").mkdir()
    (tree / "etc/systemd/journald.conf").write_text(settings)
    add_modules(tree, kernel)
    return pack(tree, CACHE / "small.cpio")


def add_modules(tree, kernel, *more):
    """What the machine needs to see its disk, its crash records and its watchdog, and `more`."""
    order = kernel.modules(["virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "ramoops", "i6300esb", "nvme", *more])
    for module in order:
        copy(module, tree / "modules" / module.name)
    (tree / "modules/order").write_text("".join(f"{module.name}\n" for module in order))


def pack(tree, image):
    """An initramfs, not compressed: under emulation that would cost each boot a second."""
    with open(image, "wb") as out:
        names = subprocess.run(["find", ".", "-print0"], cwd=tree, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names, stdout=out, check=True)
    return image


# -- disks -------------------------------------------------------------------------------------------------------------

def make_disk(path, files, megabytes=192):
    """A new ext4 disk that holds `files`: a dictionary from name to text; names of programs end in no suffix."""
    tree = path.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "var/log/journal").mkdir(parents=True)
    (tree / "var/lib").mkdir()
    for name, text in files.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o644 if "." in name else 0o755)
    path.unlink(missing_ok=True)
    run("mkfs.ext4", "-q", "-F", "-d", tree, path, f"{megabytes}M")
    shutil.rmtree(tree)


def read_disk(path, name, to):
    """Copies the directory `name` of a disk to `to`, as a machine that boots from it would find it: the file system's
    own journal is replayed first, on a copy, so that the disk itself stays as the cut left it."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    replayed = path.with_suffix(".replayed")
    run("cp", "--sparse=always", path, replayed)
    # 1 says that something was mended, which is the replay itself.
    checked = subprocess.run(["e2fsck", "-fp", replayed], capture_output=True, text=True)
    if checked.returncode not in (0, 1):
        raise Failure(f"{path} is damaged beyond a replay of its journal: {checked.stdout}{checked.stderr}")
    run("debugfs", "-R", f"rdump {name} {to}", replayed)
    replayed.unlink()
    return to / pathlib.Path(name).name


# -- the machine -------------------------------------------------------------------------------------------------------

class Machine:
    """One virtual machine with one drive and a watchdog card. What the guest says on its second serial port arrives
    line by line; the kernel's console is kept in a file beside the disk."""

    def __init__(self, kernel, image, disk, memory=MEMORY_MB, cpus=1, words="", options=()):
        self.kernel, self.image, self.disk, self.memory, self.cpus = kernel, image, disk, memory, cpus
        self.words, self.options = words, list(options)
        self.power_cycles = self.unsafe_shutdowns = 0
        self.process = None
        self.lines = queue.Queue()
        # What the guest said, with the seconds at which it arrived.
        self.said = []
        for kept in [".console", ".talk"]:
            disk.with_suffix(kept).unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def start(self):
        """Switches the power on."""
        self.power_cycles += 1
        # The second line saves a second of each boot, and the check of a timer that a starved emulator may fail.
        words = (
            f"console=ttyS0 quiet loglevel=4 panic=1 mitigations=off nokaslr random.trust_cpu=on audit=0 "
            f"rodata=off cryptomgr.notests=1 no_timer_check "
            f"memmap=2M${RAMOOPS:#x} vm.power_cycles={self.power_cycles} "
            f"vm.unsafe_shutdowns={self.unsafe_shutdowns} {self.words}"
        )
        console = self.disk.with_suffix(".console")
        argv = [
            "qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", self.memory,
            "-smp", self.cpus, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none",
            "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console", "-serial", "stdio",
            "-device", "i6300esb", "-action", "watchdog=reset", "-kernel", self.kernel.image, "-initrd", self.image,
            "-append", words, "-drive", f"file={self.disk},if=none,id=drive,format=raw,cache=writeback",
            "-device", "virtio-blk-pci,drive=drive", "-device", "nvme,serial=vm", *self.options,
        ]
        self.process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process):
        for line in process.stdout:
            self.lines.put(line.decode("utf-8", "replace").rstrip("\r\n"))
        process.wait()
        self.lines.put(None)

    def next_line(self, until):
        """The next line that the guest says, or None when the power went off."""
        try:
            line = self.lines.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            tail = "\n  ".join(line for _, line in self.said[-20:])
            raise Failure(f"the machine said nothing more in time; its last words were\n  {tail}") from None
        if line is not None:
            self._heard(line)
        return line

    def _heard(self, line):
        self.said.append((time.monotonic(), line))
        with open(self.disk.with_suffix(".talk"), "a") as talk:
            talk.write(f"{line}\n")

    def wait_for(self, pattern, patience=PATIENCE):
        """The next line that matches; the power must stay on."""
        until = time.monotonic() + patience
        while (line := self.next_line(until)) is not None:
            if re.search(pattern, line):
                return line
        raise Failure(f"the machine went off while {pattern!r} was awaited")

    def listen(self, seconds):
        """Takes in what the guest says for so long; whether the power is still on then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.next_line(until) is None:
                    return False
            except Failure:
                return True
        return True

    def cut(self):
        """Cuts the power: whatever the guest had not given to its drive is lost."""
        self.process.kill()
        self.process.wait()
        self.unsafe_shutdowns += 1
        while (line := self.lines.get()) is not None:
            self._heard(line)

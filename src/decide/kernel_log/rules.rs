//! The table: which line tells of which fault.
//!
//! Rules do not lean on their order: no line matches two of them, which a test holds against every fixture. A rule is
//! written for the wording of the kernel's own sources, arm64 and x86, old and new; the fixtures show each.
//! Named groups of a pattern become the facts of a finding (`detail`).

use crate::model::kernel_log::KernelFault::{self, *};
use crate::model::kernel_log::LogClass;
use crate::model::kernel_log::Weight::{self, Aside, Fault, Notice};

/// One row.
#[derive(Debug)]
pub struct KernelRule {
    /// Its name in findings and in `explain`.
    pub name: &'static str,
    /// What a matching line tells of.
    pub fault: KernelFault,
    /// How much it decides.
    pub weight: Weight,
    /// What it amounts to.
    pub class: LogClass,
    /// One of these stands in every line that matches: few lines get further than this.
    pub holds: &'static [&'static str],
    /// The pattern, over the message without its prefix.
    pub pattern: &'static str,
    /// Lines that hold one of these are another rule's, or nobody's.
    pub unless: &'static [&'static [&'static str]],
    /// Whether a process may say it; all else is believed of the kernel alone.
    pub by_process: bool,
    /// Why it means that, in one line.
    pub because: &'static str,
}

const fn rule(name: &'static str, fault: KernelFault, weight: Weight, class: LogClass) -> KernelRule {
    KernelRule { name, fault, weight, class, holds: &[], pattern: "", unless: &[], by_process: false, because: "" }
}

/// Reasons of a panic that name what led to it (kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h).
const PANIC_OF_HANG: &[&str] =
    &["softlockup: hung tasks", "hung_task: blocked tasks", "ard LOCKUP", "RCU Stall", "watchdog pretimeout event"];
const PANIC_OF_OOPS: &[&str] = &["Fatal exception"];
const PANIC_OF_HARDWARE: &[&str] =
    &["Asynchronous SError Interrupt", "atal machine check", "Fatal hardware error", "Uncorrected hardware error"];
const PANIC_OF_MEMORY: &[&str] = &["ut of memory", "deadlocked on memory"];
/// What begins with `BUG:` and has a rule of its own.
const BUG_OF_OTHERS: &[&str] = &[
    "nable to handle ",
    "BUG: kernel NULL pointer dereference",
    "BUG: soft lockup",
    "BUG: workqueue lockup",
    "BUG: memory leak",
    "BUG: spinlock",
    "BUG: rwlock",
];

/// The table.
pub const KERNEL_RULES: &[KernelRule] = &[
    // The kernel gives up.
    KernelRule {
        holds: &["Kernel panic - not syncing"],
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: (?P<about>.*?)(?: \]---)?$",
        unless: &[PANIC_OF_HANG, PANIC_OF_OOPS, PANIC_OF_HARDWARE, PANIC_OF_MEMORY],
        because: "the kernel says that it gave up",
        ..rule("panic", Panic, Fault, LogClass::Panic)
    },
    KernelRule {
        holds: PANIC_OF_HANG,
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: (?P<about>.*?)(?: \]---)?$",
        because: "the kernel gave up because something hung",
        ..rule("panic-of-hang", Panic, Fault, LogClass::Hang)
    },
    KernelRule {
        holds: PANIC_OF_OOPS,
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: (?P<about>.*?)(?: \]---)?$",
        because: "the kernel gave up because of an exception in its own code",
        ..rule("panic-of-oops", Panic, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: PANIC_OF_HARDWARE,
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: (?P<about>.*?)(?: \]---)?$",
        because: "the kernel gave up because the hardware reported an error",
        ..rule("panic-of-hardware", Panic, Fault, LogClass::HardwareError)
    },
    KernelRule {
        holds: PANIC_OF_MEMORY,
        pattern: r"^(?:---\[ end )?Kernel panic - not syncing: (?P<about>.*?)(?: \]---)?$",
        because: "the kernel gave up because it had no memory left",
        ..rule("panic-of-memory", Panic, Fault, LogClass::Oom)
    },
    // An exception in the kernel's own code.
    KernelRule {
        holds: &["[#"],
        // Every exception has its words and the number of the oops in brackets: `Oops: 0002 [#1]`, `Internal error: Oops:
        // 96000004 [#1]`, `invalid opcode: 0000 [#1]`. A console may run them into the message before.
        pattern: r"(?:^|[a-z])(?P<about>(?:kernel |segment-related )?(?:Oops|Internal error|Kernel BUG|general protection fault|invalid opcode|divide[ _]error|int3|stack segment|segment not present|invalid TSS|alignment check|control protection fault|double[ -]fault|simd exception|stack overflow)(?:[:,( -].*)?) \[#[0-9]{1,4}\]",
        because: "the kernel counts its oopses in brackets",
        ..rule("oops", Oops, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: &["PANIC: double fault"],
        pattern: r"^(?:traps: )?(?P<about>PANIC: double fault)",
        because: "an exception came while the kernel entered another",
        ..rule("double-fault", Oops, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: &["nable to handle "],
        pattern: r"^(?:BUG: )?[Uu]nable to handle (?P<about>kernel [A-Za-z -]+?|page fault) (?:at|for|outside) ",
        unless: &[&["without uaccess"]],
        because: "the kernel accessed memory it may not",
        ..rule("bad-access", Oops, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: &["BUG: kernel NULL pointer dereference"],
        pattern: r"^BUG: (?P<about>kernel NULL pointer dereference), address: ",
        because: "the kernel followed a null pointer",
        ..rule("null-pointer", Oops, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: &["ernel BUG at "],
        pattern: r"^[Kk]ernel BUG at (?P<about>[^ ]+:[0-9]+)!",
        because: "an assertion of the kernel failed, which ends in an exception",
        ..rule("kernel-bug", Bug, Fault, LogClass::Oops)
    },
    KernelRule {
        holds: &["Busy inodes after unmount"],
        pattern: r"^VFS: Busy inodes after unmount of ",
        because: "inodes outlive their file system: what uses them next uses freed memory",
        ..rule("busy-inodes", Oops, Fault, LogClass::Oops)
    },
    // The kernel's state is wrong, and it goes on.
    KernelRule {
        holds: &["BUG: "],
        pattern: r"^BUG: (?P<about>[^ ].*)",
        unless: &[BUG_OF_OTHERS],
        because: "the kernel found its own state wrong and went on",
        ..rule("bug", Bug, Fault, LogClass::Bug)
    },
    KernelRule {
        holds: &["without uaccess"],
        pattern: r"^Unable to handle (?P<about>kernel access to user memory) without uaccess routines",
        because: "the kernel used a pointer of a process without leave (RISC-V wording)",
        ..rule("user-access", Bug, Fault, LogClass::Bug)
    },
    // Hardware.
    KernelRule {
        holds: &["SError"],
        pattern: r"^(?:SError Interrupt on CPU(?P<cpu>[0-9]+), code |CPU[0-9]+: SError detected, |Bad mode in Error handler detected.*-- SError)",
        because: "an external abort arrived that no instruction can be blamed for",
        ..rule("serror", Serror, Fault, LogClass::HardwareError)
    },
    KernelRule {
        holds: &["Machine Check Exception: ", "event severity: fatal"],
        pattern: r"^(?:mce: )?(?:\{[0-9]+\})?\[Hardware Error\]: ?(?:CPU (?P<cpu>[0-9]+): Machine Check Exception: |event severity: fatal)",
        because: "the processor or the firmware recorded an error that was not corrected",
        ..rule("machine-check", MachineCheck, Fault, LogClass::HardwareError)
    },
    KernelRule {
        holds: &["Error:"],
        pattern: r"^CPU:(?P<cpu>[0-9]+), Error: ?(?P<about>[^ ,]+@0x[0-9a-f]+), ?irq=[0-9]+",
        because: "a fabric of the Tegra reported a failed access (drivers/soc/tegra/cbb)",
        ..rule("cbb", BusError, Fault, LogClass::HardwareError)
    },
    // No progress.
    KernelRule {
        holds: &["for more than "],
        // A name may hold a line break, so the pid may begin a line.
        pattern: r"^(?:INFO: task (?P<task>.*)|[^\[\]]*):(?P<pid>[0-9]+) (?:blocked(?: in I/O wait)?|can't die) for more than (?P<seconds>[0-9]+) seconds\.$",
        because: "a task slept without a way to wake it for longer than the kernel allows",
        ..rule("hung-task", HungTask, Fault, LogClass::Hang)
    },
    KernelRule {
        holds: &["BUG: soft lockup"],
        pattern: r"^(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(?P<cpu>[0-9]+) stuck for (?P<seconds>[0-9]+)s!(?: \[(?P<task>.*):(?P<pid>[0-9]+)\])?",
        because: "a CPU ran the kernel for that long without scheduling",
        ..rule("soft-lockup", SoftLockup, Fault, LogClass::Hang)
    },
    KernelRule {
        holds: &["detected hard LOCKUP"],
        pattern: r"^(?:NMI )?(?:watchdog: )?(?:CPU[0-9]+: )?Watchdog detected hard LOCKUP on cpu (?P<cpu>[0-9]+)",
        because: "a CPU took no interrupt for that long",
        ..rule("hard-lockup", HardLockup, Fault, LogClass::Hang)
    },
    KernelRule {
        holds: &["detected stall", "detected expedited stall"],
        pattern: r"^(?:rcu: )?INFO: (?P<about>rcu[a-z_]*) (?:self-)?detected (?:expedited )?stalls? on ",
        because: "a CPU or task holds up RCU; the flavour varies with the kernel's configuration",
        ..rule("rcu-stall", RcuStall, Fault, LogClass::Hang)
    },
    KernelRule {
        holds: &["BUG: workqueue lockup"],
        pattern: r"^BUG: workqueue lockup - pool .* stuck for (?P<seconds>[0-9]+)s!",
        because: "a pool of workers made no progress for that long",
        ..rule("workqueue-lockup", WorkqueueLockup, Fault, LogClass::Hang)
    },
    // Memory ran out. One kill has several lines; [`super::oom`] makes one finding of them.
    KernelRule {
        holds: &["oom-kill:constraint="],
        pattern: r"^oom-kill:constraint=.*?,(?:(?P<global>global_oom)|oom_memcg=(?P<cgroup>[^,]*)),.*?task=(?P<task>.*),pid=(?P<pid>[0-9]+),uid=[0-9]+",
        because: "the summary of a kill, by kernels since 4.19",
        ..rule("oom-summary", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["ut of memory"],
        pattern: r"^(?:(?P<global>Out of memory)|(?P<memcg>Memory cgroup out of memory))(?: \(oom_kill_allocating_task\))?: Killed process (?P<pid>[0-9]+),? \((?P<task>.*)\)",
        because: "the kernel killed a process to get memory",
        ..rule("oom-killed", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["or sacrifice child"],
        pattern: r"^(?:(?P<global>Out of memory)|(?P<memcg>Memory cgroup out of memory))(?: \(oom_kill_allocating_task\))?: Kill process (?P<pid>[0-9]+) \((?P<task>.*)\) score [0-9]+ or sacrifice child",
        because: "the choice of kernels before 5.0: this process, or a child of it",
        ..rule("oom-chosen", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["Killed process "],
        pattern: r"^Killed process (?P<pid>[0-9]+),? \((?P<task>.*)\),? .*total-vm:[0-9]+kB",
        because: "the kill itself, by kernels before 5.0",
        ..rule("oom-killed-bare", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["oom_reaper: "],
        pattern: r"^oom_reaper: (?:reaped process|unable to reap pid:)\s*(?P<pid>[0-9]+) ?\((?P<task>.*)\)",
        because: "memory was taken back from a process that had been killed for it",
        ..rule("oom-reaped", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["due to memory "],
        pattern: r"^(?:systemd-oomd\[[0-9]+\]: )?Killed (?P<cgroup>/[^ ]*) due to memory (?:pressure|used) ",
        by_process: true,
        because: "systemd-oomd killed a control group before the kernel had to",
        ..rule("systemd-oomd", OomKill, Fault, LogClass::Oom)
    },
    KernelRule {
        holds: &["page allocation failure: order:"],
        pattern: r"^(?P<task>.*): page allocation failure: (?P<about>order:[0-9]+)",
        because: "no free block of that order: memory is short or in pieces",
        ..rule("page-allocation", AllocFailure, Notice, LogClass::Warning)
    },
    // A process dies of its own fault.
    KernelRule {
        holds: &[": segfault at "],
        pattern: r"^(?P<task>[^\]]*)\[(?P<pid>[0-9]+)\]: (?P<sigsegv>segfault) at [0-9a-f]+ ip (?P<ip>[0-9a-f]+) sp [0-9a-f]+ error [0-9a-f]+(?: in (?P<module>.+)\[(?:(?P<offset>[0-9a-f]+),)?(?P<base>[0-9a-f]+)\+[0-9a-f]+\])?",
        because: "the kernel of an x86 machine tells of a SIGSEGV that nobody handles",
        ..rule("segfault-x86", Segfault, Aside, LogClass::Clean)
    },
    KernelRule {
        holds: &["traps: "],
        pattern: r"^traps: (?P<task>.*)\[(?P<pid>[0-9]+)\] (?:(?P<sigsegv>general protection fault|trap stack segment)|(?P<sigill>trap invalid opcode)|(?P<sigfpe>trap divide error)|(?P<sigtrap>trap int3)|(?P<sigbus>trap alignment check)|trap [a-z ]+) ip:(?P<ip>[0-9a-f]+) sp:[0-9a-f]+ error:[0-9a-f]+(?: in (?P<module>.+)\[(?:(?P<offset>[0-9a-f]+),)?(?P<base>[0-9a-f]+)\+[0-9a-f]+\])?",
        because: "the kernel of an x86 machine tells of an exception in a process, which is not its own",
        ..rule("trap-x86", Segfault, Aside, LogClass::Clean)
    },
    KernelRule {
        holds: &["]: unhandled "],
        pattern: r"^(?P<task>[^\]]*)\[(?P<pid>[0-9]+)\]: unhandled (?:exception: )?(?:[A-Z]{4} \(lower EL\), ESR 0x[0-9a-f]+, )?(?P<about>[A-Za-z0-9 ]+?)(?: \((?P<signal>[0-9]+)\) at 0x[0-9a-f]+, esr 0x[0-9a-f]+)?(?:,? in (?P<module>.+)\[(?:(?P<offset>[0-9a-f]+),)?(?P<base>[0-9a-f]+)\+[0-9a-f]+\])?$",
        because: "the kernel of an arm64 machine tells of an exception in a process (debug.exception-trace=1)",
        ..rule("segfault-arm64", Segfault, Aside, LogClass::Clean)
    },
    // The GPU of a Tegra. Names of functions say gv11b or gk20a on every chip.
    KernelRule {
        holds: &["MMU FAULT] mmu engine", "mmu fault", "page fault error: err_type"],
        pattern: r"^(?:nvgpu|gk20a)[: ].*(?:\[MMU FAULT\] mmu engine|generated a mmu fault|mmu fault (?:id=|on engine)|page fault error: err_type)",
        because: "the GPU accessed an address that is not mapped for it",
        ..rule("nvgpu-mmu", GpuFault, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["error notifier set to "],
        // 43 only clears up after another fault. The camera's driver has notifiers too, with numbers of its own.
        pattern: r"^(?:nvgpu|gk20a)[: ].*error notifier set to (?P<code>[0-9]+),? (?:for )?ch (?P<about>[0-9]+)(?: owned by (?P<task>.+))?",
        unless: &[&["set to 43 ", "set to 43,"]],
        because: "nvgpu tells the owner of a channel that it failed, by the number of an Xid",
        ..rule("nvgpu-notifier", GpuFault, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["ctxsw timeout"],
        pattern: r"^(?:nvgpu|gk20a)[: ].*ctxsw timeout",
        because: "a context of the GPU could not be switched in time",
        ..rule("nvgpu-timeout", GpuFault, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["ACR bootstrap failed", "Failed initialization for: "],
        pattern: r"^(?:nvgpu|gk20a)[: ].*(?:ACR bootstrap failed|Failed initialization for: (?P<about>[^ ]+))",
        because: "the GPU did not start; an unclean restart may leave it so until power is cut",
        ..rule("nvgpu-start", GpuDead, Fault, LogClass::Gpu)
    },
    // Discrete GPUs, and those of a Thor.
    KernelRule {
        holds: &["NVRM: Xid ("],
        // 45 clears up after another fault, 79 and 154 are of the next two rules.
        pattern: r"^NVRM: Xid \((?:PCI:)?(?P<about>[0-9a-fA-F:.]+)\): (?P<code>[0-9]+)(?:, pid='?(?P<pid>[0-9]+)'?, name='?(?P<task>[^,']+)'?)?",
        unless: &[&["): 45,", "): 79,", "): 154,"]],
        because: "the driver reports a fault of the GPU by number",
        ..rule("xid", GpuFault, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["): 79,"],
        pattern: r"^NVRM: Xid \((?:PCI:)?(?P<about>[0-9a-fA-F:.]+)\): (?P<code>79),",
        because: "the GPU is no longer on the bus",
        ..rule("xid-bus", GpuDead, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["): 154,"],
        pattern: r"^NVRM: Xid \((?:PCI:)?[0-9a-fA-F:.]+\): (?P<code>154), .* to 0x[0-9a-f]+ \((?P<about>[^)]+)\)",
        unless: &[&["to 0x0 (None)"]],
        because: "what the driver wants done after an earlier fault: until then every trial is contaminated",
        ..rule("xid-recovery", GpuDead, Fault, LogClass::Gpu)
    },
    KernelRule {
        holds: &["RmInitAdapter failed"],
        pattern: r"^NVRM: GPU (?P<about>[0-9a-fA-F:.]+): RmInitAdapter failed!",
        because: "the driver could not start the GPU",
        ..rule("nvrm-start", GpuDead, Fault, LogClass::Gpu)
    },
    // Memory of a Tegra's GPU: what the library says in the process.
    KernelRule {
        holds: &["NvMapMem"],
        // The number before `error` is that of the ioctl, the same in every report.
        pattern: r"^NvMapMem[A-Za-z]+: (?:[0-9]+ )?error (?P<code>[0-9]+)$",
        by_process: true,
        because: "NvMap gave no memory; 12 is ENOMEM, 0 follows another error",
        ..rule("nvmap", NvmapFailure, Fault, LogClass::GpuMemory)
    },
    KernelRule {
        holds: &["NvRmMemInit"],
        pattern: r"^NvRmMemInit[A-Za-z]+ failed with (?P<about>Permission denied)",
        by_process: true,
        because: "the user may not open /dev/nvmap: put them into the groups video and render",
        ..rule("nvmap-denied", NvmapDenied, Fault, LogClass::Environment)
    },
    // Heat and supply.
    KernelRule {
        holds: &["critical temperature reached"],
        pattern: r"^thermal (?P<about>thermal_zone[0-9]+): (?:[^ ]+: )?critical temperature reached",
        because: "a zone passed its critical trip and the kernel shuts down",
        ..rule("critical-temperature", Thermal, Fault, LogClass::Thermal)
    },
    KernelRule {
        holds: &["HARDWARE PROTECTION "],
        pattern: r"^(?:reboot: )?HARDWARE PROTECTION [a-z]+ \((?P<about>Temperature too high)",
        because: "the kernel ends the machine before heat does",
        ..rule("protection-thermal", Thermal, Fault, LogClass::Thermal)
    },
    KernelRule {
        holds: &["HARDWARE PROTECTION "],
        pattern: r"^(?:reboot: )?HARDWARE PROTECTION [a-z]+ \((?P<about>[^)]*voltage drop[^)]*)\)",
        because: "a regulator that the machine cannot do without lost its input",
        ..rule("protection-voltage", UnderVoltage, Fault, LogClass::Power)
    },
    KernelRule {
        holds: &["HARDWARE PROTECTION "],
        pattern: r"^(?:reboot: )?HARDWARE PROTECTION [a-z]+ \((?P<about>[^)]*over-current[^)]*)\)",
        because: "a regulator that the machine cannot do without was overloaded",
        ..rule("protection-current", OverCurrent, Fault, LogClass::Power)
    },
    KernelRule {
        holds: &["OC ALARM 0x"],
        pattern: r"^soctherm: OC ALARM (?P<about>0x[0-9a-f]*[13579bdf])$",
        because: "bit 0 is the comparator for low input voltage, whatever the text says",
        ..rule("oc-alarm-voltage", UnderVoltage, Notice, LogClass::Power)
    },
    KernelRule {
        holds: &["OC ALARM 0x"],
        pattern: r"^soctherm: OC ALARM (?P<about>0x[0-9a-f]*[2468ace])$",
        because: "average or peak current was limited: throttling, no fault",
        ..rule("oc-alarm-current", OverCurrent, Notice, LogClass::Power)
    },
    KernelRule {
        holds: &["ndervoltage detected!", "nder-voltage detected!"],
        pattern: r"^(?:hwmon hwmon[0-9]+: )?Under-?voltage detected!",
        because: "the supply of a Raspberry Pi sagged",
        ..rule("undervoltage", UnderVoltage, Notice, LogClass::Power)
    },
    // A reset that software orders.
    KernelRule {
        holds: &["softdog: Initiating "],
        pattern: r"^softdog: Initiating (?P<about>system reboot|panic)",
        because: "nobody fed the software watchdog",
        ..rule("softdog", Watchdog, Fault, LogClass::Watchdog)
    },
    KernelRule {
        holds: &["pretimeout event"],
        pattern: r"^watchdog: (?P<about>watchdog[0-9]+): pretimeout event",
        because: "nobody fed the watchdog, which warns before it acts",
        ..rule("pretimeout", Watchdog, Fault, LogClass::Watchdog)
    },
    KernelRule {
        holds: &["Resetting"],
        pattern: r"^(?:sysrq: |SysRq : )(?:SysRq : )?Resetting$",
        because: "somebody asked the kernel for a reset without a shutdown (sysrq-b)",
        ..rule("sysrq-reset", SoftwareReset, Fault, LogClass::SoftwareReset)
    },
    // What the kernel has to say about itself.
    KernelRule {
        holds: &["WARNING: "],
        pattern: r"^WARNING: (?:CPU: [0-9]+ PID: [0-9]+ at )?(?P<about>[^ ]+:[0-9]+)(?: at)? ",
        because: "a check of the kernel failed and it went on",
        ..rule("warning", Warning, Notice, LogClass::Warning)
    },
    KernelRule {
        holds: &["UBSAN: "],
        pattern: r"^UBSAN: (?P<about>[a-z-]+) in ",
        because: "the kernel did something that C does not define",
        ..rule("ubsan", Warning, Notice, LogClass::Warning)
    },
    KernelRule {
        holds: &["WARNING: ", "[ BUG: ", "[ INFO: ", "INFO: trying to register", "BUG: spinlock", "BUG: rwlock"],
        pattern: r"^(?:WARNING: (?:possible [a-z ]+ detected|suspicious RCU usage|inconsistent lock state|[A-Z]+-[a-z]+ -> [A-Z]+-[a-z]+ lock order detected|bad unlock balance detected|[a-z ]+ held )|\[ (?:BUG|INFO): .* \]$|INFO: trying to register non-static key|BUG: (?:spinlock|rwlock) )",
        because: "a locking rule was broken: a deadlock is possible, none was seen",
        ..rule("lockdep", Lockdep, Notice, LogClass::Lockdep)
    },
    KernelRule {
        holds: &["BUG: memory leak", "new suspected memory leaks"],
        pattern: r"^(?:BUG: memory leak$|kmemleak: [0-9]+ new suspected memory leaks)",
        because: "memory of the kernel is no longer reachable",
        ..rule("leak", Leak, Notice, LogClass::Leak)
    },
];

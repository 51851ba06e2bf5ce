//! What a kernel log can say: the closed vocabulary of faults, one finding, and the log as a whole.
//!
//! Data only. Which line says what is decided in [`crate::decide::kernel_log`].

use serde::{Deserialize, Serialize};

use super::words::words;

/// The longest text of a finding, in bytes.
pub const FINDING_BYTES_MAX: usize = 240;

words! {
    /// What one line of a kernel log tells of.
    KernelFault {
        /// The kernel gave up.
        Panic = "panic",
        /// The kernel accessed memory it may not, or met an exception in its own code.
        Oops = "oops",
        /// The kernel found its own state wrong (`kernel BUG at`, `BUG:`).
        Bug = "bug",
        /// An asynchronous external abort of an Arm core.
        Serror = "serror",
        /// A machine check or a fatal error record of the firmware.
        MachineCheck = "machine-check",
        /// An error that a bus fabric of a Tegra reported.
        BusError = "bus-error",
        /// A task in uninterruptible sleep for too long.
        HungTask = "hung-task",
        /// A CPU that runs the kernel and schedules nothing.
        SoftLockup = "soft-lockup",
        /// A CPU that takes no interrupts.
        HardLockup = "hard-lockup",
        /// A CPU or task that blocks a grace period of RCU.
        RcuStall = "rcu-stall",
        /// A pool of workers that makes no progress.
        WorkqueueLockup = "workqueue-lockup",
        /// A process killed because memory ran out.
        OomKill = "oom-kill",
        /// The kernel had no block of memory of the size asked for, and went on.
        AllocFailure = "alloc-failure",
        /// A process died of a fault of its own: a bad access, instruction or division.
        Segfault = "segfault",
        /// The GPU or its driver reported a fault of a channel, context or engine.
        GpuFault = "gpu-fault",
        /// The GPU did not start, or needs a reset before it can be used.
        GpuDead = "gpu-dead",
        /// NvMap, the memory manager of a Tegra, could not give memory.
        NvmapFailure = "nvmap-failure",
        /// NvMap may not be opened by this user: nothing is wrong with the GPU.
        NvmapDenied = "nvmap-denied",
        /// A critical temperature, and the shutdown that follows.
        Thermal = "thermal",
        /// Too much current was drawn.
        OverCurrent = "over-current",
        /// The supply sagged.
        UnderVoltage = "under-voltage",
        /// A watchdog was not fed, and acts.
        Watchdog = "watchdog",
        /// Software reset the machine without a shutdown (sysrq-b).
        SoftwareReset = "software-reset",
        /// A warning of the kernel about itself.
        Warning = "warning",
        /// A locking rule was broken; nothing has happened yet.
        Lockdep = "lockdep",
        /// Memory of the kernel was leaked.
        Leak = "leak",
    }
}

words! {
    /// What a log as a whole, or one finding in it, amounts to.
    LogClass {
        /// The kernel gave up of its own accord.
        Panic = "panic",
        /// An exception in the kernel's code.
        Oops = "oops",
        /// Something stopped making progress.
        Hang = "hang",
        /// Hardware reported an uncorrected error.
        HardwareError = "hardware-error",
        /// Memory ran out and a process was killed.
        Oom = "oom",
        /// The GPU failed.
        Gpu = "gpu",
        /// Memory of the GPU could not be had.
        GpuMemory = "gpu-memory",
        /// Too hot to go on.
        Thermal = "thermal",
        /// The supply is not fit.
        Power = "power",
        /// A watchdog acted.
        Watchdog = "watchdog",
        /// A reset ordered by software.
        SoftwareReset = "software-reset",
        /// The kernel's state is wrong, and it went on.
        Bug = "bug",
        /// Something outside the kernel and the hardware is set up wrongly.
        Environment = "environment",
        /// Warnings alone.
        Warning = "warning",
        /// Reports on locking alone.
        Lockdep = "lockdep",
        /// Reports of leaks alone.
        Leak = "leak",
        /// Nothing that speaks against the machine.
        Clean = "clean",
    }
}

words! {
    /// Whose memory ran out.
    OomScope {
        /// The machine's.
        Global = "global",
        /// That of a control group.
        Cgroup = "cgroup",
        /// The line does not say.
        Unknown = "unknown",
    }
}

words! {
    /// How much a finding decides.
    Weight {
        /// The first fault of a log gives the log its class.
        Fault = "fault",
        /// Gives the class only to a log without a fault.
        Notice = "notice",
        /// A process's own affair: never the class of a log.
        Aside = "aside",
    }
}

/// Where in a file on the disk a process died.
///
/// Newer kernels print the offset in the file (`[offset,base+size]`), older ones the mapping alone (`[base+size]`):
/// the offset in a mapping is that in the file less where the mapping begins in the file, which no line holds
/// (`print_vma_addr` in mm/memory.c).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlace {
    /// Name of the file, without its directory.
    pub module: String,
    /// Offset of the instruction in the file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_offset: Option<u64>,
    /// Offset of the instruction from the start of its mapping, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping_offset: Option<u64>,
}

/// The facts that a line states beside the fault itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FaultDetail {
    /// Process: the victim, the hung task, the owner of a GPU channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name, which the kernel cuts to 15 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// CPU that is stuck or reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// How long it had been stuck, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    /// Number of an Xid or of an error notifier of nvgpu, which uses the same numbers; errno of NvMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// Signal that the process died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// Whose memory ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<OomScope>,
    /// Control group whose limit was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Where the process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<FaultPlace>,
    /// What it is about, in the kernel's words: the reason of a panic, a device, a flavour of RCU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// One line of a kernel log that tells of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFinding {
    /// What it tells of.
    pub fault: KernelFault,
    /// What that amounts to.
    pub class: LogClass,
    /// How much it decides.
    pub weight: Weight,
    /// The rule that matched.
    pub rule: String,
    /// The message without its prefix, cut to [`FINDING_BYTES_MAX`].
    pub text: String,
    /// Number of the line among all lines given, from 1.
    pub line: u64,
    /// Time since boot in microseconds, where the line states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_us: Option<u64>,
    /// What else the line states.
    #[serde(default)]
    pub detail: FaultDetail,
    /// How many lines said just this.
    pub times: u32,
}

words! {
    /// Which lines were judged.
    LogWindow {
        /// All of them.
        Whole = "whole",
        /// Those after the trial's own marker.
        Marked = "marked",
        /// All of them, since the marker is not in the log: nothing here can be tied to the trial.
        Unmarked = "unmarked",
    }
}

/// What a log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLog {
    /// Which lines were judged.
    pub window: LogWindow,
    /// Its class, by the first fault in it.
    pub class: LogClass,
    /// Whether the kernel panicked, whatever came first.
    pub panicked: bool,
    /// What was found, in the order of the log.
    pub findings: Vec<KernelFinding>,
    /// Findings beyond the limit, which were dropped.
    pub dropped: u64,
    /// Lines read.
    pub lines: u64,
}

impl KernelLog {
    /// The finding that gave the log its class; none in a clean log.
    pub fn deciding(&self) -> Option<&KernelFinding> {
        let first = |weight| self.findings.iter().find(|finding| finding.weight == weight);
        first(Weight::Fault).or_else(|| first(Weight::Notice))
    }

    /// The findings of one kind, in the order of the log.
    pub fn of(&self, fault: KernelFault) -> impl Iterator<Item = &KernelFinding> {
        self.findings.iter().filter(move |finding| finding.fault == fault)
    }
}

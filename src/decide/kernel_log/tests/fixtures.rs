//! Lines in the kernel's own formats, by the rule that must match them, and lines that no rule may match.
//!
//! Constructed from the formats in the kernel's sources and from lines that public reports quote.

/// What each rule matches: old and new wording, arm64 and x86.
pub(super) const MATCHED: &[(&str, &[&str])] = &[
    (
        "panic",
        &[
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
            "Kernel panic - not syncing: stack-protector: Kernel stack is corrupted in: nvgpu_ioctl+0x7ea/0x7f0",
            "Kernel panic - not syncing: corrupted stack end detected inside scheduler",
            "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
            "Kernel panic - not syncing: panic_on_warn set ...",
            "Kernel panic - not syncing: sysrq triggered crash",
            "---[ end Kernel panic - not syncing: sysrq triggered crash ]---",
        ],
    ),
    (
        "panic-of-hang",
        &[
            "Kernel panic - not syncing: softlockup: hung tasks",
            "Kernel panic - not syncing: hung_task: blocked tasks",
            "Kernel panic - not syncing: Hard LOCKUP",
            "Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 2",
            "Kernel panic - not syncing: RCU Stall",
            "Kernel panic - not syncing: watchdog pretimeout event",
        ],
    ),
    (
        "panic-of-oops",
        &[
            "Kernel panic - not syncing: Fatal exception",
            "Kernel panic - not syncing: Fatal exception in interrupt",
            "Kernel panic - not syncing: Oops: Fatal exception",
            "Kernel panic - not syncing: synchronous external abort: Fatal exception",
            "---[ end Kernel panic - not syncing: Oops: Fatal exception ]---",
        ],
    ),
    (
        "panic-of-hardware",
        &[
            "Kernel panic - not syncing: Asynchronous SError Interrupt",
            "Kernel panic - not syncing: Fatal machine check",
            "Kernel panic - not syncing: Fatal hardware error!",
        ],
    ),
    (
        "panic-of-memory",
        &[
            "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
            "Kernel panic - not syncing: Out of memory and no killable processes...",
            "Kernel panic - not syncing: System is deadlocked on memory",
        ],
    ),
    (
        "oops",
        &[
            "Internal error: Oops: 96000004 [#1] PREEMPT SMP",
            "Internal error: Oops: 0000000096000006 [#1] PREEMPT SMP",
            "Internal error: Oops - BUG: 0 [#1] PREEMPT SMP",
            "Internal error: Oops - undefined instruction: 0 [#1] SMP ARM",
            "Internal error: synchronous external abort: 96000210 [#1] PREEMPT SMP",
            "Internal error: : 1b [#1] SMP ARM",
            "Oops: 0002 [#1] SMP",
            "Oops: Kernel access of bad area, sig: 11 [#1]",
            "Oops: general protection fault, probably for non-canonical address 0xdffffc0000000004: 0000 [#1] SMP PTI",
            "Oops: int3: 0000 [#1] SMP NOPTI",
            "general protection fault: 0000 [#1] SMP KASAN",
            "general protection fault, probably for non-canonical address 0xdffffc0002c3fefa: 0000 [#1] PREEMPT SMP",
            "segment-related general protection fault: beec [#2] PREEMPT SMP PTI",
            "invalid opcode: 0000 [#1] SMP NOPTI",
            "divide error: 0000 [#1] SMP",
            "divide_error: 0000 [#1] PREEMPT SMP",
            "stack segment: 0000 [#1] SMP",
            "double fault: 0000 [#1] SMP",
            "Kernel BUG [#1]",
            "kernel stack overflow (double-fault): 0000 [#1] PREEMPT SMP",
            // The console ran two messages together.
            "kasan: GPF could be caused by NULL-ptr deref or user memory accessgeneral protection fault: 0000 [#1] SMP",
        ],
    ),
    ("double-fault", &["PANIC: double fault, error_code: 0x0", "traps: PANIC: double fault, error_code: 0x0"]),
    (
        "bad-access",
        &[
            "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
            "Unable to handle kernel paging request at virtual address ffffffc0fefd8ea8",
            "Unable to handle kernel access to user memory outside uaccess routines at virtual address 0000ffff9c0b6000",
            "Unable to handle kernel write to read-only memory at virtual address ffff800008b10000",
            "Unable to handle kernel execute from non-executable memory at virtual address ffff000081234000",
            "BUG: unable to handle kernel paging request at ffff880214d12c00",
            "BUG: unable to handle kernel NULL pointer dereference at 0000000000000286",
            "BUG: unable to handle page fault for address: ffffde202758ca0b",
            "BUG: Unable to handle kernel data access at 0x8000000041a25f20",
        ],
    ),
    ("null-pointer", &["BUG: kernel NULL pointer dereference, address: 0000000000000010"]),
    ("kernel-bug", &["kernel BUG at mm/usercopy.c:102!", "Kernel BUG at drivers/gpu/nvgpu/common/mm/mm.c:84!"]),
    ("busy-inodes", &["VFS: Busy inodes after unmount of mmcblk0p1. Self-destruct in 5 seconds.  Have a nice day..."]),
    (
        "bug",
        &[
            "BUG: KASAN: use-after-free in nvmap_ioctl_free+0x40/0x98",
            "BUG: sleeping function called from invalid context at mm/slab.h:420",
            "BUG: scheduling while atomic: python3/4711/0x00000002",
            "BUG: Bad page state in process python3  pfn:ab652",
            "BUG: workqueue leaked lock or atomic: kworker/0:1/0x00000000/353",
            "BUG: stack guard page was hit at ffffc9001a6e7fe8 (stack is ffffc9001a6e8000..ffffc9001a6effff)",
        ],
    ),
    (
        "user-access",
        &["Unable to handle kernel access to user memory without uaccess routines at virtual address 000000000cc6b0d0"],
    ),
    (
        "serror",
        &[
            "SError Interrupt on CPU2, code 0xbe000011 -- SError",
            "SError Interrupt on CPU2, code 0x00000000be000011 -- SError",
            "CPU1: SError detected, daif=140, spsr=0x40000045, mpidr=80000001, esr=bf000002",
            "Bad mode in Error handler detected on CPU0, code 0xbf000002 -- SError",
        ],
    ),
    (
        "machine-check",
        &[
            "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f",
            "[Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f",
            "{1}[Hardware Error]: event severity: fatal",
        ],
    ),
    ("cbb", &["CPU:0, Error: cbb-fabric@0x13a00000, irq=22", "CPU:0, Error:CBB-NOC@0x2300000,irq=14"]),
    (
        "hung-task",
        &[
            "INFO: task python3:1834 blocked for more than 120 seconds.",
            "INFO: task kworker/u4:8:11933 blocked for more than 143 seconds.",
            "INFO: task python3:1834 blocked in I/O wait for more than 120 seconds.",
            "INFO: task python3:1834 can't die for more than 143 seconds.",
            // The name of the task holds a line break.
            "b:18088 blocked for more than 143 seconds.",
        ],
    ),
    (
        "soft-lockup",
        &[
            "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [python3:1834]",
            "NMI watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [kworker/0:13:3571]",
            "BUG: soft lockup - CPU#1 stuck for 67s! [swapper/1:0]",
        ],
    ),
    (
        "hard-lockup",
        &[
            "NMI watchdog: Watchdog detected hard LOCKUP on cpu 0",
            "Watchdog detected hard LOCKUP on cpu 3",
            "watchdog: Watchdog detected hard LOCKUP on cpu 3",
            "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 5",
        ],
    ),
    (
        "rcu-stall",
        &[
            "INFO: rcu_sched detected stalls on CPUs/tasks:",
            "INFO: rcu_sched self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-...D } 6087 jiffies s: 149 root: 0x8/.",
            "INFO: rcu_tasks detected stalls on tasks:",
        ],
    ),
    ("workqueue-lockup", &["BUG: workqueue lockup - pool cpus=2 node=0 flags=0x0 nice=0 stuck for 33s!"]),
    (
        "oom-summary",
        &[
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/x.service,task=python3,pid=2092,uid=0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/x,task_memcg=/x/y,task=python3,pid=2092,uid=1000",
        ],
    ),
    (
        "oom-killed",
        &[
            "Out of memory: Killed process 2092 (python3) total-vm:12345678kB, anon-rss:3456789kB, file-rss:1234kB, shmem-rss:0kB, UID:0 pgtables:38108kB oom_score_adj:0",
            "Memory cgroup out of memory: Killed process 2092 (python3) total-vm:12345678kB, anon-rss:3456789kB, file-rss:1234kB, shmem-rss:0kB, UID:0 pgtables:38108kB oom_score_adj:0",
            "Out of memory (oom_kill_allocating_task): Killed process 2092 (tokio-runtime (w) total-vm:1kB, anon-rss:1kB",
        ],
    ),
    (
        "oom-chosen",
        &[
            "Out of memory: Kill process 2092 (x) score 1 or sacrifice child",
            "Memory cgroup out of memory: Kill process 2092 (python3) score 1000 or sacrifice child",
        ],
    ),
    (
        "oom-killed-bare",
        &["Killed process 2093 (python3) total-vm:12345678kB, anon-rss:3456789kB, file-rss:1234kB, shmem-rss:0kB"],
    ),
    ("oom-reaped", &["oom_reaper: reaped process 2092 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB"]),
    (
        "systemd-oomd",
        &[
            "Killed /user.slice/user-1000.slice/session-2.scope due to memory pressure for /user.slice being 68.21% > 50.00% for > 20s with reclaim activity",
            "systemd-oomd[412]: Killed /system.slice/x.service due to memory used (7800000000) / total (8000000000) and swap used (3900000000) / total (4000000000) being more than 90.00%",
        ],
    ),
    (
        "page-allocation",
        &["python3: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null)"],
    ),
    (
        "segfault-x86",
        &[
            "python3[1834]: segfault at 0 ip 00007f1a2b4c5d6e sp 00007ffd12345678 error 4 in libfoo.so.1[7f1a2b400000+200000]",
            "python3[1834]: segfault at 50 ip 00007f88766c71e0 sp 00007ffe8c583868 error 4 in libbpf.so.1.4.7[131e0,7f88766c0000+3e000] likely on CPU 0 (core 0, socket 0)",
            "pt main thread[77]: segfault at 8 ip 000056087e9aa136 sp 00007fffab66a9f0 error 6 in python3.10[56087e600000+6e2000] likely on CPU 3 (core 2, socket 0)",
            "a.out[7]: segfault at 0 ip 0000000000000000 sp 00007ffd12345678 error 14",
        ],
    ),
    (
        "trap-x86",
        &[
            "traps: python3[4321] general protection fault ip:7feb96eb56a1 sp:20000fd0 error:0 in libc.so.6[7feb96e75000+9c000]",
            "traps: python3[4321] trap invalid opcode ip:55d0c0de1234 sp:7ffc00000000 error:0 in a.out[1234,55d0c0de1000+1000]",
            "traps: python3[4321] trap divide error ip:55d0c0de1234 sp:7ffc00000000 error:0",
        ],
    ),
    (
        "segfault-arm64",
        &[
            "python3[1673]: unhandled level 2 translation fault (11) at 0x00000018, esr 0x92000006, in libc-2.27.so[7f9860d000+138000]",
            "python3[421]: unhandled level 2 translation fault (11) at 0x00000000, esr 0x92000006",
            "python3[1834]: unhandled exception: DABT (lower EL), ESR 0x92000006, level 2 translation fault in libfoo.so[ffff8a400000+1c000]",
            "python3[1834]: unhandled exception: DABT (lower EL), ESR 0x0000000092000006, level 2 translation fault in libfoo.so[2d2c,ffff8a400000+1c000]",
            "probe[1234]: unhandled exception: User debug trap in probe[aaaab4560000+1000]",
        ],
    ),
    (
        "nvgpu-mmu",
        &[
            "nvgpu: 17000000.gpu gv11b_mm_mmu_fault_handle_buf_valid_entry:532  [ERR]  page fault error: err_type = 0x8, fault_status = 0x200",
            "nvgpu: 17000000.gpu      gv11b_fb_mmu_fault_info_dump:294  [ERR]  [MMU FAULT] mmu engine id:  18, ch id:  479, fault addr: 0x0, fault addr aperture: 0, fault type: invalid pde, access type: virt read,",
            "nvgpu: 17000000.gpu       nvgpu_rc_mmu_fault_recovery:399  [ERR]  mmu fault id=8 id_type=1 act_eng_bitmask=00000020",
            "nvgpu: 17000000.gpu       nvgpu_tsg_set_ctx_mmu_error:1069 [ERR]  TSG 8 generated a mmu fault",
        ],
    ),
    (
        "nvgpu-notifier",
        &[
            "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 31 for ch 479 owned by consumer_thread",
            "nvgpu: 57000000.gpu   nvgpu_set_error_notifier_locked:137  [ERR]  error notifier set to 8 for ch 507",
            "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 13, ch 398 owned by python3",
        ],
    ),
    (
        "nvgpu-timeout",
        &[
            "nvgpu: 17000000.gpu   nvgpu_tsg_check_ctxsw_timeout:511  [ERR]  ctxsw timeout error: active engine id =0, tsg=8, info: awaiting ack ms=3000",
        ],
    ),
    (
        "nvgpu-start",
        &[
            "nvgpu: 17000000.gpu                    gk20a_acr_bootstrap:104  [ERR]  ACR bootstrap failed",
            "nvgpu: 17000000.gpu              nvgpu_finalize_poweron:1287 [ERR]  Failed initialization for: g->ops.acr.acr_construct_execute",
        ],
    ),
    (
        "xid",
        &[
            "NVRM: Xid (PCI:0000:01:00): 31, pid=1834, name=python3, Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS",
            "NVRM: Xid (PCI:0000:01:00): 62, 323f0f30 0000c3d8 00000000 206dae68 206da022 206da190 206d85f6 206d8d86",
            "NVRM: Xid (0000:01:00): 13, Graphics Exception: ESR 0x404600=0x80000002",
            "NVRM: Xid (PCI:0000:01:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s of waiting for RPC response",
        ],
    ),
    ("xid-bus", &["NVRM: Xid (PCI:0000:01:00): 79, pid=1834, name=python3, GPU has fallen off the bus."]),
    (
        "xid-recovery",
        &[
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)",
        ],
    ),
    ("nvrm-start", &["NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0xffff:2477)"]),
    ("nvmap", &["NvMapMemAllocInternalTagged: 1075072515 error 12", "NvMapMemHandleAlloc: error 0"]),
    ("nvmap-denied", &["NvRmMemInitNvmap failed with Permission denied"]),
    (
        "critical-temperature",
        &[
            "thermal thermal_zone8: critical temperature reached (105 C), shutting down",
            "thermal thermal_zone8: critical temperature reached(105 C),shutting down",
            "thermal thermal_zone0: gpu-thermal: critical temperature reached, shutting down",
            "thermal thermal_zone0: gpu-thermal: critical temperature reached",
        ],
    ),
    (
        "protection-thermal",
        &[
            "reboot: HARDWARE PROTECTION shutdown (Temperature too high)",
            "reboot: HARDWARE PROTECTION reboot (Temperature too high)",
        ],
    ),
    (
        "protection-voltage",
        &[
            "reboot: HARDWARE PROTECTION shutdown (System critical voltage drop detected)",
            "reboot: HARDWARE PROTECTION shutdown (System critical regulator: voltage drop detected)",
        ],
    ),
    (
        "protection-current",
        &["reboot: HARDWARE PROTECTION shutdown (System critical regulator: over-current detected)"],
    ),
    ("oc-alarm-voltage", &["soctherm: OC ALARM 0x00000001"]),
    ("oc-alarm-current", &["soctherm: OC ALARM 0x00000004"]),
    ("undervoltage", &["hwmon hwmon1: Undervoltage detected!", "Under-voltage detected! (0x00050005)"]),
    ("softdog", &["softdog: Initiating system reboot", "softdog: Initiating panic"]),
    ("pretimeout", &["watchdog: watchdog0: pretimeout event"]),
    ("sysrq-reset", &["sysrq: Resetting", "SysRq : Resetting", "sysrq: SysRq : Resetting"]),
    (
        "warning",
        &[
            "WARNING: CPU: 1 PID: 8377 at drivers/gpu/nvgpu/common/fifo/channel.c:7209 nvgpu_channel_close+0x1f7/0x5a0",
            "WARNING: fs/dcache.c:829 at fast_dput+0x334/0x430, CPU#0: python3/6007",
        ],
    ),
    ("ubsan", &["UBSAN: array-index-out-of-bounds in drivers/gpu/nvgpu/os/linux/ioctl.c:120:9"]),
    (
        "lockdep",
        &[
            "WARNING: possible circular locking dependency detected",
            "WARNING: possible recursive locking detected",
            "WARNING: suspicious RCU usage",
            "WARNING: inconsistent lock state",
            "WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
            "[ INFO: suspicious RCU usage. ]",
            "[ BUG: Invalid wait context ]",
            "[ BUG: bad unlock balance detected! ]",
            "INFO: trying to register non-static key.",
            "BUG: spinlock recursion on CPU#0, python3/5032",
        ],
    ),
    ("leak", &["BUG: memory leak", "kmemleak: 12 new suspected memory leaks (see /sys/kernel/debug/kmemleak)"]),
];

/// Lines that look like faults and are none.
pub(super) const INNOCENT: &[&str] = &[
    // Out of memory is not always a kill, and a reason is not yet a kill.
    "ODEBUG: Out of memory. ODEBUG disabled",
    "rcu: \tUnless rcu_sched kthread gets sufficient CPU time, OOM is now expected behavior.",
    "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=200",
    "[   2092]     0  2092  3086419   864197 39022592        0             0 python3",
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from rmStatus",
    "systemd[1]: Started Userspace Out-Of-Memory (OOM) Killer.",
    "x: vmalloc: allocation failure: 8589934588 bytes, mode:0x14080c0(GFP_KERNEL|__GFP_ZERO), nodemask=(null)",
    // Panic in a parameter is a setting.
    "xlog_status: enable:1, panic:1, dump:2",
    "softdog: initialized. soft_noboot=0 soft_margin=60 sec soft_panic=0 (nowayout=0)",
    "Kernel command line: root=/dev/nvme0n1p1 rw panic=30 oops=panic softlockup_panic=1 panic_on_warn=1",
    "panic+0x1e4/0x3fb",
    " panic+0x1e4/0x3fb",
    "Rebooting in 30 seconds..",
    // The end of a stall that never was, a slow handler, a hint below a report.
    "INFO: Stall ended before state dump start",
    "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.356 msecs",
    "INFO: lockdep is turned off.",
    "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
    "1 lock held by khungtaskd/341:",
    "sched: RT throttling activated for rt_rq ffffffc0fefd8ea8 (cpu 1)",
    "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
    "NMI watchdog: Perf NMI watchdog permanently disabled",
    // Watchdogs that are opened, closed, fed, or of a service.
    "watchdog: watchdog0: watchdog did not stop!",
    "tegra_wdt_t18x 2190000.watchdog: Tegra WDT init timeout = 120 sec",
    "systemd[1]: Using hardware watchdog 'NVIDIA Tegra186 WDT', version 0, device /dev/watchdog",
    "systemd[1]: Set hardware watchdog to 2min.",
    "systemd[1]: systemd-journald.service: Watchdog timeout (limit 3min)!",
    "softdog: Triggered - Reboot ignored",
    "iTCO_wdt: unable to reset NO_REBOOT flag, device disabled by hardware/BIOS",
    // What the boot before left is not of this boot.
    "tegra-pmc: ### PMC reset source: BCCPLEXWDT",
    "pstore: Using crash dump compression: deflate",
    "random: get_random_bytes called from oops_exit+0x58/0x80 with crng_init=0",
    "md: resync: 5 [#1]",
    "board python3[77]: Oops: 0002 [#1] SMP",
    // Hardware errors that are tests, corrected, or only counted.
    "mce: Machine check injector initialized",
    "mce: [Hardware Error]: Machine check events logged",
    "{1}[Hardware Error]: event severity: corrected",
    "CPU features: detected: RAS Extension Support",
    "RAS: Correctable Errors collector initialized.",
    // Kernel addresses and symbols that name faults.
    "BUG UNIX (Not tainted): kasan: bad access detected",
    "kasan: CONFIG_KASAN_INLINE enabled",
    "kasan: GPF could be caused by NULL-ptr deref or user memory access",
    "Unable to handle this request: not a fault",
    "usb 5-1: WARNING: ath10k USB support is incomplete, don't expect anything to work!",
    "WARNING: The mand mount option has been deprecated and",
    "WARNING: workqueue cpumask: online intersect > possible intersect",
    "Speculative Return Stack Overflow: WARNING: kernel not compiled with CPU_SRSO.",
    "EXT4-fs: Warning: mounting with an experimental mount option 'dioread_nolock' for blocksize < PAGE_SIZE",
    "PCI: Using host bridge windows from ACPI; if necessary, use \"pci=nocrs\" and report a bug",
    "xhci_hcd 0000:00:14.0: Booting the kernel.",
    // The GPU: cleanup after another fault, the camera's own numbers, noise of a start, loss without a fault.
    "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 43 for ch 479 owned by python3",
    "tegra-vi4 15700000.vi: error notifier set to 1",
    "nvgpu: 17000000.gpu   ga10b_fuse_status_opt_gpc:92  [ERR]  no fuse of that name",
    "NVRM: Xid (PCI:0000:01:00): 45, pid=1834, name=python3, Ch 00000010",
    "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.00",
    "nvmap_alloc_handle: PID 8741: python3: WARNING: All NvMap Allocations must have a tag to identify the subsystem allocating memory.",
    "nvmap_background_zero_thread: PP zeroing thread starting.",
    "****NvRmMemInit failed**** error type: 196626",
    "549: Memory Manager Not supported",
    // Heat and supply: registration, throttling, words of the desktop.
    "thermal thermal_zone8: Registering thermal zone thermal_zone8 for type tj-thermal",
    "mce: CPU0: Core temperature above threshold, cpu clock throttled (total events = 1)",
    "soctherm: OC ALARM 0x00000000",
    "System throttled due to Over-current.",
    "hwmon hwmon1: Voltage normalised",
    "reboot: HARDWARE PROTECTION shutdown (unknown)",
    // An orderly end, and a person who asks for other things.
    "reboot: Restarting system",
    "reboot: Power down",
    "sysrq: Emergency Sync",
    "sysrq: HELP : loglevel(0-9) reboot(b) crash(c)",
    // Processes that die or complain elsewhere.
    "audit: type=1701 audit(1778054400.123:12): auid=1000 uid=1000 pid=1834 comm=\"python3\" sig=11 res=1",
    "python3[1834]: Kernel panic - not syncing: quoted",
    "python3: waited for more than 120 seconds.",
    "Killed process group of pid 2092",
];
